"""Bags from a user's table: rows of features, or files of features, images or recordings, packed once and mapped."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.array_cache import (
    DeclareInputs,
    Fields,
    cache_place,
    cached_arrays,
    write_header,
)
from milbench.data.bag_files import (
    CLASSES,
    COORDINATES,
    BagFile,
    open_all,
    open_features,
    open_frames,
)
from milbench.data.bags_store import BagStore, row_parts, write_files
from milbench.data.image_files import decode_image
from milbench.data.in_order import prefetched
from milbench.data.table import (
    NAMES,
    SEPARATOR,
    Annotation,
    Bagged,
    Table,
    abbreviate,
    class_name,
    group_rows,
    is_group_name,
    is_id_name,
    read_table,
    set_text,
    take_rows,
)
from milbench.data.table_files import read_chunks, row_name
from milbench.data.table_options import FeatureOptions, ImageOptions, SequenceOptions, TableOptions
from milbench.errors import UsageError


@dataclass(frozen=True, eq=False)
class OwnBags:
    """The B bags of a table, in the order of their first rows, with their instances; None is what is not known."""

    path: Path
    bags: list[str]  # their names
    labels: NDArray[np.bool_]  # (B, C), their label sets
    class_names: list[str]
    store: BagStore
    _: KW_ONLY
    groups: list[str] | None = None  # of the bags, such as the patient that each belongs to
    split: list[str] | None = None  # of the bags, each one of SPLITS
    ignored: Sequence[str] = ()  # columns that are not used
    likely_group: str = (
        ""  # the column that seems to say which bags belong together, where none was named
    )
    likely_split: str = ""  # the column that seems to hold parts of a split, where none was named
    marks: list[list[Annotation]] | None = (
        None  # of images, boxes; of sequences, events as they begin
    )
    digest: str = (
        ""  # of names, labels, instances and annotations, independent of the format of the files
    )
    feature_names: Sequence[str] = ()  # of tables of features
    rows: NDArray[np.int64] | None = (
        None  # (N,) of the table, from which instances come; None: the rows are the bags
    )
    instance_classes: NDArray[np.int64] | None = None  # (N,), C for background
    coords: NDArray[np.float32] | None = None  # (N, 2), x and y of each instance
    sizes: NDArray[np.int32] | None = (
        None  # (B, 2), width and height of images before they were fitted into squares
    )
    kind: str = ""  # of all files, such as "a waveform of 16000 samples a second"
    frames_per_second: float = 0.0

    def __len__(self) -> int:
        return len(self.bags)

    def marked(self) -> NDArray[np.bool_]:
        """Return (B,), which bags have a mark for each class in their label set; empty label sets need none."""
        if self.marks is None:
            return np.zeros(len(self), bool)
        return np.array([len(marks) > 0 for marks in self.marks]) | ~self.labels.any(axis=1)

    def place(self, instance: int) -> str:
        """Return how a message names the row of the table that an instance comes from."""
        bag = int(np.searchsorted(self.store.offsets, instance, side="right")) - 1
        return row_name(self.path, bag if self.rows is None else int(self.rows[instance]))


def load_bags(path: Path, options: TableOptions) -> OwnBags:
    """Return the bags of a table, packed into a cache if they are not yet. UsageError names file and row."""
    key = hashlib.sha256(json.dumps([options.kind, options.reading]).encode()).hexdigest()[:12]

    def write(folder: Path, declare: DeclareInputs) -> Fields:
        declare([path.name])
        pack: Any = {
            "features": _pack_features,
            "images": _pack_images,
            "sequences": _pack_sequences,
        }
        bags = pack[options.kind](folder, path, options, declare)
        record = (
            vars(bags.store)
            | vars(bags)
            | {"digest": _digest(bags), "files": [*map(str, bags.store.files)]}
        )
        return {
            name: value for name, value in record.items() if name not in ("path", "store", "packed")
        }

    cached = cached_arrays(cache_place(path, "bags") / f"{path.name}-{key}", path.parent, write)
    statistics = {
        name: np.asarray(cached.pop(name)) for name in ("offsets", "means", "squares", "digests")
    }
    files = [path.parent / name for name in cached.pop("files")]
    store = BagStore(
        **statistics, packed=cached.pop("instances", None), files=files, dtype=cached.pop("dtype")
    )
    cached["labels"] = np.array(cached["labels"])
    cached["marks"] = cached["marks"] and [
        [Annotation(c, tuple(ends)) for c, ends in bag] for bag in cached["marks"]
    ]
    return OwnBags(path=path, store=store, **cached)


def _pack_images(
    folder: Path, path: Path, options: ImageOptions, declare: DeclareInputs
) -> OwnBags:
    table = read_table(path, (options.image, "boxes", *_text_columns(options)))
    bags = take_rows(table, options.image, "image")
    declare(bags.names)
    sizes = np.zeros((len(bags.names), 2), np.int32)

    def read(row: int) -> NDArray[np.uint8]:
        pixels, sizes[row] = decode_image(
            path.parent / bags.names[row], options.size, options.channels
        )
        return pixels[None]

    shape = (1, options.channels, options.size, options.size)
    annotated = _annotations(bags, options, {options.image}, "boxes")
    files = [
        BagFile(shape, "uint8", partial(read, row), name=table.place(row))
        for row in range(len(bags.names))
    ]
    return OwnBags(**annotated, store=write_files(folder, files, "images"), sizes=sizes)


def _pack_sequences(
    folder: Path, path: Path, options: SequenceOptions, declare: DeclareInputs
) -> OwnBags:
    table = read_table(path, (options.file, "events", *_text_columns(options)))
    bags = take_rows(table, options.file, "sequence")
    annotated = _annotations(bags, options, {options.file}, "events")
    declare(bags.names)
    files = open_all(partial(open_frames, options=options), path, bags.names)
    store = replace(write_files(folder, files), files=[*map(Path, bags.names)])
    return OwnBags(
        **annotated, store=store, kind=files[0].kind, frames_per_second=files[0].frames_per_second
    )


def _text_columns(options: TableOptions) -> tuple[str, str, str]:
    return options.labels, options.group, options.split


def _annotations(
    bags: Bagged, options: TableOptions, other_columns: set[str], marks: str = ""
) -> dict[str, Any]:
    """Return what columns say of bags; `other_columns` have another use, and `marks` has boxes or events."""
    labels, names, label_columns = bags.labels(options)
    groups, split = bags.values(options.group, "group"), bags.split(options.split)
    reserved = {*label_columns, *NAMES, *_text_columns(options), marks}
    others = [name for name in bags.table.columns if name not in reserved]
    return {
        "path": bags.table.path, "bags": bags.names, "labels": labels, "class_names": names,
        "groups": groups, "split": split, "ignored": [name for name in others if name not in other_columns],
        "likely_group": "" if groups else bags.likely_group(others, labels, split),
        "likely_split": "" if split else bags.likely_split(others),
        "marks": bags.marks(marks, labels, names) if marks else None,
    }  # fmt: skip


def _pack_features(
    folder: Path, path: Path, options: FeatureOptions, declare: DeclareInputs
) -> OwnBags:
    """Pack the bags of a table with a row an instance, in chunks of its rows; the first one says what is a feature."""
    text = {options.bag, options.features.removeprefix("@"), *_text_columns(options)}
    if options.of_files:
        return _pack_feature_files(folder, read_table(path, text), options, declare)
    names, others = list[str](), list[pd.DataFrame]()
    with (in_rows := folder / "rows_of_table.npy").open("wb") as out:
        for frame in prefetched(read_chunks(path, {*NAMES, *text}, options.decimal)):
            chunk = Table(path, frame)
            if not others:
                names = _feature_names(chunk, options)
                write_header(out, np.dtype(np.float32), (0, len(names)))
            out.write(chunk.numbers(names).data)
            others.append(frame.drop(columns=names))
        table = Table(path, pd.concat(others))
        out.seek(0)
        write_header(out, np.dtype(np.float32), (len(table.frame), len(names)))
    features = np.load(in_rows, mmap_mode="r", allow_pickle=False)
    named = {
        name: features[:, n]
        for n, name in enumerate(names)
        if is_group_name(name) or is_id_name(name)
    }
    bags = group_rows(Table(path, table.frame.assign(**named)) if named else table, options.bag)
    coords = table.matching(options.coords, "of x and y")
    annotated = _annotations(bags, options, {options.bag, *coords, *names})
    order = np.argsort(bags.codes, kind="stable")
    classes = bags.instance_classes(annotated["labels"], annotated["class_names"])
    offsets = np.searchsorted(bags.codes[order], np.arange(len(bags.names) + 1))
    parts = row_parts(features, order, offsets, str(path))
    store = write_files(folder, parts, "parts")
    if parts[0].mapped:  # bag follows bag in the table
        in_rows.replace(folder / "instances.npy")
    else:
        in_rows.unlink()
    return OwnBags(
        **annotated, store=store, feature_names=names, rows=order,
        instance_classes=None if classes is None else classes[order],
        coords=table.numbers(coords)[order] if coords else None,
    )  # fmt: skip


def _feature_names(table: Table, options: FeatureOptions) -> list[str]:
    coords = table.matching(options.coords, "of x and y")
    if len(coords) not in (0, 2):
        raise UsageError(
            f"{table.path}: coords = {options.coords!r} names {len(coords)} options, expected x and y"
        )
    reserved = {
        *table.label_columns(options.labels),
        *NAMES,
        options.bag,
        options.group,
        options.split,
    }
    table.column(options.bag, "the bag that an instance belongs to")
    if pattern := options.features:  # a "*" skips columns of names and labels
        listed = {part.strip() for part in pattern.split(SEPARATOR)}
        names_or_labels = reserved - {
            "features",
            "image",
            "boxes",
        }  # which are names in other tables alone
        if wrong := [name for name in table.columns if name in listed & names_or_labels]:
            named = f"the features {pattern!r} name the column {wrong[0]!r}"
            raise UsageError(f"{table.path}: {named}, which holds names or labels")
        names = [
            n for n in table.matching(pattern, "of features") if n in listed or n not in reserved
        ]
    else:
        names = table.holds_numbers(
            [name for name in table.columns if name not in {*reserved, *coords}]
        )
    if not names:
        raise UsageError(
            f"{table.path} has no column of numbers for features (it has: {abbreviate(table.columns)})"
        )
    return names


def feature_files(bags: Bagged, options: FeatureOptions) -> list[str]:
    """Return the path of the file of every bag, from the folder of the table."""
    if options.features.startswith("@"):
        return bags.table.texts(options.features[1:], "the file of a bag's features").tolist()
    return [options.features.replace("*", name) for name in bags.names]


def _pack_feature_files(
    folder: Path, table: Table, options: FeatureOptions, declare: DeclareInputs
) -> OwnBags:
    bags = take_rows(table, options.bag, "bag")
    annotated = _annotations(bags, options, {options.bag, options.features.removeprefix("@")})
    names = feature_files(bags, options)
    declare(names)
    files = open_all(partial(open_features, key=options.key), table.path, names)
    store = replace(write_files(folder, files), files=[*map(Path, names)])
    coords = [file.named[COORDINATES]() for file in files if COORDINATES in file.named]
    are_places = [part.shape for part in coords] == [(file.shape[0], 2) for file in files]
    sets = np.pad(annotated["labels"], ((0, 0), (0, 1)), constant_values=True)
    labelled_files = (
        zip(files, sets, strict=True) if all(CLASSES in file.named for file in files) else ()
    )
    classes = [_classes_in(file, annotated["class_names"], has) for file, has in labelled_files]
    return OwnBags(
        **annotated, store=store, feature_names=[f"f{number}" for number in range(files[0].shape[1])],
        instance_classes=np.concatenate(classes) if classes else None,
        coords=np.concatenate(coords).astype(np.float32) if are_places else None,
    )  # fmt: skip


def _classes_in(file: BagFile, class_names: list[str], has: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the classes (K,) of the instances in a file, by names or numbers there; "" and -1 are background."""
    classes, count = file.named[CLASSES](), len(class_names)
    if classes.dtype.kind not in "iu":
        texts = [
            text.decode() if isinstance(text, bytes) else str(text)
            for text in classes.ravel().tolist()
        ]
        number = {"": -1, **{name: c for c, name in enumerate(class_names)}}
        classes = np.array([number.get(class_name(text), count + 1) for text in texts])
    classes = np.where(classes == -1, count, classes.astype(np.int64).ravel())
    if (
        classes.shape != file.shape[:1]
        or classes.min() < 0
        or classes.max() > count
        or not has[classes].all()
    ):
        expected = f"one of the bag's {set_text(class_names)} or background an instance"
        raise UsageError(f"{file.name}: {CLASSES} are not {expected}")
    return classes


def _digest(bags: OwnBags) -> str:
    names = bags.bags, bags.feature_names or None, bags.class_names
    texts = *names, bags.groups, bags.split, bags.marks, bags.kind or None
    digest = hashlib.sha256(json.dumps(texts).encode())
    for values in (
        bags.store.offsets,
        bags.store.digests,
        bags.labels,
        bags.instance_classes,
        bags.sizes,
    ):
        if values is not None:
            digest.update(values.tobytes())
    return digest.hexdigest()
