"""Crops of 64x64 pixels from pictures of house numbers, with the boxes of the digits."""

from __future__ import annotations

import io
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from milbench.data.digit_struct import Record
from milbench.errors import UsageError

CROP_SIDE = 64
"""Height and width of a crop, in pixels."""
MOST_PIXELS = 50_000_000
"""Largest picture that is decoded; SVHN's largest have less than a million pixels."""
SIGNATURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
"""The first bytes of a PNG file; width and height follow, four bytes each, big-endian."""
TIGHT = 1.3
"""Side of a `tight` crop, relative to the union of the boxes: 30 % larger, as in I. Goodfellow et al. 2014."""

CropVariant = Literal["paper", "tight"]
"""How the size of the crop depends on the number of digits, see `crop_enlargement`."""
Protocol = Literal["ours", "paper"]
"""How house numbers are cropped, resized and put into batches: by our conventions, or by those of the programs of
X.-L. Li, arXiv:1811.12346. `window`, `milbench.families.augmentation.augment` and
`milbench.families.street_numbers.StreetNumbers.train_batches` say where the two differ."""
Window = tuple[int, int, int, int]
"""Left, top, right and bottom of a part of a picture, in its pixels."""


@dataclass(frozen=True, slots=True)
class Crop:
    """One crop.

    Args:
        pixels: (64, 64, 3) uint8.
        window: the part of the picture that is shown.
        boxes: (n, 4) float32, (left, top, right, bottom) of the digits in pixels of the crop, clipped to it.
    """

    pixels: NDArray[np.uint8]
    window: Window
    boxes: NDArray[np.float32]


def crop_parameters(variant: CropVariant, protocol: Protocol = "ours") -> dict[str, float | str]:
    """Return every parameter of the crop; a cache made with other parameters is outdated."""
    parameters: dict[str, float | str] = {"variant": variant, "side": CROP_SIDE}
    if variant == "tight":
        parameters["margin"] = TIGHT
    if protocol != "ours":  # not named by caches that were made before there was another
        parameters["protocol"] = protocol
    return parameters


def crop_enlargement(variant: CropVariant, digits: int) -> float:
    """Return the side of the crop relative to the longer side of the union of the boxes.

    Args:
        variant: `paper`: 1 + (6 - n) / 7 for n digits (X.-L. Li, arXiv:1811.12346; SVHN has at most 6, and more count
            as 6). The size then depends on the number of digits, at test time too. `tight`: the same for all.
        digits: n, the number of digits.

    Examples:
        >>> [round(crop_enlargement("paper", n), 2) for n in (1, 3, 6, 7)]
        [1.71, 1.43, 1.0, 1.0]
        >>> crop_enlargement("tight", 1)
        1.3
    """
    return TIGHT if variant == "tight" else 1 + (6 - min(digits, 6)) / 7


def window(record: Record, width: int, height: int, variant: CropVariant, protocol: Protocol = "ours") -> Window:
    """Return the part of a picture that a crop shows: a square around all boxes, clipped to the picture.

    The square is centred on the union of the boxes and rounded to whole pixels. By the protocol `paper` a box is
    clipped to the picture before, and its extent is the number of its last pixel less that of its first, one less than
    in ours.

    Args:
        record: the boxes. Each overlaps the picture; some may reach beyond it, as some of SVHN's do.
        width: of the picture, in pixels.
        height: of the picture, in pixels.
        variant: how the size of the square depends on the number of digits.
        protocol: whose convention is followed.

    Returns:
        (left, top, right, bottom) in pixels of the picture, right and bottom exclusive; one pixel at least each way.
    """
    if protocol == "paper":
        return _published_window(record, width, height, variant)
    left, top, right, bottom = corners(record).T
    x0, y0, x1, y1 = left.min(), top.min(), right.max(), bottom.max()
    half = crop_enlargement(variant, len(record.classes)) * max(x1 - x0, y1 - y0) / 2
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    shown_left, shown_top = max(round(x - half), 0), max(round(y - half), 0)
    shown_right, shown_bottom = min(round(x + half), width), min(round(y + half), height)
    return shown_left, shown_top, max(shown_right, shown_left + 1), max(shown_bottom, shown_top + 1)


def _published_window(record: Record, width: int, height: int, variant: CropVariant) -> Window:
    """Return the window by the published convention. Pixels are numbered from 1 here, and the last one is shown."""
    left, top, right, bottom = corners(record).T
    first_x, last_x = np.maximum(left + 1, 1).min(), np.minimum(right, width).max()
    first_y, last_y = np.maximum(top + 1, 1).min(), np.minimum(bottom, height).max()
    half = crop_enlargement(variant, len(record.classes)) * max(last_x - first_x, last_y - first_y) / 2
    shown_left, shown_right = _pixels_around((first_x + last_x) / 2, half, width)
    shown_top, shown_bottom = _pixels_around((first_y + last_y) / 2, half, height)
    return shown_left, shown_top, shown_right, shown_bottom


def _pixels_around(centre: float, half: float, count: int) -> tuple[int, int]:
    """Return the first pixel, numbered from 0, and the one behind the last of those from `centre` - to + `half`.

    Args:
        centre: the middle, where pixels are numbered from 1 to `count`.
        half: half of the side; below 0 where a box overlaps the picture by less than a pixel.
        count: of the pixels of the picture along this side.
    """
    first, last = math.floor(centre - half + 0.5), math.floor(centre + half + 0.5)  # halves are rounded up
    first = min(max(first, 1), count)
    return first - 1, max(min(last, count), first)


def corners(record: Record) -> NDArray[np.float64]:
    """Return the boxes (n, 4) of a record as (left, top, right, bottom), in pixels of the picture."""
    return np.hstack([record.boxes[:, :2], record.boxes[:, :2] + record.boxes[:, 2:]])


def boxes_in(shown: Window, record: Record) -> NDArray[np.float32]:
    """Return the boxes (n, 4) of a record as (left, top, right, bottom) in pixels of the crop, clipped to it."""
    left, top, right, bottom = shown
    moved = (corners(record) - [left, top, left, top]) * CROP_SIDE / np.tile([right - left, bottom - top], 2)
    clipped: NDArray[np.float32] = moved.clip(0, CROP_SIDE).astype(np.float32)
    return clipped


def crop(picture: bytes, path: Path, record: Record, variant: CropVariant, protocol: Protocol = "ours") -> Crop:
    """Decode the bytes of a PNG file and crop the picture.

    Args:
        picture: the bytes.
        path: the file they were read from, for messages.
        record: the digits and their boxes.
        variant: how the size of the crop depends on the number of digits.
        protocol: whose convention is followed, see `window`.

    Returns:
        The square crop, with the boxes in its pixels.

    Raises:
        UsageError: the file is no PNG, has too many pixels, or a box is wholly outside of the picture.
    """
    from PIL import Image

    from milbench._utils.images import eight_bits

    _check_size(picture, path)
    try:
        with Image.open(io.BytesIO(picture), formats=["PNG"]) as image:
            _check_boxes(path, record, *image.size)
            shown = window(record, *image.size, variant, protocol)
            cut = eight_bits(image).convert("RGB").crop(shown).resize((CROP_SIDE, CROP_SIDE), Image.Resampling.BICUBIC)
    except UsageError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a PNG picture: {error}") from error
    return Crop(np.asarray(cut), shown, boxes_in(shown, record))


def _check_size(picture: bytes, path: Path) -> None:
    """Check the first bytes before Pillow opens the picture.

    Pillow only warns of large pictures, and its error for bytes that are no picture names a buffer and not the file.
    """
    if len(picture) < len(SIGNATURE) + 8 or not picture.startswith(SIGNATURE):
        raise UsageError(f"{path} cannot be read as a PNG picture: it does not begin as one")
    width, height = struct.unpack(">II", picture[len(SIGNATURE) :][:8])
    if width * height > MOST_PIXELS:
        raise UsageError(f"{path} has {width}x{height} pixels, more than {MOST_PIXELS:,}")


def _check_boxes(path: Path, record: Record, width: int, height: int) -> None:
    left, top, right, bottom = corners(record).T
    outside = (right <= 0) | (bottom <= 0) | (left >= width) | (top >= height)
    if outside.any():
        which = f"box {int(outside.argmax()) + 1} of {len(outside)}"
        raise UsageError(f"{path} has {width}x{height} pixels, and {which} in digitStruct.mat is wholly outside")
