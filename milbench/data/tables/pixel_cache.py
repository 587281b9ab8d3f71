"""The images of a table, decoded once, fitted into squares of one size, and memory-mapped from a cache afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from milbench._utils.images import colours, grey, open_image
from milbench.data.array_cache import ArrayCache, cache_place
from milbench.data.tables.image_table import ImageTable
from milbench.data.tables.reading import row_name, shown
from milbench.errors import UsageError

CACHE_FORMAT = 1
"""Version of the layout of a cache, to be raised when an image is fitted into its square in another way."""
SCHEMA = {"images": "uint8", "sizes": "int32"}
SIDE: Final = 64
"""Side of the squares in pixels, where nothing else is asked for."""
COLOURS: Final = 3
"""Channels of an image, likewise."""
AT_ONCE = 256
"""Images that are decoded in memory before they are written."""


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """The images of a table in its order. Arrays are mapped from files: what is not used is not in memory.

    Args:
        images: (B, channels, size, size) uint8.
        sizes: (B, 2) int32, width and height of the upright images before they were fitted into squares.
        digest: SHA-256 of the files of the images, which depends neither on dates nor on the size of the squares.
    """

    images: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    digest: str

    def image_digest(self, image: int) -> str:
        """Return a digest of the pixels of an image, equal for images that a network cannot tell apart."""
        return hashlib.sha256(self.images[image].tobytes()).hexdigest()


def load_pixels(table: ImageTable, size: int, channels: int) -> Pixels:
    """Return the images of a table, decoded now if there is no current cache.

    A cache lies beside the table, or in the user's cache folder if that folder is read-only. It is made anew when a
    file of an image has changed.

    Args:
        table: names the images.
        size: the side of the squares, in pixels.
        channels: 1 for grey, 3 for colours.

    Raises:
        UsageError: images are missing or cannot be read, all of which are named with their rows; the cache is damaged;
            or there is no room for it.
    """
    place = cache_place(table.path, "images") / f"{table.path.name}-{size}x{size}x{channels}"
    cache = ArrayCache(place, SCHEMA, CACHE_FORMAT, "the images are decoded again")
    try:
        arrays, digest = cache.load(
            _fingerprint(table), [size, channels], lambda: lambda folder: _write(folder, table, size, channels)
        )
    except OSError as error:
        raise UsageError(f"cannot keep the images of {table.path} in {place}: {error.strerror or error}") from error
    return Pixels(arrays["images"], arrays["sizes"], digest)


def decoded(path: Path, size: int, channels: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Return the pixels (channels, size, size) of an image that is fitted into a square, and its width and height.

    Args:
        path: the image.
        size: the side of the square, in pixels.
        channels: 1 for grey, 3 for colours.

    Raises:
        UsageError: the image is missing or cannot be read.
    """
    image = open_image(path)
    square = fitted(image.convert("L" if channels == 1 else "RGB"), size)
    return (grey if channels == 1 else colours)(square), image.size


def fitted(image: Image.Image, size: int) -> Image.Image:
    """Return an image shrunk or enlarged so that it just fits into a square, and centred there.

    The ratio of its sides stays. What it leaves free of the square has the mean colour of the image, so that no edge of
    high contrast is added.

    Args:
        image: mode L or RGB.
        size: the side of the square, in pixels.
    """
    left, top, width, height = placed(*image.size, size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    if (width, height) == (size, size):
        return resized
    mean = np.asarray(resized).reshape(width * height, -1).mean(axis=0).round().astype(int).tolist()
    square = Image.new(image.mode, (size, size), tuple(mean) if len(mean) > 1 else mean[0])
    square.paste(resized, (left, top))
    return square


def placed(width: int, height: int, size: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height, in pixels of a square, of an image that is fitted into it.

    Args:
        width: of the image, in pixels.
        height: of the image, in pixels.
        size: the side of the square, in pixels.

    Examples:
        >>> placed(200, 100, size=50)
        (0, 12, 50, 25)
    """
    scale = size / max(width, height)
    new = max(round(width * scale), 1), max(round(height * scale), 1)
    return (size - new[0]) // 2, (size - new[1]) // 2, *new


def fitted_boxes(boxes: NDArray[np.float32], width: int, height: int, size: int) -> NDArray[np.float32]:
    """Return boxes of an image where they are in the square that the image is fitted into, clipped to the image.

    Args:
        boxes: (M, 4) left, top, right, bottom in pixels of the image.
        width: of the image, in pixels.
        height: of the image, in pixels.
        size: the side of the square, in pixels.

    Examples:
        >>> fitted_boxes(np.array([[0, 0, 20, 400]], np.float32), width=200, height=100, size=50)
        array([[ 0., 12.,  5., 37.]], dtype=float32)
    """
    left, top, *new = placed(width, height, size)
    corner = np.array([width, height] * 2)
    moved: NDArray[np.float64] = np.clip(boxes, 0, corner) / corner * (new * 2) + [left, top] * 2
    return moved.astype(np.float32)


def unfitted(
    xs: NDArray[np.float64], ys: NDArray[np.float64], width: int, height: int, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points of a square where they are in the image that is fitted into it, clipped to the image.

    Args:
        xs: their x, in pixels of the square.
        ys: their y.
        width: of the image, in pixels.
        height: of the image, in pixels.
        size: the side of the square, in pixels.

    Examples:
        >>> unfitted(np.array([0.0, 25.0]), np.array([12.0]), width=200, height=100, size=50)
        (array([  0., 100.]), array([0.]))
    """
    left, top, across, down = placed(width, height, size)
    return np.clip((xs - left) * width / across, 0, width), np.clip((ys - top) * height / down, 0, height)


def _fingerprint(table: ImageTable) -> str:
    """Return a digest of the names, sizes and times of the files, which changes with a file and reads none."""
    digest = hashlib.sha256()
    for path in table.files:
        try:
            stat = path.stat()
        except OSError:  # it is named with all others that cannot be read
            digest.update(f"{path} missing\n".encode())
        else:
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n".encode())
    return digest.hexdigest()


def _write(folder: Path, table: ImageTable, size: int, channels: int) -> str:
    """Decode every image, write the arrays and return the digest of the files of the images.

    Images are appended to the file: a full disk is then an error that can be caught, while writing to mapped memory
    would kill the process.
    """
    sizes = np.zeros((len(table), 2), np.int32)
    digest = hashlib.sha256()
    broken: list[str] = []
    with (folder / "images.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(table), channels, size, size)}
        np.lib.format.write_array_header_1_0(file, header)
        for row, found in enumerate(_decoded(table, size, channels)):
            if isinstance(found, UsageError):
                broken.append(f"{row_name(table.path, row)}: {found}")
                continue
            pixels, sizes[row], content = found
            digest.update(f"{table.bags[row]} {content}\n".encode())
            file.write(pixels.tobytes())
    if broken:
        raise UsageError(f"{len(broken)} of {len(table)} images cannot be read: {shown(broken, 20)}")
    np.save(folder / "sizes.npy", sizes, allow_pickle=False)
    return digest.hexdigest()


def _decoded(
    table: ImageTable, size: int, channels: int
) -> Iterator[tuple[NDArray[np.uint8], tuple[int, int], str] | UsageError]:
    """Yield for every image its pixels (channels, size, size), width and height, and the SHA-256 of its file.

    Threads suffice: decoding and resizing release Python's global lock.
    """

    def one(path: Path) -> tuple[NDArray[np.uint8], tuple[int, int], str] | UsageError:
        try:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            return *decoded(path, size, channels), content
        except UsageError as error:
            return error
        except OSError as error:
            return UsageError(f"{path} cannot be read: {error.strerror}")

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(table), AT_ONCE):
            yield from pool.map(one, table.files[start : start + AT_ONCE])
