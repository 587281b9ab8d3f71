"""The files of MNIST, or of Fashion-MNIST or KMNIST in its form: found or fetched, checked, read as labelled images."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from collections.abc import Sequence
from itertools import chain
from math import prod
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from milbench._utils import digests
from milbench.data.catalog import FASHION_MNIST_FILES, KMNIST_FILES, MNIST_FILES, Dataset, data_dir, require
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError, as_usage

Name = Literal["mnist", "fashion-mnist", "kmnist"]
MNIST_SIDE = 28
"""Height and width of an image, in pixels."""
_CLASSES = 10
_TITLES: dict[Name, str] = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "kmnist": "KMNIST"}
"""The names of torchvision's classes."""
_FILES: dict[Name, Dataset] = {"mnist": MNIST_FILES, "fashion-mnist": FASHION_MNIST_FILES, "kmnist": KMNIST_FILES}


def class_names(name: Name) -> list[str]:
    """Return the names of the classes: digits for MNIST, else those that torchvision has."""
    if name == "mnist":
        return [str(digit) for digit in range(_CLASSES)]
    from torchvision import datasets

    return list(getattr(datasets, _TITLES[name]).classes)


@as_usage()
def check(given: Path | None, any_data: bool, name: Name = "mnist") -> str:
    """Check the files and return their digest.

    Args:
        given: the data directory; None: the one in MILBENCH_DATA, or the user's cache folder.
        any_data: accept other images in MNIST's files as long as they are consistent; the digest is then named
            non-canonical. Otherwise missing files are downloaded.
        name: of the data set.

    Raises:
        UsageError: files are damaged, or missing and cannot be downloaded.
    """
    root, title = data_dir(given), _TITLES[name]
    if not any_data:
        return f"{title}, sha256 {require(name, root, _missing_hint(name)).identity(root)}"
    paths = [(root / images, root / labels) for images, labels in _parts(name)]
    return digests.remembered(title, [*chain(*paths)], lambda: _read(paths, name))


def load(given: Path | None, name: Name = "mnist") -> tuple[LabelledImages, LabelledImages]:
    """Return the training and the test images, (N, 1, 28, 28), of files that `check` accepted."""
    root = data_dir(given)
    train, test = (
        LabelledImages(
            _values(root / images, 16).view(-1, 1, MNIST_SIDE, MNIST_SIDE),
            _values(root / labels, 8).to(torch.int64),
            white=255,
        )
        for images, labels in _parts(name)
    )
    return train, test


def _parts(name: Name) -> list[tuple[str, str]]:
    """Return the paths, below the data directory, of images and labels: the training pair and the test pair."""
    files = _FILES[name].files
    return [(files[i].path, files[i + 1].path) for i in (0, 2)]


def _missing_hint(name: Name) -> str:
    """Return the end of an error message: how to get the files."""
    return (
        f"point --data-dir or MILBENCH_DATA at a folder with {_TITLES[name]}/raw, or fetch it with `milbench data "
        f"fetch {name}`; the task extended-digits needs no download"
    )


def _values(path: Path, header: int) -> Tensor:
    """Return the bytes that follow the header, (N,) uint8."""
    return torch.frombuffer(bytearray(_contents(path)[header:]), dtype=torch.uint8)


def _contents(path: Path) -> bytes:
    """Return what is in a file, decompressed if it is a .gz."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path} is damaged: {error}") from error


def _read(paths: Sequence[tuple[Path, Path]], name: Name) -> str:
    """Check pairs of files of other images and their labels; return what they are, with their digest."""
    digest = hashlib.sha256()
    for images, labels in paths:
        n, m = _count(images, (MNIST_SIDE, MNIST_SIDE), name), _count(labels, (), name)
        if n != m:
            raise UsageError(f"{images} has {n} images, {labels} has {m} labels")
        if not n:
            raise UsageError(f"{images} has no images")
        if max(_contents(labels)[8:]) >= _CLASSES:
            raise UsageError(f"{labels} has labels other than 0 to {_CLASSES - 1}")
        for path in (images, labels):
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return f"non-canonical {_TITLES[name]}, sha256 {digest.hexdigest()[:16]}"


def _count(path: Path, shape: tuple[int, ...], name: Name) -> int:
    """Return how many items of `shape` an idx file of bytes holds.

    The header is, big-endian: 0x0800 + number of dimensions, then every dimension, 4 bytes each.

    Raises:
        UsageError: the file is missing, or its header does not fit its size or the shape.
    """
    if not path.is_file():
        raise UsageError(f"{path} not found; {_missing_hint(name)}")
    start = 4 * (2 + len(shape))
    contents = _contents(path)
    header = contents[:start].ljust(start, b"\0")
    magic, count, *found = struct.unpack(f">{2 + len(shape)}I", header)
    if magic != 0x0801 + len(shape) or tuple(found) != shape:
        kind = "x".join(map(str, shape)) or "single"
        raise UsageError(f"{path} is damaged: expected the header of an idx file of {kind} bytes")
    size, expected = len(contents), start + count * prod(shape)
    if size != expected:
        raise UsageError(f"{path} is damaged: expected {expected} bytes by its header, found {size}")
    return int(count)
