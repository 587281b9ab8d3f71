"""Images that are fitted into squares of one size, and where their boxes and positions are then."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from milbench._utils.images import colours, grey, open_image


def decode_image(path: Path, size: int, channels: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Return the pixels (channels, size, size) of an image fitted into a square, and its size. Raises UsageError."""
    image = open_image(path)
    if channels == 1:
        return grey(fit_image(image.convert("L"), size)), image.size
    return colours(fit_image(image.convert("RGB"), size)), image.size


def image_size(path: Path) -> tuple[int, int]:
    """Return width and height of an image as `decode_image` gives them. Raises UsageError."""
    return open_image(path).size


def fit_image(image: Image.Image, size: int) -> Image.Image:
    """Return an image (L or RGB) that just fits into a square, its sides in their ratio, centred on its mean colour."""
    left, top, width, height = placement(*image.size, size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    if (width, height) == (size, size):
        return resized
    square = Image.new(image.mode, (size, size), _mean_colour(resized))
    square.paste(resized, (left, top))
    return square


def _mean_colour(image: Image.Image) -> int | tuple[int, ...]:
    """Return the mean of the pixels of an image, a number if it is grey, as Pillow expects a colour."""
    pixels = np.asarray(image).reshape(image.width * image.height, -1)
    mean: list[int] = pixels.mean(axis=0).round().astype(int).tolist()
    if len(mean) == 1:
        return mean[0]
    return tuple(mean)


def placement(width: int, height: int, size: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height, in pixels of a square, of an image that is fitted into it."""
    scale = size / max(width, height)
    # A very long image would have no pixel across.
    new_width = max(round(width * scale), 1)
    new_height = max(round(height * scale), 1)
    left = (size - new_width) // 2
    top = (size - new_height) // 2
    return left, top, new_width, new_height


def fitted_boxes(
    boxes: NDArray[np.float32], width: int, height: int, size: int
) -> NDArray[np.float32]:
    """Return boxes (M, 4) of an image, clipped to it, in pixels of the square that it is fitted into."""
    left, top, new_width, new_height = placement(width, height, size)
    # Each is for left, top, right and bottom of a box.
    image_sides = np.array([width, height, width, height])
    new_sides = np.array([new_width, new_height, new_width, new_height])
    origin = np.array([left, top, left, top])
    shares = np.clip(boxes, 0, image_sides) / image_sides
    moved: NDArray[np.float64] = shares * new_sides + origin
    return moved.astype(np.float32)


def unfit_points(
    xs: NDArray[np.float64], ys: NDArray[np.float64], width: int, height: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points of a square in pixels of the image that is fitted into it, clipped to the image."""
    left, top, new_width, new_height = placement(width, height, size)
    image_xs = (xs - left) * width / new_width
    image_ys = (ys - top) * height / new_height
    return np.clip(image_xs, 0, width), np.clip(image_ys, 0, height)
