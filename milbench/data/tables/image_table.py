"""Images with label sets from a table with a row an image, each of which is a bag."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milbench.data.tables.labels import LabelledBags, class_number, of_bags, read_labels, read_split, set_text
from milbench.data.tables.reading import NAMES, file_column, read_table, row_name, text_column
from milbench.errors import UsageError

BOXES = "boxes"
"""The column of boxes."""


@dataclass(frozen=True, eq=False)
class ImageTable(LabelledBags):
    """B images, named by their paths as the table has them.

    Args:
        files: (B,) the paths of the images.
        boxes: of each image, the classes (M,) and (M, 4) left, top, right and bottom in pixels of the upright image;
            None where the table has no such column.
    """

    files: list[Path] = field(default_factory=list)
    boxes: list[tuple[NDArray[np.int64], NDArray[np.float32]]] | None = None

    def boxed(self) -> NDArray[np.bool_]:
        """Return (B,), which images have a box of every class of theirs, as all have whose label set is empty."""
        if self.boxes is None:
            return np.zeros(len(self), bool)
        return np.array([len(classes) > 0 for classes, _ in self.boxes]) | ~self.labels.any(axis=1)

    @property
    def digest(self) -> str:
        """A digest of names, label sets, boxes and what else is known, not of the images."""
        found = hashlib.sha256(repr((self.bags, self.class_names, self.groups, self.split)).encode())
        found.update(self.labels.tobytes())
        for classes, boxes in self.boxes or ():
            found.update(repr((classes.tolist(), boxes.tolist())).encode())
        return found.hexdigest()


def is_image_table(path: Path, image: str = "image", bag: str = "bag") -> bool:
    """Return whether a table has a column of images and no column of the bags that instances belong to.

    Args:
        path: the table.
        image: the column of the images.
        bag: the column of the bags.
    """
    return image in (names := read_table(path).columns) and bag not in names


def load_image_table(path: Path, image: str = "image", labels: str = "labels", classes: str = "") -> ImageTable:
    """Read a table of images, but not the images. The last few tables stay in memory, until a file has changed.

    Args:
        path: of the table.
        image: the column with the paths of the images, relative to the folder of the table.
        labels: the column of label sets, or a pattern or list of columns with 0 and 1.
        classes: the classes in their order, with ";" between them; "": those that occur, sorted.

    Raises:
        UsageError: the table is missing or damaged, or a row is not what it should be; the message names both.
    """
    stat = path.stat() if path.is_file() else None
    return _load(path, image, labels, classes, stat and (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4)
def _load(path: Path, image: str, labels: str, classes: str, _changed: object) -> ImageTable:
    frame = read_table(path, text=(image, labels))
    names = file_column(frame, path, image, "image")
    codes = np.arange(len(names))
    label_sets, class_names, used = read_labels(path, frame, labels, classes, codes, names)
    return ImageTable(
        path, names, label_sets, class_names, [path.parent / name for name in names],
        _boxes(path, frame, label_sets, class_names),
        groups=of_bags(path, frame, "group", codes, names), split=read_split(path, frame, codes, names),
        ignored=[name for name in frame.columns if name not in {*used, *NAMES, image}],
    )  # fmt: skip


def _boxes(
    path: Path, frame: pd.DataFrame, labels: NDArray[np.bool_], names: list[str]
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]] | None:
    """Return classes (M,) and boxes (M, 4) of every image, none where its field is empty."""
    if BOXES not in frame:
        return None
    found = []
    for row, text in enumerate(text_column(frame, path, BOXES, "boxes")):
        place = row_name(path, row)
        boxes = _parsed(text, place) if text else []
        classes = [class_number(str(box[0]), names, place, "a box") for box in boxes]
        there, expected = set(classes), set(np.flatnonzero(labels[row]).tolist())
        if text and there != expected:
            raise UsageError(
                f"{place}: the boxes are of {set_text(names[c] for c in there)}, expected a box of every class of the "
                f"labels {set_text(names[c] for c in expected)} and of no other, or no boxes"
            )
        sides = np.array([box[1:] for box in boxes], np.float32).reshape(-1, 4)
        found.append((np.array(classes, np.int64), sides))
    return found


def _parsed(text: str, place: str) -> list[list[Any]]:
    """Return boxes from JSON. Raises UsageError for anything but [class, left, top, right, bottom] in pixels."""
    try:
        boxes = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: boxes cannot be read as JSON: {error}") from None
    if not isinstance(boxes, list):
        raise UsageError(f"{place}: boxes are {text[:60]!r}, expected [[class, left, top, right, bottom], ...]")
    for box in boxes:
        whole = isinstance(box, list) and len(box) == 5 and isinstance(box[0], str | int)
        if not whole or not all(type(side) in (int, float) and math.isfinite(side) for side in box[1:]):
            raise UsageError(f"{place}: the box {str(box)[:60]} is not [class, left, top, right, bottom] in pixels")
        if not (box[1] < box[3] and box[2] < box[4]):
            raise UsageError(f"{place}: the box {str(box)[:60]} is empty, expected left < right and top < bottom")
    return boxes
