"""Reader and writer of `digitStruct.mat`, SVHN's list of images with one box a digit.

MATLAB 7.3 files are HDF5. `digitStruct/name` and `digitStruct/bbox` hold one object reference an image: to the file
name as UTF-16 code units, and to a group with the datasets label, left, top, width and height. Each of these is a
column of references to one number a digit, or, where an image has a single digit, that number itself. Y. Netzer et al.,
"Reading Digits in Natural Images with Unsupervised Feature Learning", NIPS workshop, 2011.

There are a dozen objects an image, so they are read through h5py's low-level interface: the high-level one takes an
order of magnitude longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils import extras
from milbench.errors import UsageError

FILE = "digitStruct.mat"
FIELDS = ("label", "left", "top", "width", "height")
ZERO = 10
"""The label of the digit 0."""
LABELS = range(1, ZERO + 1)
FARTHEST = 1_000_000_000
"""Largest coordinate or side of a box, in pixels, so that sums of them stay finite."""
MOST_OF_A_RECORD = 1000
"""Most characters in the name of an image, and most digits in it."""
LEAST_BYTES = 64
"""Least bytes that a file has for an object: HDF5 takes more for the smallest. Fewer mean that objects are shared."""
PLAIN_NAME = re.compile(r"[^/\\\0]+\.png", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Record:
    """One image with its digits, in the order of the file, which is the order of reading.

    Args:
        name: the file name of the image.
        classes: n digits, 0 to 9.
        boxes: (n, 4) float64, (left, top, width, height) in pixels of the image, as they are stored.
    """

    name: str
    classes: tuple[int, ...]
    boxes: NDArray[np.float64]


def read(path: Path) -> list[Record]:
    """Return the records of a digitStruct.mat, in the order of the file.

    Boxes may reach beyond the image, whose size is not known here.

    Raises:
        UsageError: the file is missing, damaged or empty; or a record has no digits, labels other than 1 to 10, numbers
            that are not finite or beyond any picture, empty boxes, or a name that is no plain `*.png` or occurs twice.
            The message names the file and the record.
    """
    with _opened(path) as file:
        reader = _Reader(path, file)
        records = [reader.record(n) for n in range(len(reader.names))]
    if not records:
        raise UsageError(f"{path} has no records")
    _check_names(path, records)
    return records


def count(path: Path) -> int:
    """Return the number of records of a digitStruct.mat without reading them. Raises UsageError if it is damaged."""
    with _opened(path) as file:
        return int(file["digitStruct/name"].size)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file; turn errors of HDF5, now or in the block, into a UsageError that names the file."""
    if not path.is_file():
        raise UsageError(f"{path} not found")
    h5py = extras.load("h5py", "h5", str(path))
    try:
        with h5py.File(path, "r") as file:
            yield file
    except UsageError:
        raise
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise UsageError(f"{path} is damaged: no HDF5 file with SVHN's records ({error})") from error


def write(path: Path, records: Sequence[Record]) -> None:
    """Write records in SVHN's format, for `read` and for other readers of SVHN.

    The file is made in memory and written at once: HDF5 reports a full disk by tracebacks that cannot be caught.
    """
    h5py = extras.load("h5py", "h5", str(path))
    with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
        pool = file.create_group("#refs#")
        columns: dict[str, list[Any]] = {"name": [], "bbox": []}
        for n, record in enumerate(records):
            units = np.frombuffer(record.name.encode("utf-16-le"), dtype="<u2")
            columns["name"].append(pool.create_dataset(f"n{n}", data=units.reshape(-1, 1)).ref)
            group = pool.create_group(f"b{n}")
            labels = [c or ZERO for c in record.classes]
            for field, values in zip(FIELDS, np.column_stack([labels, record.boxes]).T, strict=True):
                if len(values) == 1:
                    group.create_dataset(field, data=values.reshape(1, 1))
                    continue
                cells = [pool.create_dataset(f"{field}{n}_{k}", data=v.reshape(1, 1)) for k, v in enumerate(values)]
                _write_references(group, field, [cell.ref for cell in cells])
            columns["bbox"].append(group.ref)
        structure = file.create_group("digitStruct")
        structure.attrs["MATLAB_class"] = np.bytes_("struct")
        for key, references in columns.items():
            _write_references(structure, key, references)
        file.flush()
        content = file.id.get_file_image()
    path.write_bytes(content)


def _write_references(group: Any, name: str, references: Sequence[Any]) -> None:
    import h5py

    column = np.empty((len(references), 1), dtype=h5py.ref_dtype)
    column[:, 0] = references
    group.create_dataset(name, data=column, dtype=h5py.ref_dtype)


class _Reader:
    """An open digitStruct.mat. HDF5 raises an error if a dataset has not as many numbers as are read."""

    def __init__(self, path: Path, file: Any) -> None:
        from h5py import h5d, h5g, h5r, h5s, h5t, ref_dtype

        self.path, self.file, self.chunked = path, file.id, h5d.CHUNKED
        self.left = path.stat().st_size // LEAST_BYTES
        """How many objects may still be read."""
        lists = [file["digitStruct"][key] for key in ("name", "bbox")]
        for each in lists:
            self.check_size(each.id, self.left)
        self.names, self.boxes = (np.ravel(each[()]) for each in lists)
        if len(self.names) != len(self.boxes):
            raise UsageError(f"{path} is damaged: {len(self.names)} names, {len(self.boxes)} lists of boxes")
        self.dereference, self.open, self.group, self.reference = h5r.dereference, h5d.open, h5g.GroupID, ref_dtype
        self.all, self.one, self.space = h5s.ALL, h5s.create_simple((1,)), h5s.create_simple
        self.double, self.reference_class = h5t.NATIVE_DOUBLE, h5t.REFERENCE
        self.number = np.empty(1)

    def record(self, n: int) -> Record:
        """Return record `n` (from 0). Raises UsageError if it is damaged."""
        name = self.text(self.dereference(self.names[n], self.file))
        where = f"{self.path}: record {n + 1} ({name})"
        group = self.dereference(self.boxes[n], self.file)
        if not isinstance(group, self.group):
            raise UsageError(f"{where} has no digits")
        columns = [self.column(self.open(group, field.encode())) for field in FIELDS]
        if len({len(column) for column in columns}) != 1:
            counts = ", ".join(f"{len(column)} {field}s" for field, column in zip(FIELDS, columns, strict=True))
            raise UsageError(f"{where} has {counts}")
        labels, *sides = columns
        if not labels:
            raise UsageError(f"{where} has no digits")
        boxes = np.array(sides).T
        if not (np.isfinite(labels).all() and np.isfinite(boxes).all()):
            raise UsageError(f"{where} has a number that is not finite")
        if any(label not in LABELS for label in labels):
            raise UsageError(f"{where} has labels other than 1 to {ZERO}: {', '.join(f'{v:g}' for v in labels)}")
        if (np.abs(boxes) > FARTHEST).any():
            raise UsageError(f"{where} has a box that reaches farther than {FARTHEST:,} pixels")
        if (boxes[:, 2:] <= 0).any():
            raise UsageError(f"{where} has a box without width or height")
        return Record(name, tuple(int(label) % ZERO for label in labels), boxes)

    def text(self, dataset: Any) -> str:
        """Return the text whose UTF-16 code units a dataset holds."""
        self.check_size(dataset, MOST_OF_A_RECORD)
        units = np.empty(dataset.shape)
        dataset.read(self.space(units.shape), self.all, units, self.double)
        return units.astype("<u2").tobytes().decode("utf-16-le", errors="replace")

    def column(self, dataset: Any) -> list[float]:
        """Return one number a digit, from a column of references or, where it is a plain number, from that."""
        if dataset.get_type().get_class() != self.reference_class:
            return [self.scalar(dataset)]
        self.check_size(dataset, MOST_OF_A_RECORD)
        references = np.empty(dataset.shape, dtype=self.reference)
        dataset.read(self.all, self.all, references)
        return [self.scalar(self.dereference(reference, self.file)) for reference in references.ravel()]

    def scalar(self, dataset: Any) -> float:
        """Return the one number that a dataset holds."""
        self.check_size(dataset, MOST_OF_A_RECORD)
        dataset.read(self.one, self.all, self.number, self.double)
        return float(self.number[0])

    def check_size(self, dataset: Any, most: int) -> None:
        """Check how much a dataset would take in memory before it is read.

        A dataset declares any shape without storing its numbers, and one that is compressed is unpacked chunk by chunk.

        Args:
            dataset: open; it counts as one of the objects that may be read.
            most: how many numbers it, and each of its chunks, may have.
        """
        size = dataset.get_space().get_simple_extent_npoints()
        if dataset.get_offset() is None:  # the numbers are not all in one place of the file
            layout = dataset.get_create_plist()
            if layout.get_layout() == self.chunked:
                size = max(size, prod(layout.get_chunk()))
        if size > most:
            raise UsageError(f"{self.path} is damaged: {size:,} numbers in a list where at most {most:,} can be")
        self.left -= 1
        if self.left < 0:
            raise UsageError(f"{self.path} is damaged: it refers to the same numbers again and again")


def _check_names(path: Path, records: Sequence[Record]) -> None:
    seen: set[str] = set()
    for n, record in enumerate(records, start=1):
        if not PLAIN_NAME.fullmatch(record.name):
            raise UsageError(f"{path}: record {n} names {record.name!r}, which is no plain name of a PNG file")
        if record.name in seen:
            raise UsageError(f"{path}: record {n} names {record.name} a second time")
        seen.add(record.name)
