"""Images without labels, for a trained network: from a table, from a folder, or files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from milbench.data.tables.new_bags import expanded
from milbench.data.tables.pixel_cache import decoded
from milbench.data.tables.reading import file_column, is_table, read_table, shown
from milbench.errors import UsageError


def new_images(paths: Sequence[Path], column: str) -> dict[str, Path]:
    """Return the files of images by their names: as a table has them, or the paths that are given.

    Args:
        paths: tables, images, and folders of images.
        column: of the paths of images in a table, relative to its folder.

    Raises:
        UsageError: a table is no use, a folder has no image, or an image is named twice.
    """
    Image.init()
    files: dict[str, Path] = {}
    for path in expanded(paths, sorted(Image.EXTENSION)):
        found = [(str(path), path)]
        if is_table(path):
            names = file_column(read_table(path, text=(column,)), path, column, "image")
            found = [(name, path.parent / name) for name in names]
        for name, file in found:
            if name in files:
                raise UsageError(f"{path}: the image {name!r} is named twice")
            files[name] = file
    return files


def decode_all(files: Sequence[Path], size: int, channels: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return images (B, channels, size, size) that are fitted into squares, and their widths and heights (B, 2).

    Args:
        files: the images.
        size: the side of a square, in pixels.
        channels: 1 for grey, 3 for colours.

    Raises:
        UsageError: images cannot be read, all of which are named.
    """

    def one(path: Path) -> tuple[NDArray[np.uint8], tuple[int, int]] | UsageError:
        try:
            return decoded(path, size, channels)
        except UsageError as error:
            return error

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = list(pool.map(one, files))
    broken = [str(one) for one in found if isinstance(one, UsageError)]
    if broken:
        raise UsageError(f"{len(broken)} of {len(files)} images cannot be read: {shown(broken, 20)}")
    pixels, sizes = zip(*(one for one in found if not isinstance(one, UsageError)), strict=True)
    return np.stack(pixels), np.array(sizes, np.int32)
