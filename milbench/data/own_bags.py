"""Bags from one's own table: rows of features, or files of features, images or recordings, packed once and mapped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench._utils.prefetch import prefetched
from milbench.data.array_cache import Known, Uses, cache_place, cached_arrays, write_header
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
    bagged,
    bagged_alone,
    class_name,
    read_table,
    set_text,
    shown,
)
from milbench.data.table_files import read_chunks, row_name
from milbench.errors import UsageError

Kind = Literal["features", "images", "sequences"]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what, as the parameters of the task feature-bags say it."""

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
    """The same for a table of images, as the task image-bags has it, with the side and the channels of the squares."""

    image: str = "image"
    labels: str = "labels"
    classes: str = ""
    size: Size = SIDE
    channels: Channels = COLOURS


@dataclass(frozen=True, eq=False)
class OwnBags:
    """B bags of a table, in the order of their first rows, with label sets (B, C).

    Args:
        digest: of names, labels, instances and what else is known, which does not depend on the form of the files.
        groups: of the bags, such as the patient that each belongs to; None where there are none.
        split: of the bags, each one of SPLITS; None where the table has none.
        ignored: columns that are not used.
        feature_names: of the D features; of sequences and images their numbers.
        rows: (N,) the row of the table that each instance comes from; None: the rows are the bags.
        instance_classes: (N,) the class of each instance, C for background; None where they are not known.
        coords: (N, 2), x and y of each instance; None where they are not known.
        marks: of images, boxes; of sequences, events as they begin; None where the table has no such column.
        sizes: (B, 2), width and height in pixels of upright images before they were fitted into squares.
        kind: what all files are, such as "a waveform of 16000 samples a second".
    """

    path: Path
    bags: list[str]
    labels: NDArray[np.bool_]
    class_names: list[str]
    store: BagStore
    digest: str = ""
    groups: list[str] | None = None
    split: list[str] | None = None
    ignored: Sequence[str] = ()
    feature_names: Sequence[str] = ()
    rows: NDArray[np.int64] | None = None
    instance_classes: NDArray[np.int64] | None = None
    coords: NDArray[np.float32] | None = None
    marks: list[list[Mark]] | None = None
    sizes: NDArray[np.int32] | None = None
    kind: str = ""
    frames_per_second: float = 0.0

    def __len__(self) -> int:
        return len(self.bags)

    def marked(self) -> NDArray[np.bool_]:
        """Return (B,), which bags have a mark of every class of theirs, as all have whose label set is empty."""
        if self.marks is None:
            return np.zeros(len(self), bool)
        return np.array([len(marks) > 0 for marks in self.marks]) | ~self.labels.any(axis=1)

    def place(self, instance: int) -> str:
        """Return how a message names the row of the table that an instance comes from."""
        bag = int(np.searchsorted(self.store.offsets, instance, side="right")) - 1
        return row_name(self.path, bag if self.rows is None else int(self.rows[instance]))


def load_features(path: Path, columns: Columns) -> OwnBags:
    """Return the bags of a table of features, with a row an instance or a bag. UsageError names file and row."""

    def pack(folder: Path, uses: Uses) -> Known:
        text = {*NAMES, columns.bag, columns.labels, columns.features.removeprefix("@")}
        if columns.of_files:
            return _write_feature_files(folder, read_table(path, text), columns, uses)
        return _write_rows(folder, path, (Table(path, frame) for frame in read_chunks(path, text)), columns)

    return _loaded(path, ["features", asdict(columns)], pack)


def load_images(path: Path, columns: ImageColumns) -> OwnBags:
    """Return the bags of a table with a row an image, fitted into squares. UsageError names file and row."""

    def pack(folder: Path, uses: Uses) -> Known:
        table = read_table(path, (columns.image, columns.labels, "boxes"))
        bags = bagged_alone(table, columns.image, "image")
        uses(bags.names)
        sizes = np.zeros((len(bags.names), 2), np.int32)

        def read(row: int) -> NDArray[np.uint8]:
            pixels, sizes[row] = decoded(path.parent / bags.names[row], columns.size, columns.channels)
            return pixels[None]

        shape = (1, columns.channels, columns.size, columns.size)
        known = _described(bags, columns, [columns.image], "boxes")
        files = [BagFile(shape, "uint8", partial(read, row), name=table.place(row)) for row in range(len(bags.names))]
        return known | write_files(folder, files, "images") | {"sizes": sizes}

    return _loaded(path, ["images", asdict(columns)], pack)


def load_sequences(path: Path, columns: SequenceColumns) -> OwnBags:
    """Return the bags of a table with a row a recording, as frames. UsageError names file and row."""

    def pack(folder: Path, uses: Uses) -> Known:
        table = read_table(path, (columns.file, columns.labels, "events"))
        bags = bagged_alone(table, columns.file, "sequence")
        known = _described(bags, columns, [columns.file], "events")
        uses(bags.names)
        files = open_all(partial(open_frames, columns=columns), path, bags.names)
        known |= {"kind": usual_kind(files), "frames_per_second": files[0].frames_per_second, "files": bags.names}
        return known | write_files(folder, files)

    return _loaded(path, ["sequences", asdict(columns)], pack)


def _described(
    bags: Bagged, columns: Columns | ImageColumns | SequenceColumns, taken: Sequence[str], marks: str = ""
) -> Known:
    """Return what is known of bags; `taken` are columns that are used for something else, `marks` the one of places."""
    labels, names, used = bags.labels(columns.labels, columns.classes)
    return {
        "bags": bags.names, "labels": labels, "class_names": names, "groups": bags.values("group"),
        "split": bags.split(), "marks": bags.marks(marks, labels, names) if marks else None,
        "ignored": _without(bags.table.columns, {*used, *NAMES, *taken, marks}),
    }  # fmt: skip


def _write_rows(folder: Path, path: Path, chunks: Iterable[Table], columns: Columns) -> Known:
    """Write the bags of a table with a row an instance, in chunks of its rows; the first one says what is a feature."""
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
    coords = table.matching(columns.coords, "of x and y") if columns.coords else []
    known = _described(bags, columns, [columns.bag, *coords])
    known["rows"] = order = np.argsort(bags.codes, kind="stable")
    classes = bags.instance_classes(known["labels"], known["class_names"])
    if classes is not None:
        known["instance_classes"] = classes[order]
    if coords:
        known["coords"] = table.numbers(coords)[order]
    offsets = np.searchsorted(bags.codes[order], np.arange(len(bags.names) + 1))
    parts = row_parts(np.load(in_rows, mmap_mode="r", allow_pickle=False), order, offsets, str(path))
    known |= write_files(folder, parts, "parts", ends=True)
    if parts[0].mapped:  # bag follows bag in the table
        in_rows.replace(folder / "instances.npy")
    else:
        in_rows.unlink()
    return known | {"feature_names": names}


def _feature_names(table: Table, columns: Columns) -> list[str]:
    coords = table.matching(columns.coords, "of x and y") if columns.coords else []
    if len(coords) not in (0, 2):
        raise UsageError(f"{table.path}: coords = {columns.coords!r} names {len(coords)} columns, expected x and y")
    taken = {*table.label_columns(columns.labels), *NAMES, columns.bag}
    table.column(columns.bag, "the bag that an instance belongs to")
    others = _without(table.columns, {*taken, *coords})
    names = _named(table, columns.features, taken) if columns.features else table.holds_numbers(others)
    if not names:
        raise UsageError(f"{table.path} has no column of numbers for features (it has: {shown(table.columns)})")
    return names


def _named(table: Table, pattern: str, taken: set[str]) -> list[str]:
    """Return the columns that the user names as features; a "*" leaves out those that hold something else."""
    listed = {part.strip() for part in pattern.split(SEPARATOR)}
    others = taken - {"features", "image", "boxes"}  # which are names in other tables alone
    if wrong := [name for name in table.columns if name in listed and name in others]:
        raise UsageError(
            f"{table.path}: the features {pattern!r} name the column {wrong[0]!r}, which holds names or labels"
        )
    return [n for n in table.matching(pattern, "of features") if n in listed or n not in taken]


def _write_feature_files(folder: Path, table: Table, columns: Columns, uses: Uses) -> Known:
    bags = bagged_alone(table, columns.bag, "bag")
    known = _described(bags, columns, [columns.bag, columns.features.removeprefix("@")])
    files = columns.files(table, bags.names)
    uses(files)
    found = open_all(partial(open_features, key=columns.key), table.path, files)
    for one in found:
        if one.shape[1] != found[0].shape[1]:
            first = f"expected {found[0].shape[1]} as in {files[0]}"
            raise UsageError(f"{one.name} has {one.shape[1]} features, {first}")
    known |= write_files(folder, found, ends=True)
    parts = [one.named[COORDINATES]() for one in found if COORDINATES in one.named]
    if [part.shape for part in parts] == [(one.shape[0], 2) for one in found]:
        known["coords"] = np.concatenate(parts).astype(np.float32)
    if all(CLASSES in one.named for one in found):
        sets = np.pad(known["labels"], ((0, 0), (0, 1)), constant_values=True)
        given = [_classes_in(one, known["class_names"], has) for one, has in zip(found, sets, strict=True)]
        known["instance_classes"] = np.concatenate(given)
    return known | {"feature_names": [f"f{number}" for number in range(found[0].shape[1])], "files": files}


def _classes_in(file: BagFile, classes: list[str], has: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the classes (K,) of the instances in a file, by names or numbers there; "" and -1 are background."""
    found = file.named[CLASSES]()
    if found.dtype.kind not in "iu":
        texts = [class_name(text.decode() if isinstance(text, bytes) else str(text)) for text in found.ravel().tolist()]
        number = {"": -1, **{known: c for c, known in enumerate(classes)}}
        found = np.array([number.get(text, len(classes) + 1) for text in texts])
    found = np.where(found == -1, len(classes), found.astype(np.int64).ravel())
    if found.shape != file.shape[:1] or found.min() < 0 or found.max() > len(classes) or not has[found].all():
        raise UsageError(
            f"{file.name}: {CLASSES} are not one of the bag's {set_text(classes)} or background an instance"
        )
    return found


def _without(names: Sequence[str], taken: set[str]) -> list[str]:
    return [name for name in names if name not in taken]


def _loaded(path: Path, settings: list[Any], pack: Callable[[Path, Uses], Known]) -> OwnBags:
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def write(folder: Path, uses: Uses) -> Known:
        uses([path.name])
        known = pack(folder, uses)
        return known | {"digest": _digest(known)}

    known = cached_arrays(cache_place(path, "bags") / f"{path.name}-{key}", path.parent, write)
    stored = {name: np.asarray(known.pop(name)) for name in ("offsets", "means", "squares", "ends", "digests")}
    files = [path.parent / name for name in known.pop("files", [])]
    store = BagStore(**stored, packed=known.pop("instances", None), files=files, dtype=known.pop("dtype"))
    known["marks"] = known["marks"] and [[Mark(cls, tuple(at)) for cls, at in marks] for marks in known["marks"]]
    return OwnBags(path=path, store=store, labels=np.array(known.pop("labels")), **known)


def _digest(known: Known) -> str:
    """Return a digest of all that bags are, whatever the form of their files."""
    names = ("bags", "feature_names", "class_names", "groups", "split", "marks", "kind")
    found = hashlib.sha256(json.dumps([known.get(name) for name in names]).encode())
    for name in ("offsets", "digests", "labels", "instance_classes", "sizes"):
        if name in known:
            found.update(known[name].tobytes())
    return found.hexdigest()
