"""Images that are fitted into squares of one size, and where their boxes and positions are then."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from milbench._utils.images import colours, grey, open_image


def decode_image(path: Path, size: int, channels: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Return the pixels (channels, size, size) of an image fitted into a square, and its size. Raises UsageError."""
    image = open_image(path)
    square = fit_image(image.convert("L" if channels == 1 else "RGB"), size)
    return (grey if channels == 1 else colours)(square), image.size


def image_size(path: Path) -> tuple[int, int]:
    """Return width and height of an image as `decode_image` gives them. Raises UsageError."""
    return open_image(path).size


def fit_image(image: Image.Image, size: int) -> Image.Image:
    """Return an image (L or RGB) that just fits into a square, its sides in their ratio, centred on its mean colour."""
    left, top, width, height = placement(*image.size, size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    if (width, height) == (size, size):
        return resized
    mean = np.asarray(resized).reshape(width * height, -1).mean(axis=0).round().astype(int).tolist()
    square = Image.new(image.mode, (size, size), tuple(mean) if len(mean) > 1 else mean[0])
    square.paste(resized, (left, top))
    return square


def placement(width: int, height: int, size: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height, in pixels of a square, of an image that is fitted into it."""
    scale = size / max(width, height)
    new = max(round(width * scale), 1), max(round(height * scale), 1)
    return (size - new[0]) // 2, (size - new[1]) // 2, *new


def fitted_boxes(
    boxes: NDArray[np.float32], width: int, height: int, size: int
) -> NDArray[np.float32]:
    """Return boxes (M, 4) of an image where they are in the square that it is fitted into, clipped to the image."""
    left, top, *new = placement(width, height, size)
    corner = np.array([width, height] * 2)
    moved: NDArray[np.float64] = np.clip(boxes, 0, corner) / corner * (new * 2) + [left, top] * 2
    return moved.astype(np.float32)


def unfit_points(
    xs: NDArray[np.float64], ys: NDArray[np.float64], width: int, height: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x and y of points of a square where they are in the image that is fitted into it, clipped to the image."""
    left, top, across, down = placement(width, height, size)
    return np.clip((xs - left) * width / across, 0, width), np.clip(
        (ys - top) * height / down, 0, height
    )
