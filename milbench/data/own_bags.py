"""Bags from a user's table: rows of features, or files of features, images or recordings, packed once and mapped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench._utils.prefetch import prefetched
from milbench.data.array_cache import DeclareInputs, Fields, cache_place, cached_arrays, write_header
from milbench.data.bag_files import (
    CLASSES,
    COORDINATES,
    FEATURE_FILES,
    BagFile,
    SequenceColumns,
    open_all,
    open_features,
    open_frames,
    usual_kind,
)
from milbench.data.bags_store import BagStore, row_parts, write_files
from milbench.data.image_files import COLOURS, SIDE, Channels, Size, decoded
from milbench.data.table import (
    NAMES,
    SEPARATOR,
    Bagged,
    Mark,
    Table,
    abbreviate,
    bagged,
    bagged_alone,
    class_name,
    read_table,
    set_text,
)
from milbench.data.table_files import read_chunks, row_name
from milbench.errors import UsageError

Kind = Literal["features", "images", "sequences"]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table of features hold what, as the parameters of feature-bags say it."""

    kind: ClassVar[Kind] = "features"
    bag: str = "bag"
    labels: str = "labels"
    features: str = ""
    classes: str = ""
    key: str = ""
    coords: str = ""

    @property
    def of_files(self) -> bool:
        """Whether the features of each bag are in a file of its own."""
        pattern = "*" in self.features and Path(self.features).suffix.lower() in FEATURE_FILES
        return pattern or self.features.startswith("@")

    def files(self, table: Table, names: Sequence[str]) -> list[str]:
        """Return the path of the file of every bag, from the folder of the table."""
        if self.features.startswith("@"):
            return table.texts(self.features[1:], "the file of a bag's features").tolist()
        return [self.features.replace("*", name) for name in names]


@dataclass(frozen=True)
class ImageColumns:
    """Which columns of a table of images hold what, and how images are fitted, as image-bags has them."""

    kind: ClassVar[Kind] = "images"
    image: str = "image"
    labels: str = "labels"
    classes: str = ""
    size: Size = SIDE
    channels: Channels = COLOURS


TableColumns = Columns | ImageColumns | SequenceColumns


@dataclass(frozen=True, eq=False)
class AnnotatedBags:
    """The B bags of a table by its columns, in the order of their first rows.

    Args:
        path: of the table.
        bags: their names.
        labels: (B, C), their label sets.
        class_names: of the C classes.
        groups: of the bags, such as the patient that each belongs to; None where there are none.
        split: of the bags, each one of SPLITS; None where the table has none.
        ignored: columns that are not used.
        marks: of images, boxes; of sequences, events as they begin; None where the table has no such column.
    """

    path: Path
    bags: list[str]
    labels: NDArray[np.bool_]
    class_names: list[str]
    groups: list[str] | None = None
    split: list[str] | None = None
    ignored: Sequence[str] = ()
    marks: list[list[Mark]] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnBags(AnnotatedBags):
    """The bags of a table with their instances.

    Args:
        store: of the instances.
        digest: of names, labels, instances and annotations, independent of the format of the files.
        feature_names: of the D features; of sequences and images their numbers.
        rows: (N,) the row of the table that each instance comes from; None: the rows are the bags.
        instance_classes: (N,) the class of each instance, C for background; None where they are not known.
        coords: (N, 2), x and y of each instance; None where they are not known.
        sizes: (B, 2), width and height in pixels of upright images before they were fitted into squares.
        kind: of all files, such as "a waveform of 16000 samples a second".
    """

    store: BagStore
    digest: str = ""
    feature_names: Sequence[str] = ()
    rows: NDArray[np.int64] | None = None
    instance_classes: NDArray[np.int64] | None = None
    coords: NDArray[np.float32] | None = None
    sizes: NDArray[np.int32] | None = None
    kind: str = ""
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


def load_bags(path: Path, columns: TableColumns) -> OwnBags:
    """Return the bags of a table, packed into a cache if they are not yet. UsageError names file and row.

    By its columns it is a table of features, with a row an instance or a bag; of images, fitted into squares; or of
    recordings, as frames.
    """
    key = hashlib.sha256(json.dumps([columns.kind, asdict(columns)]).encode()).hexdigest()[:12]

    def write(folder: Path, declare: DeclareInputs) -> Fields:
        declare([path.name])
        bags = _PACK[columns.kind](folder, path, columns, declare)
        fields = vars(bags.store) | vars(bags) | {"digest": _digest(bags), "files": [*map(str, bags.store.files)]}
        return {name: value for name, value in fields.items() if name not in ("path", "store", "packed")}

    cached = cached_arrays(cache_place(path, "bags") / f"{path.name}-{key}", path.parent, write)
    statistics = {name: np.asarray(cached.pop(name)) for name in ("offsets", "means", "squares", "ends", "digests")}
    files = [path.parent / name for name in cached.pop("files")]
    store = BagStore(**statistics, packed=cached.pop("instances", None), files=files, dtype=cached.pop("dtype"))
    cached["labels"] = np.array(cached["labels"])
    cached["marks"] = cached["marks"] and [[Mark(cls, tuple(at)) for cls, at in marks] for marks in cached["marks"]]
    return OwnBags(path=path, store=store, **cached)


def _pack_features(folder: Path, path: Path, columns: Columns, declare: DeclareInputs) -> OwnBags:
    text = {*NAMES, columns.bag, columns.labels, columns.features.removeprefix("@")}
    if columns.of_files:
        return _pack_feature_files(folder, read_table(path, text), columns, declare)
    return _pack_rows(folder, path, (Table(path, frame) for frame in read_chunks(path, text)), columns)


def _pack_images(folder: Path, path: Path, columns: ImageColumns, declare: DeclareInputs) -> OwnBags:
    table = read_table(path, (columns.image, columns.labels, "boxes"))
    bags = bagged_alone(table, columns.image, "image")
    declare(bags.names)
    sizes = np.zeros((len(bags.names), 2), np.int32)

    def read(row: int) -> NDArray[np.uint8]:
        pixels, sizes[row] = decoded(path.parent / bags.names[row], columns.size, columns.channels)
        return pixels[None]

    shape = (1, columns.channels, columns.size, columns.size)
    annotated = _annotated(bags, columns, [columns.image], "boxes")
    files = [BagFile(shape, "uint8", partial(read, row), name=table.place(row)) for row in range(len(bags.names))]
    return OwnBags(**vars(annotated), store=write_files(folder, files, "images"), sizes=sizes)


def _pack_sequences(folder: Path, path: Path, columns: SequenceColumns, declare: DeclareInputs) -> OwnBags:
    table = read_table(path, (columns.file, columns.labels, "events"))
    bags = bagged_alone(table, columns.file, "sequence")
    annotated = _annotated(bags, columns, [columns.file], "events")
    declare(bags.names)
    files = open_all(partial(open_frames, columns=columns), path, bags.names)
    kind = usual_kind(files)
    store = replace(write_files(folder, files), files=[*map(Path, bags.names)])
    return OwnBags(**vars(annotated), store=store, kind=kind, frames_per_second=files[0].frames_per_second)


_PACK: dict[Kind, Callable[[Path, Path, Any, DeclareInputs], OwnBags]] = {
    "features": _pack_features, "images": _pack_images, "sequences": _pack_sequences,
}  # fmt: skip


def _annotated(bags: Bagged, columns: TableColumns, other_columns: Sequence[str], marks: str = "") -> AnnotatedBags:
    """Return bags by their columns; `taken` columns have another use, and `marks` has boxes or events."""
    labels, names, used = bags.labels(columns.labels, columns.classes)
    return AnnotatedBags(
        bags.table.path, bags.names, labels, names, bags.values("group"), bags.split(),
        ignored=_without(bags.table.columns, {*used, *NAMES, *other_columns, marks}),
        marks=bags.marks(marks, labels, names) if marks else None,
    )  # fmt: skip


def _pack_rows(folder: Path, path: Path, chunks: Iterable[Table], columns: Columns) -> OwnBags:
    """Pack the bags of a table with a row an instance, in chunks of its rows; the first one says what is a feature."""
    names: list[str] = []
    others: list[pd.DataFrame] = []
    in_rows = folder / "rows_of_table.npy"
    with in_rows.open("wb") as out:
        for chunk in prefetched(chunks):
            if not others:
                names = _feature_names(chunk, columns)
                write_header(out, np.dtype(np.float32), (0, len(names)))
            out.write(chunk.numbers(names).data)
            others.append(chunk.frame.drop(columns=names))
        table = Table(path, pd.concat(others))
        out.seek(0)
        write_header(out, np.dtype(np.float32), (len(table.frame), len(names)))
    bags = bagged(table, columns.bag)
    coords = _coordinates(table, columns)
    annotated = _annotated(bags, columns, [columns.bag, *coords])
    order = np.argsort(bags.codes, kind="stable")
    classes = bags.instance_classes(annotated.labels, annotated.class_names)
    offsets = np.searchsorted(bags.codes[order], np.arange(len(bags.names) + 1))
    parts = row_parts(np.load(in_rows, mmap_mode="r", allow_pickle=False), order, offsets, str(path))
    store = write_files(folder, parts, "parts", ends=True)
    if parts[0].mapped:  # bag follows bag in the table
        in_rows.replace(folder / "instances.npy")
    else:
        in_rows.unlink()
    return OwnBags(
        **vars(annotated),
        store=store,
        feature_names=names,
        rows=order,
        instance_classes=None if classes is None else classes[order],
        coords=table.numbers(coords)[order] if coords else None,
    )


def _coordinates(table: Table, columns: Columns) -> list[str]:
    return table.matching(columns.coords, "of x and y") if columns.coords else []


def _feature_names(table: Table, columns: Columns) -> list[str]:
    coords = _coordinates(table, columns)
    if len(coords) not in (0, 2):
        raise UsageError(f"{table.path}: coords = {columns.coords!r} names {len(coords)} columns, expected x and y")
    reserved = {*table.label_columns(columns.labels), *NAMES, columns.bag}
    table.column(columns.bag, "the bag that an instance belongs to")
    candidates = _without(table.columns, {*reserved, *coords})
    names = _named(table, columns.features, reserved) if columns.features else table.holds_numbers(candidates)
    if not names:
        raise UsageError(f"{table.path} has no column of numbers for features (it has: {abbreviate(table.columns)})")
    return names


def _named(table: Table, pattern: str, reserved: set[str]) -> list[str]:
    """Return the columns that the user names as features; a "*" skips columns of names and labels."""
    listed = {part.strip() for part in pattern.split(SEPARATOR)}
    names_or_labels = reserved - {"features", "image", "boxes"}  # which are names in other tables alone
    if wrong := [name for name in table.columns if name in listed and name in names_or_labels]:
        raise UsageError(
            f"{table.path}: the features {pattern!r} name the column {wrong[0]!r}, which holds names or labels"
        )
    return [n for n in table.matching(pattern, "of features") if n in listed or n not in reserved]


def _pack_feature_files(folder: Path, table: Table, columns: Columns, declare: DeclareInputs) -> OwnBags:
    bags = bagged_alone(table, columns.bag, "bag")
    annotated = _annotated(bags, columns, [columns.bag, columns.features.removeprefix("@")])
    names = columns.files(table, bags.names)
    declare(names)
    files = open_all(partial(open_features, key=columns.key), table.path, names)
    width = files[0].shape[1]
    for file in files:
        if file.shape[1] != width:
            raise UsageError(f"{file.name} has {file.shape[1]} features, expected {width} as in {names[0]}")
    store = replace(write_files(folder, files, ends=True), files=[*map(Path, names)])
    coords = [file.named[COORDINATES]() for file in files if COORDINATES in file.named]
    are_places = [part.shape for part in coords] == [(file.shape[0], 2) for file in files]
    classes = None
    if all(CLASSES in file.named for file in files):
        sets = np.pad(annotated.labels, ((0, 0), (0, 1)), constant_values=True)
        parts = [_classes_in(file, annotated.class_names, has) for file, has in zip(files, sets, strict=True)]
        classes = np.concatenate(parts)
    return OwnBags(
        **vars(annotated),
        store=store,
        feature_names=[f"f{number}" for number in range(width)],
        instance_classes=classes,
        coords=np.concatenate(coords).astype(np.float32) if are_places else None,
    )


def _classes_in(file: BagFile, class_names: list[str], has: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the classes (K,) of the instances in a file, by names or numbers there; "" and -1 are background."""
    classes, count = file.named[CLASSES](), len(class_names)
    if classes.dtype.kind not in "iu":
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in classes.ravel().tolist()]
        number = {"": -1, **{name: c for c, name in enumerate(class_names)}}
        classes = np.array([number.get(class_name(text), count + 1) for text in texts])
    classes = np.where(classes == -1, count, classes.astype(np.int64).ravel())
    if classes.shape != file.shape[:1] or classes.min() < 0 or classes.max() > count or not has[classes].all():
        expected = f"one of the bag's {set_text(class_names)} or background an instance"
        raise UsageError(f"{file.name}: {CLASSES} are not {expected}")
    return classes


def _without(names: Sequence[str], excluded: set[str]) -> list[str]:
    return [name for name in names if name not in excluded]


def _digest(bags: OwnBags) -> str:
    """Return a digest of the content of bags, independent of the format of their files."""
    names = bags.bags, bags.feature_names or None, bags.class_names
    texts = *names, bags.groups, bags.split, bags.marks, bags.kind or None
    digest = hashlib.sha256(json.dumps(texts).encode())
    for values in (bags.store.offsets, bags.store.digests, bags.labels, bags.instance_classes, bags.sizes):
        if values is not None:
            digest.update(values.tobytes())
    return digest.hexdigest()
