"""From a picture of a house number to a crop of 64x64 pixels with the boxes of its digits."""

from __future__ import annotations

import io
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
"""Of a picture that is decoded; SVHN's largest have less than a million."""
SIGNATURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
"""How a PNG file begins; its width and height follow, of four bytes each."""
TIGHT = 1.3
"""`tight` shows the square around the union of the boxes, 30 % larger, as I. Goodfellow et al. 2014 enlarge theirs."""

Variant = Literal["paper", "tight"]
Window = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Crop:
    """One crop.

    pixels: (64, 64, 3) uint8.
    window: left, top, right and bottom of what is shown, in pixels of the picture.
    boxes: (n, 4) float32, (left, top, right, bottom) of the digits in pixels of the crop, clipped to it.
    """

    pixels: NDArray[np.uint8]
    window: Window
    boxes: NDArray[np.float32]


def crop_parameters(variant: Variant) -> dict[str, float | str]:
    """Return all that decides how a picture is cropped: crops with other parameters are other crops."""
    return {"variant": variant, "side": CROP_SIDE, **({"margin": TIGHT} if variant == "tight" else {})}


def crop_enlargement(variant: Variant, digits: int) -> float:
    """Return how many times the longer side of the union box the crop's side is.

    paper: 1 + (6 - n) / 7 for n digits (X.-L. Li, arXiv:1811.12346; SVHN has at most 6, and more count as 6): at test
        time too the crop tells how many digits there are.
    tight: the same for every number, so that it tells nothing.
    """
    return TIGHT if variant == "tight" else 1 + (6 - min(digits, 6)) / 7


def window(record: Record, width: int, height: int, variant: Variant) -> Window:
    """Return what to show of a picture of this size: a square around all boxes, clipped to the picture.

    It is centred on the union of the boxes and rounded to whole pixels. Boxes may reach beyond the picture, as some of
    SVHN's do, but each shows there in part.
    """
    left, top, right, bottom = corners(record).T
    x0, y0, x1, y1 = left.min(), top.min(), right.max(), bottom.max()
    half = crop_enlargement(variant, len(record.classes)) * max(x1 - x0, y1 - y0) / 2
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    shown_left, shown_top = max(round(x - half), 0), max(round(y - half), 0)
    shown_right, shown_bottom = min(round(x + half), width), min(round(y + half), height)
    return shown_left, shown_top, max(shown_right, shown_left + 1), max(shown_bottom, shown_top + 1)


def corners(record: Record) -> NDArray[np.float64]:
    """Return the boxes (n, 4) as (left, top, right, bottom)."""
    return np.hstack([record.boxes[:, :2], record.boxes[:, :2] + record.boxes[:, 2:]])


def boxes_in(shown: Window, record: Record) -> NDArray[np.float32]:
    """Return the boxes (n, 4) of a record in pixels of the crop that shows this window, clipped to it."""
    left, top, right, bottom = shown
    moved = (corners(record) - [left, top, left, top]) * CROP_SIDE / np.tile([right - left, bottom - top], 2)
    clipped: NDArray[np.float32] = moved.clip(0, CROP_SIDE).astype(np.float32)
    return clipped


def crop(picture: bytes, path: Path, record: Record, variant: Variant) -> Crop:
    """Decode a PNG file, given by its bytes, and crop it.

    Raises UsageError, naming `path`, where it is no PNG, has too many pixels or a box wholly outside.
    """
    from PIL import Image

    from milbench._utils.images import eight_bits

    _check_size(picture, path)
    try:
        with Image.open(io.BytesIO(picture), formats=["PNG"]) as image:
            _check_boxes(path, record, *image.size)
            shown = window(record, *image.size, variant)
            cut = eight_bits(image).convert("RGB").crop(shown).resize((CROP_SIDE, CROP_SIDE), Image.Resampling.BICUBIC)
    except UsageError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a PNG picture: {error}") from error
    return Crop(np.asarray(cut), shown, boxes_in(shown, record))


def _check_size(picture: bytes, path: Path) -> None:
    """Look at the first bytes alone: Pillow warns of large pictures, and of those that are none it names the buffer."""
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
