"""Reader of `digitStruct.mat`, SVHN's list of pictures with a box for each digit.

SVHN is by Netzer et al. 2011. The file is one of MATLAB 7.3, which is HDF5. Its arrays
`digitStruct/name` and `digitStruct/bbox` hold an object reference for each picture:

- a name refers to the name of the picture, as UTF-16 code units;
- a bbox refers to a group with the datasets label, left, top, width and height.

Each of these five is a column with a reference for each digit, which leads to one number. Where a
picture has a single digit, the dataset is the number itself.
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
"""What the file holds for each digit: its label, and its box in pixels."""
ZERO = 10
"""The label of the digit 0."""
FARTHEST = 1_000_000_000
"""The largest coordinate or side of a box, in pixels.

It is far beyond any picture, and so small that sums do not overflow.
"""
PLAIN_NAME = re.compile(r"[^/\\\0]+\.png", re.IGNORECASE)
"""The name of a PNG file without a path. A damaged list thus cannot lead to another folder."""


@dataclass(frozen=True, slots=True)
class Record:
    """A picture with its n digits."""

    name: str
    """The name of its file."""
    classes: tuple[int, ...]
    """The n digits in the order of reading, each from 0 to 9."""
    boxes: NDArray[np.float64]
    """(n, 4), left, top, width and height of each digit's box, in pixels of the picture."""


def read(path: Path) -> list[Record]:
    """Return the records of a digitStruct.mat, in their order. Boxes may reach beyond the picture.

    Raises UsageError for a file that is missing or damaged.
    """
    if not path.is_file():
        raise UsageError(f"{path} not found")
    h5py = extras.load("h5py", "h5", str(path))
    records: dict[str, Record] = {}
    # `reading` turns an error of h5py into a UsageError with this text. It leaves a UsageError
    # as it is.
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

    Args:
        file_id: the open file in h5py's low-level interface, which takes half the time of
            the high-level one.
        name_ref: refers to the name.
        group_ref: refers to the group of boxes.
        where: the beginning of messages: the file and the number of the record.
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
        raise UsageError(
            f"{where} ({text}) has {got}, expected a label from 1 to {ZERO} and a box with width "
            f"and height, at most {FARTHEST:,} pixels away, for each digit"
        )
    labels, boxes = digits
    classes = tuple(int(label) % ZERO for label in labels)
    return Record(text, classes, boxes)


def _labels_and_boxes(
    columns: Sequence[NDArray[Any]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the labels (n,) and boxes (n, 4) of n digits, None where they make no sense.

    `columns` are the numbers of each of `FIELDS`.
    """
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
    """Return whether boxes (n, 4) are near enough, and have a width and height above 0.

    A comparison with nan is False, so that a box with nan is refused.
    """
    is_near = np.abs(boxes) <= FARTHEST
    has_extent = boxes[:, 2:] > 0
    return bool(is_near.all() and has_extent.all())


def _numbers(file_id: Any, dataset: Any) -> NDArray[Any]:
    """Return the numbers that a dataset holds or refers to."""
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
