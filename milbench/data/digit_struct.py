"""Reader of `digitStruct.mat`, SVHN's list of pictures with one box a digit (Netzer et al. 2011).

MATLAB 7.3 files are HDF5. `digitStruct/name` and `digitStruct/bbox` hold an object reference for
each picture: to the file name as UTF-16 code units, and to a group with the datasets label, left,
top, width and height. Each of these is a column of references to one number for each digit, or that
number itself where a picture has a single digit.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils import extras
from milbench._utils.files import reading
from milbench.errors import UsageError

FILE = "digitStruct.mat"
FIELDS = ("label", "left", "top", "width", "height")
ZERO = 10
"""The label of the digit 0."""
FARTHEST = 1_000_000_000
"""The largest coordinate or side of a box, in pixels: far beyond any picture, and far from overflow in a sum."""
PLAIN_NAME = re.compile(r"[^/\\\0]+\.png", re.IGNORECASE)
"""A name that leads to no other folder, whatever a file says."""


@dataclass(frozen=True, slots=True)
class Record:
    """A picture, its n digits in the order of reading, and boxes (n, 4): left, top, width, height in pixels."""

    name: str
    classes: tuple[int, ...]
    boxes: NDArray[np.float64]


def read(path: Path) -> list[Record]:
    """Return the records of a digitStruct.mat, checked, in their order. Boxes may reach beyond the picture."""
    if not path.is_file():
        raise UsageError(f"{path} not found")
    h5py = extras.load("h5py", "h5", str(path))
    records: dict[str, Record] = {}
    # An error of h5py becomes a UsageError with this text; a UsageError passes as it is.
    with reading(path, "is damaged: no HDF5 file with SVHN's records"), h5py.File(path) as file:
        name_refs = np.ravel(file["digitStruct"]["name"][()])
        group_refs = np.ravel(file["digitStruct"]["bbox"][()])
        pairs = zip(name_refs, group_refs, strict=True)
        for number, (name_ref, group_ref) in enumerate(pairs, start=1):
            record = _record(file.id, name_ref, group_ref, f"{path}: record {number}")
            if record.name in records:
                raise UsageError(f"{path}: record {number} names {record.name} a second time")
            records[record.name] = record
    if not records:
        raise UsageError(f"{path} has no records")
    return list(records.values())


def _record(file_id: Any, name_ref: Any, group_ref: Any, where: str) -> Record:
    """Return the record of one picture from the references to its name and its group of boxes.

    `file_id` is the open file in h5py's low-level interface. Messages begin with `where`.
    """
    from h5py import h5d, h5r

    code_units = _numbers(file_id, h5r.dereference(name_ref, file_id)).astype("<u2")
    text = code_units.tobytes().decode("utf-16-le", errors="replace")
    if not PLAIN_NAME.fullmatch(text):
        raise UsageError(f"{where} names {text!r}, which is no plain name of a PNG file")
    group = h5r.dereference(group_ref, file_id)
    columns = [_numbers(file_id, h5d.open(group, field.encode())) for field in FIELDS]
    digits = _labels_and_boxes(columns)
    if digits is None:
        got = {field: column.tolist() for field, column in zip(FIELDS, columns, strict=True)}
        expected = f"a label from 1 to {ZERO} and a box with width and height, at most {FARTHEST:,} pixels away"
        raise UsageError(f"{where} ({text}) has {got}, expected {expected}, for each digit")
    labels, boxes = digits
    classes = tuple(int(label) % ZERO for label in labels)
    return Record(text, classes, boxes)


def _labels_and_boxes(
    columns: Sequence[NDArray[Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the labels (n,) and boxes (n, 4) of n digits from columns of `FIELDS`; None for anything else."""
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or lengths == {0}:
        return None
    values = np.array(columns, np.float64)
    labels = values[0]
    boxes = values[1:].T
    if _are_digits(labels) and _are_boxes(boxes):
        return labels, boxes
    return None


def _are_digits(labels: NDArray[np.float64]) -> bool:
    return bool(np.isin(labels, range(1, ZERO + 1)).all())


def _are_boxes(boxes: NDArray[np.float64]) -> bool:
    """Return whether boxes (n, 4) are not too far away, and have width and height. No number may be nan."""
    is_near = np.abs(boxes) <= FARTHEST
    has_extent = boxes[:, 2:] > 0
    return bool(is_near.all() and has_extent.all())


def _numbers(file_id: Any, dataset: Any) -> NDArray[Any]:
    """Return the numbers that a dataset holds or refers to. h5py's high-level interface takes twice the time."""
    from h5py import h5r, h5s

    values = np.empty(dataset.shape, dataset.dtype)
    dataset.read(h5s.ALL, h5s.ALL, values)
    if values.dtype != object:
        return values.ravel()
    # Each number of a column is a dataset of its own, to which the column refers.
    referred = [
        _numbers(file_id, h5r.dereference(reference, file_id)) for reference in values.ravel()
    ]
    return np.array([number.item() for number in referred])
