"""Picture files of any kind as upright pictures of eight bits, bounded, and names for what is made of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from milbench.errors import UsageError

MOST_DECODED = 100_000_000
"""Pixels of a picture that is opened at all."""
MOST_SEEN = 1_000_000
"""Pixels that a network looks at; a larger picture is shrunk first. SVHN's largest have less."""
NOT_OPENED = ("EPS",)
"""Formats that Pillow passes on to another program."""


def open_picture(path: Path) -> Image.Image:
    """Return a picture as a viewer shows it: upright, mode L or RGB, transparent parts white, the first frame.

    Raises UsageError, one line that names the file, where there is none, or none that can be read.
    """
    if not path.is_file():
        raise UsageError(f"{path} is {'a folder, not a picture' if path.is_dir() else 'not there'}")
    Image.init()
    formats = [name for name in Image.ID if name not in NOT_OPENED]
    try:
        # Not by its name: Pillow 13 then maps the file, and a plain TIFF that is to be turned comes out garbled.
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")
            with Image.open(file, formats=formats) as image:
                if image.width * image.height > MOST_DECODED:
                    raise UsageError(
                        f"{path} has {image.width}x{image.height} pixels, more than {MOST_DECODED:,}: shrink it first"
                    )
                return eight_bits(ImageOps.exif_transpose(image))
    except UsageError:
        raise
    except Image.DecompressionBombError:
        raise UsageError(f"{path} has more than {MOST_DECODED:,} pixels: shrink it first") from None
    except Exception as error:  # noqa: BLE001 a damaged file raises whatever its decoder meets
        reason = "no picture that can be read" if isinstance(error, UnidentifiedImageError) else str(error)
        raise UsageError(f"{path} cannot be read as a picture: {reason or type(error).__name__}") from None


def eight_bits(image: Image.Image) -> Image.Image:
    """Return the picture in mode L or RGB. Integers of 16 bits are divided by 257, those of 32 and floats by a peak."""
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_as_bytes(np.asarray(image).astype(np.float64), image.mode))
    grey = image.mode in ("1", "L", "LA", "La")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        solid = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid)
    return image.convert("L" if grey else "RGB")


def _as_bytes(values: NDArray[np.float64], mode: str) -> NDArray[np.uint8]:
    values = np.nan_to_num(values, posinf=0, neginf=0)
    peak = float(values.max(initial=0))
    if mode.startswith("I;16") or (mode == "I" and 255 < peak < 2**16):
        white = 65535.0
    elif mode == "F" and peak <= 1:
        white = 1.0
    else:
        white = max(peak, 255.0)
    scaled: NDArray[np.uint8] = (values / white * 255).round().clip(0, 255).astype(np.uint8)
    return scaled


def bounded(width: int, height: int, most: int = MOST_SEEN) -> tuple[int, int]:
    """Return the largest size of at most so many pixels that is no larger than the given one, its proportions kept."""
    pixels = width * height
    if pixels <= most:
        return width, height
    factor = math.sqrt(most / pixels)
    size = max(int(width * factor), 1), max(int(height * factor), 1)
    if size[0] * size[1] > most:  # a strip whose shorter side is a single pixel
        size = min(size[0], most), min(size[1], most)
    return size


def grey(image: Image.Image) -> NDArray[np.uint8]:
    """Return (1, H, W)."""
    return np.array(image.convert("L"))[None]


def colours(image: Image.Image) -> NDArray[np.uint8]:
    """Return (3, H, W)."""
    return np.array(image.convert("RGB")).transpose(2, 0, 1).copy()


def names(paths: Iterable[Path]) -> list[str]:
    """Return a name for each file that no other has, also where case does not count: its own, without the ending."""
    taken: set[str] = set()
    found: list[str] = []
    for path in paths:
        name, n = path.stem, 1
        while name.casefold() in taken:
            n += 1
            name = f"{path.stem}-{n}"
        taken.add(name.casefold())
        found.append(name)
    return found
