"""Image files of any format as upright images with eight bits a channel, their sizes, and names for derived files."""

import itertools
import math
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from milbench.errors import UsageError

MAX_FILE_PIXELS = (
    100_000_000  # pixels; a file with more is refused, since it may not fit into memory
)
MAX_NETWORK_PIXELS = 1_000_000
"""Pixels; a larger image is shrunk to this before a network reads it. SVHN's largest images have fewer."""
REFUSED_FORMATS = ("EPS",)  # formats that Pillow decodes by starting another program


def open_image(path: Path) -> Image.Image:
    """Return an image as a viewer shows it: upright, L or RGB, on white, the first frame; UsageError: there is none."""
    if not path.is_file():
        raise UsageError(f"{path} is {'a folder, not an image' if path.is_dir() else 'not there'}")
    Image.init()
    formats = [name for name in Image.ID if name not in REFUSED_FORMATS]
    try:
        # Not by name: Pillow 13 maps a named file into memory, and garbles an uncompressed TIFF that it rotates.
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
    except Exception as error:  # noqa: BLE001 the decoder of a damaged file may raise any exception
        reason = (
            "unknown or damaged format" if isinstance(error, UnidentifiedImageError) else str(error)
        )
        raise UsageError(
            f"{path} cannot be read as an image: {reason or type(error).__name__}"
        ) from None


def eight_bits(image: Image.Image) -> Image.Image:
    """Return the image in mode L or RGB.

    Wider pixels are scaled to 0..255. White is 65,535 if they have 16 bits or, in 32 bits, the largest value is between
    255 and 65,536; it is 1 for floats up to 1, and else the larger of 255 and the largest value.
    """
    if image.mode.startswith(("I", "F")):
        finite = np.nan_to_num(np.asarray(image, np.float64), posinf=0, neginf=0)
        peak = float(finite.max(initial=0))
        white = 1.0 if image.mode == "F" and peak <= 1 else max(peak, 255.0)
        if image.mode.startswith("I;16") or (image.mode == "I" and 255 < peak < 2**16):
            white = 65535.0
        return Image.fromarray((finite / white * 255).round().clip(0, 255).astype(np.uint8))
    grey = image.mode in ("1", "L", "LA", "La")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        solid = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid)
    return image.convert("L" if grey else "RGB")


def bounded(width: int, height: int, pixels: int = MAX_NETWORK_PIXELS) -> tuple[int, int]:
    """Return the width and height, or both scaled down, each at least 1, so that their product is at most `pixels`."""
    if width * height <= pixels:
        return width, height
    factor = math.sqrt(pixels / (width * height))
    width, height = max(int(width * factor), 1), max(int(height * factor), 1)
    return min(width, pixels), min(
        height, pixels
    )  # the shorter side of a strip may be a single pixel


def grey(image: Image.Image) -> NDArray[np.uint8]:
    """Return the image in grey, (1, H, W), values 0 to 255."""
    return np.array(image.convert("L"))[None]


def colours(image: Image.Image) -> NDArray[np.uint8]:
    """Return the image in colour, (3, H, W), values 0 to 255."""
    return np.array(image.convert("RGB")).transpose(2, 0, 1).copy()


def unique_stems(paths: Iterable[Path]) -> list[str]:
    """Return the stem of each path, with -2, -3, ... if it is taken; the result is unique regardless of case."""
    stems: dict[str, str] = {}  # by their names without case
    for path in paths:
        names = itertools.chain([path.stem], (f"{path.stem}-{n}" for n in itertools.count(2)))
        name = next(name for name in names if name.casefold() not in stems)
        stems[name.casefold()] = name
    return [*stems.values()]
