"""The files of MNIST, or of Fashion-MNIST or KMNIST in its form: found or fetched, checked, read as labelled images."""

from __future__ import annotations

import gzip
import struct
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from milbench.data.catalog import DATASETS, checked, data_dir
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError

Name = Literal["mnist", "fashion-mnist", "kmnist"]
MNIST_SIDE = 28
"""Height and width of an image, in pixels."""
_CLASSES = 10
_TITLES: dict[Name, str] = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "kmnist": "KMNIST"}
"""The names of torchvision's classes."""


def class_names(name: Name) -> list[str]:
    """Return the names of the classes: digits for MNIST, else those that torchvision has."""
    if name == "mnist":
        return [str(digit) for digit in range(_CLASSES)]
    from torchvision import datasets

    return list(getattr(datasets, _TITLES[name]).classes)


def check(given: Path | None, any_data: bool, name: Name = "mnist") -> str:
    """Return the digest of the files, see `milbench.data.catalog.checked`. Raises UsageError."""
    return checked(name, _TITLES[name], given, partial(load, name=name), _missing_hint(name), any_data=any_data)


def load(given: Path | None, name: Name = "mnist") -> tuple[LabelledImages, LabelledImages]:
    """Return the training and the test images, (N, 1, 28, 28). Raises UsageError for damaged files."""
    root = data_dir(given)
    train, test = (_read(root / images, root / labels, name) for images, labels in _parts(name))
    return train, test


def _parts(name: Name) -> list[tuple[str, str]]:
    files = DATASETS[name].parts
    return [(files[i].path, files[i + 1].path) for i in (0, 2)]


def _missing_hint(name: Name) -> str:
    return (
        f"point --data-dir or MILBENCH_DATA at a folder with {_TITLES[name]}/raw, or fetch it with `milbench data "
        f"fetch {name}`; the task extended-digits needs no download"
    )


def _read(images: Path, labels: Path, name: Name) -> LabelledImages:
    for path in (images, labels):
        if not path.is_file():
            raise UsageError(f"{path} not found; {_missing_hint(name)}")
    pixels, classes = _values(images, 3), _values(labels, 1)
    if pixels.shape[1:] != (MNIST_SIDE, MNIST_SIDE):
        raise UsageError(f"{images} is damaged: expected images of {MNIST_SIDE}x{MNIST_SIDE} bytes")
    if len(pixels) != len(classes) or not len(pixels):
        raise UsageError(f"{images} has {len(pixels)} images, {labels} has {len(classes)} labels")
    if classes.max() >= _CLASSES:
        raise UsageError(f"{labels} has labels other than 0 to {_CLASSES - 1}")
    return LabelledImages(pixels.unsqueeze(1), classes.to(torch.int64), white=255)


def _values(path: Path, dimensions: int) -> Tensor:
    """Return the bytes of an idx file: big-endian 0x0800 + dimensions, every dimension in 4 bytes, the values."""
    try:
        contents = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", contents)
        if magic != 0x0800 + dimensions:
            raise ValueError("another header")
        return torch.frombuffer(bytearray(contents), dtype=torch.uint8, offset=4 * (1 + dimensions)).view(shape)
    except Exception as error:  # noqa: BLE001 gzip, struct and torch have errors of their own
        raise UsageError(f"{path} is damaged: no idx file of bytes ({error})") from None
