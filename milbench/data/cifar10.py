"""The files of CIFAR-10: found or fetched, checked, and read as labelled images."""

from __future__ import annotations

import pickle  # noqa: TID251 for an unpickler that knows arrays alone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milbench.data.catalog import DATASETS, checked, data_dir
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError

CIFAR10_SIDE = 32
"""Height and width of an image, in pixels."""
_CLASSES = 10
_BYTES = 3 * CIFAR10_SIDE * CIFAR10_SIDE
"""Size of an image."""
_MISSING_HINT = (
    "point --data-dir or MILBENCH_DATA at a folder with cifar-10-batches-py, or fetch it with "
    "`milbench data fetch cifar10`; the task mnist is the same on smaller images"
)
"""The end of an error message: how to get the files."""
_PATHS = [part.path for part in DATASETS["cifar10"].parts]
TRAIN_PATHS, TEST_PATHS = _PATHS[:5], _PATHS[5:6]


class _ArraysOnly(pickle.Unpickler):
    """Unpickles numpy arrays and nothing else: CIFAR-10 comes as pickles, and a file in their place may hold code."""

    known = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),  # how Python 3 writes bytes for Python 2
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return super().find_class(module, name)


def check(given: Path | None, any_data: bool) -> str:
    """Return the digest of the files, see `milbench.data.catalog.checked`. Raises UsageError."""
    return checked("cifar10", "CIFAR-10", given, load, _MISSING_HINT, any_data=any_data)


def load(given: Path | None) -> tuple[LabelledImages, LabelledImages]:
    """Return the training and the test images, (N, 3, 32, 32), of files that `check` accepted."""
    root = data_dir(given)
    train, test = (_joined([_read(root / path) for path in paths]) for paths in (TRAIN_PATHS, TEST_PATHS))
    return train, test


def _joined(parts: list[tuple[Tensor, Tensor]]) -> LabelledImages:
    pixels, classes = (torch.cat(column) for column in zip(*parts, strict=True))
    return LabelledImages(pixels, classes, white=255)


def _read(path: Path) -> tuple[Tensor, Tensor]:
    """Return the pixels (n, 3, 32, 32) uint8 and the classes (n,) int64 of one file. Raises UsageError.

    A file is a dict with `data`, (n, 3072) bytes, red before green before blue and rows from the top, and `labels`, n
    ints.
    """
    if not path.is_file():
        raise UsageError(f"{path} not found; {_MISSING_HINT}")
    try:
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="latin1").load()
        pixels, labels = batch["data"], batch["labels"]
        # A pickle of a few bytes can stand for an array of any size, or for lists that all hold the same lists.
        if not (isinstance(pixels, np.ndarray) and pixels.nbytes <= path.stat().st_size and pixels.dtype == np.uint8):
            raise ValueError("its data are no bytes")
        if not (labels and all(type(label) is int and 0 <= label < _CLASSES for label in labels)):
            raise ValueError(f"expected labels from 0 to {_CLASSES - 1}")
        if pixels.shape != (len(labels), _BYTES):
            raise ValueError(f"expected n rows of {_BYTES} bytes and n labels")
    except Exception as error:  # noqa: BLE001 a damaged pickle may raise anything
        raise UsageError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    return torch.tensor(pixels).view(-1, 3, CIFAR10_SIDE, CIFAR10_SIDE), torch.tensor(labels)
