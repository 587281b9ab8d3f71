"""Fit images into squares of one size, and convert boxes and points to and from these squares."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from milbench._utils.images import colours, grey, open_image


def decode_image(path: Path, size: int, channels: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Return the pixels of an image fitted into a square, and the size of the image before.

    The pixels are (channels, size, size), the size before is width and height. Raises UsageError
    for an image that cannot be read.
    """
    image = open_image(path)
    if channels == 1:
        return grey(fit_image(image.convert("L"), size)), image.size
    return colours(fit_image(image.convert("RGB"), size)), image.size


def image_size(path: Path) -> tuple[int, int]:
    """Return width and height of an image, as `decode_image` does. Raises UsageError."""
    return open_image(path).size


def fit_image(image: Image.Image, size: int) -> Image.Image:
    """Return a square image that shows a whole image, as large as possible, in its proportions.

    The image is in the centre. The rest of the square has its mean colour.

    Args:
        image: in Pillow's mode L or RGB.
        size: the side of the square, in pixels.
    """
    left, top, width, height = placement(*image.size, size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    if (width, height) == (size, size):
        return resized
    square = Image.new(image.mode, (size, size), _mean_colour(resized))
    square.paste(resized, (left, top))
    return square


def _mean_colour(image: Image.Image) -> int | tuple[int, ...]:
    """Return the mean colour of an image in Pillow's form: one number if the image is grey."""
    pixels = np.asarray(image).reshape(image.width * image.height, -1)
    mean: list[int] = pixels.mean(axis=0).round().astype(int).tolist()
    if len(mean) == 1:
        return mean[0]
    return tuple(mean)


def placement(width: int, height: int, size: int) -> tuple[int, int, int, int]:
    """Return where an image lies in the square that it is fitted into.

    That is left, top, width and height, in pixels of the square.

    Args:
        width: of the image, in pixels.
        height: of the image, in pixels.
        size: the side of the square, in pixels.
    """
    scale = size / max(width, height)
    # The shorter side of a very long image would be rounded to 0.
    new_width = max(round(width * scale), 1)
    new_height = max(round(height * scale), 1)
    left = (size - new_width) // 2
    top = (size - new_height) // 2
    return left, top, new_width, new_height


def fitted_boxes(
    boxes: NDArray[np.float32], width: int, height: int, size: int
) -> NDArray[np.float32]:
    """Return the boxes of an image in pixels of the square that the image is fitted into.

    Args:
        boxes: (M, 4), left, top, right and bottom in pixels of the image. They are clipped to it.
        width: of the image, in pixels.
        height: of the image, in pixels.
        size: the side of the square, in pixels.
    """
    left, top, new_width, new_height = placement(width, height, size)
    # Boxes are left, top, right and bottom: these arrays have x, y, x and y.
    image_sides = np.array([width, height, width, height])
    new_sides = np.array([new_width, new_height, new_width, new_height])
    origin = np.array([left, top, left, top])
    shares = np.clip(boxes, 0, image_sides) / image_sides
    moved: NDArray[np.float64] = shares * new_sides + origin
    return moved.astype(np.float32)


def unfit_points(
    xs: NDArray[np.float64], ys: NDArray[np.float64], width: int, height: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points of a square in pixels of the image that is fitted into it.

    This is the inverse of `fitted_boxes`, for the coordinates `xs` and `ys` of points. Points
    outside the image are moved to its edge.
    """
    left, top, new_width, new_height = placement(width, height, size)
    image_xs = (xs - left) * width / new_width
    image_ys = (ys - top) * height / new_height
    return np.clip(image_xs, 0, width), np.clip(image_ys, 0, height)
