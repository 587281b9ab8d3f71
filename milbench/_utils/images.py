"""Read image files of any format as upright images with eight bits a channel."""

import math
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from milbench.errors import UsageError

MAX_FILE_PIXELS = 100_000_000
"""The largest number of pixels of an image file. Larger images may not fit into memory."""
MAX_NETWORK_PIXELS = 1_000_000
"""The largest number of pixels of an image that a network reads. Larger images are shrunk to it.

The largest images of SVHN have fewer pixels.
"""
REFUSED_FORMATS = ("EPS",)
"""Formats that are not read, since Pillow starts another program to decode them."""


def open_image(path: Path) -> Image.Image:
    """Return an image as a viewer shows it: the first frame, upright, on white.

    It is in Pillow's mode L (grey) or RGB.

    Raises UsageError if there is no image, or it cannot be read.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not an image")
    if not path.is_file():
        raise UsageError(f"{path} is not there")
    Image.init()
    formats = [name for name in Image.ID if name not in REFUSED_FORMATS]
    try:
        # Pillow gets an open file, not a name: Pillow 13 maps a named file into memory, and garbles
        # an uncompressed TIFF that it rotates.
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")
            with Image.open(file, formats=formats) as image:
                if image.width * image.height > MAX_FILE_PIXELS:
                    raise Image.DecompressionBombError
                return eight_bits(ImageOps.exif_transpose(image))
    except UsageError:
        raise
    except Image.DecompressionBombError:
        raise UsageError(
            f"{path} has more than {MAX_FILE_PIXELS:,} pixels: shrink it first"
        ) from None
    except UnidentifiedImageError:
        raise UsageError(f"{path} cannot be read as an image: unknown or damaged format") from None
    except Exception as error:  # noqa: BLE001 the decoder of a damaged file may raise any exception
        reason = str(error) or type(error).__name__
        raise UsageError(f"{path} cannot be read as an image: {reason}") from None


def eight_bits(image: Image.Image) -> Image.Image:
    """Return the image in mode L (grey) or RGB, on white where it is transparent.

    Pixels of 16 or 32 bits are scaled to 0..255; see `_white_of_wide_pixels`.
    """
    if image.mode.startswith(("I", "F")):
        values = np.nan_to_num(np.asarray(image, np.float64), posinf=0, neginf=0)
        white = _white_of_wide_pixels(image.mode, float(values.max(initial=0)))
        return Image.fromarray((values / white * 255).round().clip(0, 255).astype(np.uint8))
    is_grey = image.mode in ("1", "L", "LA", "La")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        transparent = image.convert("RGBA")
        background = Image.new("RGBA", transparent.size, "white")
        image = Image.alpha_composite(background, transparent)
    return image.convert("L" if is_grey else "RGB")


def _white_of_wide_pixels(mode: str, peak: float) -> float:
    """Return the value that stands for white in an image of more than eight bits a channel.

    Formats with such pixels do not say which value is white. So it is guessed from Pillow's mode of
    the image and its largest value.
    """
    has_16_bits = mode.startswith("I;16")
    # Pillow reads some files of 16 bits into pixels of 32 bits.
    may_have_16_bits = mode == "I" and 255 < peak < 2**16
    if has_16_bits or may_have_16_bits:
        return 65535.0
    # Floats are usually from 0 to 1.
    if mode == "F" and peak <= 1:
        return 1.0
    return max(peak, 255.0)


def bounded(width: int, height: int, pixels: int = MAX_NETWORK_PIXELS) -> tuple[int, int]:
    """Return width and height, scaled down to at most `pixels` pixels. Both are at least 1."""
    if width * height <= pixels:
        return width, height
    factor = math.sqrt(pixels / (width * height))
    width = max(int(width * factor), 1)
    height = max(int(height * factor), 1)
    # The shorter side of a narrow strip may have been rounded up to 1: the longer is then too long.
    return min(width, pixels), min(height, pixels)


def grey(image: Image.Image) -> NDArray[np.uint8]:
    """Return the image in grey, (1, H, W), values 0 to 255."""
    return np.array(image.convert("L"))[None]


def colours(image: Image.Image) -> NDArray[np.uint8]:
    """Return the image in colour, (3, H, W), values 0 to 255."""
    return np.array(image.convert("RGB")).transpose(2, 0, 1).copy()


def unique_stems(paths: Iterable[Path]) -> list[str]:
    """Return the stem of each path, with -2, -3, ... added where an earlier path has the same stem.

    The stems are unique even if case is ignored.
    """
    stems: list[str] = []
    # Some file systems do not tell names apart that differ only in case.
    taken: set[str] = set()
    for path in paths:
        stem = path.stem
        number = 1
        while stem.casefold() in taken:
            number += 1
            stem = f"{path.stem}-{number}"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems
