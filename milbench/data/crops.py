"""Crops of 64x64 pixels from SVHN's pictures of house numbers, with a box for each digit.

They are made once, cached, and memory-mapped from the cache.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image, Resampling

from milbench._utils.digests import read_digest
from milbench._utils.images import open_image
from milbench.data.array_cache import (
    DeclareInputs,
    Fields,
    cache_place,
    cached_arrays,
    write_header,
)
from milbench.data.digit_struct import FILE, Record, read
from milbench.data.in_order import in_order
from milbench.errors import UsageError

CROP_SIDE = 64
"""Height and width of a crop, in pixels."""
TIGHT = 1.3
"""The side of a `tight` crop, relative to the smallest rectangle around all boxes.

It is 30 % larger, as in I. Goodfellow et al. 2014.
"""
_MOST_DIGITS = 6
"""The most digits that a number of SVHN has."""

CropVariant = Literal["paper", "tight"]
"""How the size of a crop depends on the number of digits, see `crop_enlargement`."""
Protocol = Literal["ours", "paper"]
"""How house numbers are cropped, resized and put into batches.

`ours` is the way of milbench, and `paper` is the way of the programs of X.-L. Li, arXiv:1811.12346.
The differences are explained in `window`, in `milbench.families.augmentation.augment`, and in
`milbench.families.street_numbers.StreetNumbers.train_batches`.
"""
Window = tuple[int, int, int, int]
"""Left, top, right and bottom of a part of a picture, in pixels of the picture."""


@dataclass(frozen=True, slots=True)
class Crops:
    """The crops of a folder's pictures, in the order of its digitStruct.mat.

    The crops are memory-mapped. Copy an array before you change it.
    """

    crops: NDArray[np.uint8]
    """(N, 64, 64, 3)"""
    classes: NDArray[np.int8]
    """(N, M), the digits of each number in the order of reading, then -1 if it has fewer than M."""
    boxes: NDArray[np.float32]
    """(N, M, 4), left, top, right and bottom of each digit's box, in pixels of the crop.

    Boxes are clipped to the crop. They are 0 where a number has fewer than M digits.
    """
    digest: str
    """SHA-256 of the pictures and their records. It does not depend on how they are cropped."""

    def __len__(self) -> int:
        return len(self.crops)


def crop_enlargement(variant: CropVariant, digits: int) -> float:
    """Return the side of a crop, relative to the longer side of the rectangle around all boxes.

    By the variant `paper` this is 1 + (6 - n) / 7 for n digits, in test pictures as well
    (X.-L. Li, arXiv:1811.12346). More than 6 digits count as 6. By the variant `tight` it is 1.3
    for any number of digits.
    """
    if variant == "tight":
        return TIGHT
    return 1 + (_MOST_DIGITS - min(digits, _MOST_DIGITS)) / 7


def window(
    record: Record, width: int, height: int, variant: CropVariant, protocol: Protocol = "ours"
) -> Window:
    """Return the part of a picture that a crop shows: a square around all boxes.

    The square is centred on the smallest rectangle around all boxes, rounded to whole pixels and
    clipped to the picture. It is never empty.

    By the protocol `paper`, boxes are first clipped to the picture. Also, a box from pixel a to
    pixel b has the length b - a, one less than the number of its pixels.
    """
    if protocol == "paper":
        return _published_window(record, width, height, variant)
    boxes = corners(record)
    left, top = boxes[:, :2].min(axis=0)
    right, bottom = boxes[:, 2:].max(axis=0)
    longer_side = max(right - left, bottom - top)
    half = crop_enlargement(variant, len(record.classes)) * longer_side / 2
    x = (left + right) / 2
    y = (top + bottom) / 2
    shown_left = max(round(x - half), 0)
    shown_top = max(round(y - half), 0)
    # Boxes of less than a pixel would leave nothing to show.
    shown_right = max(min(round(x + half), width), shown_left + 1)
    shown_bottom = max(min(round(y + half), height), shown_top + 1)
    return shown_left, shown_top, shown_right, shown_bottom


def _published_window(record: Record, width: int, height: int, variant: CropVariant) -> Window:
    """Return the window by the protocol `paper`.

    Its programs number pixels from 1, and a window includes its last pixel.
    """
    boxes = corners(record)
    # Each array below has two numbers: one for x, one for y.
    size = np.array([width, height])
    begin = np.maximum(boxes[:, :2] + 1, 1).min(axis=0)
    end = np.minimum(boxes[:, 2:], size).max(axis=0)
    centre = (begin + end) / 2
    half = crop_enlargement(variant, len(record.classes)) * (end - begin).max() / 2
    first = _round_half_up(centre - half).clip(1, size)
    # If a box overlaps the picture by less than a pixel, the window would be empty.
    last = np.maximum(np.minimum(_round_half_up(centre + half), size), first)
    return int(first[0]) - 1, int(first[1]) - 1, int(last[0]), int(last[1])


def _round_half_up(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round to the nearest integers, and halves up; numpy would round halves to even integers."""
    return np.floor(values + 0.5).astype(int)


def corners(record: Record) -> NDArray[np.float64]:
    """Return the boxes (n, 4) of a record as left, top, right, bottom, in pixels of the picture."""
    left_top = record.boxes[:, :2]
    width_height = record.boxes[:, 2:]
    return np.hstack([left_top, left_top + width_height])


def crop(
    record: Record, picture: Image, variant: CropVariant, protocol: Protocol = "ours"
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the crop (64, 64, 3) of a picture, and the boxes (n, 4) in pixels of the crop.

    Boxes are clipped to the crop. Raises ValueError for a box outside the picture.
    """
    _check_boxes_are_inside(record, picture)
    shown = window(record, *picture.size, variant, protocol)
    cut = picture.convert("RGB").crop(shown).resize((CROP_SIDE, CROP_SIDE), Resampling.BICUBIC)
    left, top, right, bottom = shown
    # Boxes are left, top, right and bottom: these arrays have x, y, x and y.
    origin = np.array([left, top, left, top])
    sides = np.array([right - left, bottom - top, right - left, bottom - top])
    boxes = (corners(record) - origin) * CROP_SIDE / sides
    return np.asarray(cut), boxes.clip(0, CROP_SIDE).astype(np.float32)


def _check_boxes_are_inside(record: Record, picture: Image) -> None:
    """Raise ValueError where a box of a record lies wholly outside the picture."""
    left, top, right, bottom = corners(record).T
    is_above_or_left = (right <= 0) | (bottom <= 0)
    is_below_or_right = (left >= picture.width) | (top >= picture.height)
    is_outside = is_above_or_left | is_below_or_right
    if is_outside.any():
        which = f"box {int(is_outside.argmax()) + 1} of {len(is_outside)}"
        raise ValueError(
            f"has {picture.width}x{picture.height} pixels, and {which} in {FILE} is wholly outside"
        )


def load(folder: Path, variant: CropVariant, protocol: Protocol = "ours") -> Crops:
    """Return the crops of all pictures in a folder, which has a digitStruct.mat.

    They are read from a cache, which is made first where there is none or the files have changed.
    Raises UsageError for a file that is missing or damaged.
    """
    name = f"{folder.name}-{variant}"
    if protocol != "ours":
        name += f"-by-{protocol}"

    def crop_record(record: Record) -> tuple[NDArray[np.uint8], NDArray[np.float32], str]:
        path = folder / record.name
        picture = open_image(path)
        try:
            return *crop(record, picture, variant, protocol), read_digest(path, "sha256")
        except ValueError as error:
            raise UsageError(f"{path} {error}") from None

    def write(new: Path, declare: DeclareInputs) -> Fields:
        # Files are declared before they are read, so that a change during the reading is noticed.
        declare([FILE])
        records = read(folder / FILE)
        declare([record.name for record in records])
        most = max(len(record.classes) for record in records)
        classes = np.full((len(records), most), -1, dtype=np.int8)
        boxes = np.zeros((len(records), most, 4), dtype=np.float32)
        digest = hashlib.sha256()
        cropped = in_order(crop_record, records, f"cropping {folder.name}")
        with (new / "crops.npy").open("wb") as file:
            write_header(file, np.dtype(np.uint8), (len(records), CROP_SIDE, CROP_SIDE, 3))
            for number, (record, made) in enumerate(zip(records, cropped, strict=True)):
                pixels, boxes_in_crop, file_digest = made
                file.write(pixels.tobytes())
                count = len(record.classes)
                classes[number, :count] = record.classes
                boxes[number, :count] = boxes_in_crop
                digest.update(f"{record.name} {record.classes} {file_digest} ".encode())
                digest.update(record.boxes.astype("<f8").tobytes())
        return {"classes": classes, "boxes": boxes, "digest": digest.hexdigest()}

    place = cache_place(folder, "crops") / name
    return Crops(**cached_arrays(place, folder, write, "c"))
