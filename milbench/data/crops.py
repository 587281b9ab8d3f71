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

CROP_SIDE = 64  # height and width of a crop, in pixels
TIGHT = 1.3  # side of a `tight` crop, relative to the union of the boxes: 30 % larger, as in I. Goodfellow et al. 2014

CropVariant = Literal[
    "paper", "tight"
]  # how the size depends on the number of digits, see `crop_enlargement`
Protocol = Literal["ours", "paper"]
"""How house numbers are cropped, resized and put into batches: by our conventions, or by those of the programs of
X.-L. Li, arXiv:1811.12346. `window`, `milbench.families.augmentation.augment` and
`milbench.families.street_numbers.StreetNumbers.train_batches` say where the two differ."""
Window = tuple[
    int, int, int, int
]  # left, top, right and bottom of a part of a picture, in its pixels


@dataclass(frozen=True, slots=True)
class Crops:
    """The crops of a folder, in the order of its digitStruct.mat, mapped from files: copy before a change."""

    crops: NDArray[np.uint8]  # (N, 64, 64, 3)
    classes: NDArray[
        np.int8
    ]  # (N, M), the digits in the order of reading, -1 where a number has fewer than M
    boxes: NDArray[
        np.float32
    ]  # (N, M, 4), (left, top, right, bottom) in pixels of the crop, clipped to it; else 0
    digest: str  # SHA-256 of the pictures and their records, independent of dates and of how they are cropped

    def __len__(self) -> int:
        return len(self.crops)


def crop_enlargement(variant: CropVariant, digits: int) -> float:
    """Return the side of the crop relative to the longer side of the union of the boxes.

    By `paper` 1 + (6 - n) / 7 for n digits (X.-L. Li, arXiv:1811.12346; SVHN has at most 6, and more count as 6), at
    test time too; by `tight` the same for all.
    """
    return TIGHT if variant == "tight" else 1 + (6 - min(digits, 6)) / 7


def window(
    record: Record, width: int, height: int, variant: CropVariant, protocol: Protocol = "ours"
) -> Window:
    """Return the part of a picture that a crop shows: a square around all boxes, clipped, but never empty.

    The square is centred on the union of the boxes and rounded to whole pixels. By the protocol `paper` a box is
    clipped to the picture before, and its extent is the number of its last pixel less that of its first, one less.
    """
    if protocol == "paper":
        return _published_window(record, width, height, variant)
    (x0, y0), (x1, y1) = corners(record)[:, :2].min(axis=0), corners(record)[:, 2:].max(axis=0)
    half = crop_enlargement(variant, len(record.classes)) * max(x1 - x0, y1 - y0) / 2
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    shown_left, shown_top = max(round(x - half), 0), max(round(y - half), 0)
    shown_right, shown_bottom = min(round(x + half), width), min(round(y + half), height)
    return shown_left, shown_top, max(shown_right, shown_left + 1), max(shown_bottom, shown_top + 1)


def _published_window(record: Record, width: int, height: int, variant: CropVariant) -> Window:
    """Return the window by the published convention. Pixels are numbered from 1 here, and the last one is shown."""
    boxes, counts = corners(record), np.array([width, height])
    begin, end = (
        np.maximum(boxes[:, :2] + 1, 1).min(axis=0),
        np.minimum(boxes[:, 2:], counts).max(axis=0),
    )  # x and y
    centre, half = (
        (begin + end) / 2,
        crop_enlargement(variant, len(record.classes)) * (end - begin).max() / 2,
    )
    first, last = (
        np.floor(centre + side + 0.5).astype(int) for side in (-half, half)
    )  # halves are rounded up
    first = first.clip(1, counts)
    last = np.maximum(
        np.minimum(last, counts), first
    )  # a box may overlap the picture by less than a pixel
    return int(first[0]) - 1, int(first[1]) - 1, int(last[0]), int(last[1])


def corners(record: Record) -> NDArray[np.float64]:
    """Return the boxes (n, 4) of a record as (left, top, right, bottom), in pixels of the picture."""
    return np.hstack([record.boxes[:, :2], record.boxes[:, :2] + record.boxes[:, 2:]])


def crop(
    record: Record, picture: Image, variant: CropVariant, protocol: Protocol = "ours"
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return a window (64, 64, 3), and the boxes (n, 4) clipped to it; ValueError for one outside the picture."""
    left, top, right, bottom = corners(record).T
    outside = (right <= 0) | (bottom <= 0) | (left >= picture.width) | (top >= picture.height)
    if outside.any():
        which = f"box {int(outside.argmax()) + 1} of {len(outside)}"
        raise ValueError(
            f"has {picture.width}x{picture.height} pixels, and {which} in {FILE} is wholly outside"
        )
    shown = window(record, *picture.size, variant, protocol)
    cut = picture.convert("RGB").crop(shown).resize((CROP_SIDE, CROP_SIDE), Resampling.BICUBIC)
    sides = np.tile([shown[2] - shown[0], shown[3] - shown[1]], 2)
    boxes = (corners(record) - [*shown[:2]] * 2) * CROP_SIDE / sides
    return np.asarray(cut), boxes.clip(0, CROP_SIDE).astype(np.float32)


def load(folder: Path, variant: CropVariant, protocol: Protocol = "ours") -> Crops:
    """Return the crops of all pictures of a folder with a digitStruct.mat, made first if there is no current cache."""
    name = f"{folder.name}-{variant}" + ("" if protocol == "ours" else f"-by-{protocol}")

    def crop_record(record: Record) -> tuple[NDArray[np.uint8], NDArray[np.float32], str]:
        path = folder / record.name
        picture = open_image(path)
        try:
            return *crop(record, picture, variant, protocol), read_digest(path, "sha256")
        except ValueError as error:
            raise UsageError(f"{path} {error}") from None

    def write(new: Path, declare: DeclareInputs) -> Fields:
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
            for n, (record, (pixels, moved, file_digest)) in enumerate(
                zip(records, cropped, strict=True)
            ):
                file.write(pixels.tobytes())
                count = len(record.classes)
                classes[n, :count], boxes[n, :count] = record.classes, moved
                digest.update(f"{record.name} {record.classes} {file_digest} ".encode())
                digest.update(record.boxes.astype("<f8").tobytes())
        return {"classes": classes, "boxes": boxes, "digest": digest.hexdigest()}

    return Crops(**cached_arrays(cache_place(folder, "crops") / name, folder, write, "c"))
