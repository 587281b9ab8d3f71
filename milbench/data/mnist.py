"""The files of MNIST: found or fetched, checked, and read as labelled images."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from itertools import chain
from math import prod
from pathlib import Path

import torch

from milbench._utils import digests
from milbench.data.catalog import MNIST_FILES, data_dir, require
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError, as_usage

MNIST_SIDE = 28
"""Height and width of an image, in pixels."""
_CLASSES = 10
_MISSING_HINT = (
    "point --data-dir or MILBENCH_DATA at a folder with MNIST/raw, or fetch it with `milbench data fetch mnist`; "
    "the task extended-digits needs no download"
)
"""The end of an error message: how to get the files."""
PARTS = tuple((MNIST_FILES.files[i].path, MNIST_FILES.files[i + 1].path) for i in (0, 2))
"""Paths, below the data directory, of images and labels: the training pair and the test pair."""


@as_usage()
def check(given: Path | None, any_data: bool) -> str:
    """Check the files and return their digest.

    Args:
        given: the data directory; None: the one in MILBENCH_DATA, or the user's cache folder.
        any_data: accept other images in MNIST's files as long as they are consistent; the digest is then named
            non-canonical. Otherwise missing files are downloaded.

    Raises:
        UsageError: files are damaged, or missing and cannot be downloaded.
    """
    root = data_dir(given)
    if not any_data:
        return f"MNIST, sha256 {require('mnist', root, _MISSING_HINT).identity(root)}"
    paths = [(root / images, root / labels) for images, labels in PARTS]
    return digests.remembered("MNIST", [*chain(*paths)], lambda: _read(paths))


def load(given: Path | None) -> tuple[LabelledImages, LabelledImages]:
    """Return the training and the test images, (N, 1, 28, 28), of files that `check` accepted."""
    from torchvision.datasets.mnist import read_image_file, read_label_file

    root = data_dir(given)
    train, test = (
        LabelledImages(
            read_image_file(str(root / images)).unsqueeze(1),
            read_label_file(str(root / labels)).to(torch.int64),
            white=255,
        )
        for images, labels in PARTS
    )
    return train, test


def _read(paths: Sequence[tuple[Path, Path]]) -> str:
    """Check pairs of files of other images and their labels; return what they are, with their digest."""
    digest = hashlib.sha256()
    for images, labels in paths:
        n, m = _count(images, (MNIST_SIDE, MNIST_SIDE)), _count(labels, ())
        if n != m:
            raise UsageError(f"{images} has {n} images, {labels} has {m} labels")
        if not n:
            raise UsageError(f"{images} has no images")
        if max(labels.read_bytes()[8:]) >= _CLASSES:
            raise UsageError(f"{labels} has labels other than 0 to {_CLASSES - 1}")
        for path in (images, labels):
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return f"non-canonical MNIST, sha256 {digest.hexdigest()[:16]}"


def _count(path: Path, shape: tuple[int, ...]) -> int:
    """Return how many items of `shape` an idx file of bytes holds.

    The header is, big-endian: 0x0800 + number of dimensions, then every dimension, 4 bytes each.

    Raises:
        UsageError: the file is missing, or its header does not fit its size or the shape.
    """
    if not path.is_file():
        raise UsageError(f"{path} not found; {_MISSING_HINT}")
    start = 4 * (2 + len(shape))
    with path.open("rb") as file:
        header = file.read(start).ljust(start, b"\0")
    magic, count, *found = struct.unpack(f">{2 + len(shape)}I", header)
    if magic != 0x0801 + len(shape) or tuple(found) != shape:
        kind = "x".join(map(str, shape)) or "single"
        raise UsageError(f"{path} is damaged: expected the header of an idx file of {kind} bytes")
    size, expected = path.stat().st_size, start + count * prod(shape)
    if size != expected:
        raise UsageError(f"{path} is damaged: expected {expected} bytes by its header, found {size}")
    return int(count)
