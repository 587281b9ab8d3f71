"""Crops of 64x64 pixels from pictures of house numbers, with the boxes of the digits: made once, cached and mapped."""

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
"""The side of a `tight` crop, relative to the union of the boxes: 30 % larger, as in I. Goodfellow et al. 2014."""
_MOST_DIGITS = 6
"""The most digits that a number of SVHN has."""

CropVariant = Literal["paper", "tight"]
"""How the size depends on the number of digits, see `crop_enlargement`."""
Protocol = Literal["ours", "paper"]
"""How house numbers are cropped, resized and put into batches: by our conventions, or by those of the programs of
X.-L. Li, arXiv:1811.12346. `window`, `milbench.families.augmentation.augment` and
`milbench.families.street_numbers.StreetNumbers.train_batches` say where the two differ."""
Window = tuple[int, int, int, int]
"""Left, top, right and bottom of a part of a picture, in its pixels."""


@dataclass(frozen=True, slots=True)
class Crops:
    """The crops of a folder, in the order of its digitStruct.mat, mapped from files: copy before a change."""

    crops: NDArray[np.uint8]
    """(N, 64, 64, 3)"""
    classes: NDArray[np.int8]
    """(N, M), the digits in the order of reading, -1 where a number has fewer than M."""
    boxes: NDArray[np.float32]
    """(N, M, 4), (left, top, right, bottom) in pixels of the crop, clipped to it; 0 where a number has fewer."""
    digest: str
    """SHA-256 of the pictures and their records, independent of dates and of how they are cropped."""

    def __len__(self) -> int:
        return len(self.crops)


def crop_enlargement(variant: CropVariant, digits: int) -> float:
    """Return the side of the crop relative to the longer side of the union of the boxes.

    By `paper` 1 + (6 - n) / 7 for n digits (X.-L. Li, arXiv:1811.12346; SVHN has at most 6, and
    more count as 6), at test time too; by `tight` the same for all.
    """
    if variant == "tight":
        return TIGHT
    return 1 + (_MOST_DIGITS - min(digits, _MOST_DIGITS)) / 7


def window(
    record: Record, width: int, height: int, variant: CropVariant, protocol: Protocol = "ours"
) -> Window:
    """Return the part of a picture that a crop shows: a square around all boxes, clipped, but never empty.

    The square is centred on the union of the boxes and rounded to whole pixels. By the protocol
    `paper` boxes are clipped to the picture first, and a box from its first pixel to its last one
    counts as one pixel shorter: its extent is the difference of the numbers of these pixels.
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
    """Return the window by the published convention, which numbers pixels from 1 and shows the last one, too."""
    boxes = corners(record)
    # Each array below has a number for x, and one for y.
    size = np.array([width, height])
    begin = np.maximum(boxes[:, :2] + 1, 1).min(axis=0)
    end = np.minimum(boxes[:, 2:], size).max(axis=0)
    centre = (begin + end) / 2
    half = crop_enlargement(variant, len(record.classes)) * (end - begin).max() / 2
    first = _round_half_up(centre - half).clip(1, size)
    # A box may overlap the picture by less than a pixel.
    last = np.maximum(np.minimum(_round_half_up(centre + half), size), first)
    return int(first[0]) - 1, int(first[1]) - 1, int(last[0]), int(last[1])


def _round_half_up(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the nearest integers, the larger one of two; numpy would take the even one."""
    return np.floor(values + 0.5).astype(int)


def corners(record: Record) -> NDArray[np.float64]:
    """Return the boxes (n, 4) of a record as (left, top, right, bottom), in pixels of the picture."""
    left_top = record.boxes[:, :2]
    width_height = record.boxes[:, 2:]
    return np.hstack([left_top, left_top + width_height])


def crop(
    record: Record, picture: Image, variant: CropVariant, protocol: Protocol = "ours"
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return a window (64, 64, 3), and the boxes (n, 4) clipped to it; ValueError for one outside the picture."""
    _check_boxes_are_inside(record, picture)
    shown = window(record, *picture.size, variant, protocol)
    cut = picture.convert("RGB").crop(shown).resize((CROP_SIDE, CROP_SIDE), Resampling.BICUBIC)
    left, top, right, bottom = shown
    # Each is for left, top, right and bottom of a box.
    origin = np.array([left, top, left, top])
    sides = np.array([right - left, bottom - top, right - left, bottom - top])
    boxes = (corners(record) - origin) * CROP_SIDE / sides
    return np.asarray(cut), boxes.clip(0, CROP_SIDE).astype(np.float32)


def _check_boxes_are_inside(record: Record, picture: Image) -> None:
    """Raise ValueError where a box of a record has no part of the picture in it."""
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
    """Return the crops of all pictures of a folder with a digitStruct.mat, made first if there is no current cache."""
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
        # Files are declared before they are read, so that a change meanwhile is not missed.
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
