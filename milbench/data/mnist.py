"""The files of MNIST: found or fetched, checked, and read as labelled images."""

from __future__ import annotations

from pathlib import Path

import torch

from milbench._utils import digests
from milbench.data.catalog import MNIST_FILES, data_dir, require
from milbench.data.labelled_images import LabelledImages, digest_of
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
    paths = [root / path for pair in PARTS for path in pair]
    return digests.remembered("MNIST", paths, lambda: f"non-canonical MNIST, sha256 {digest_of(paths, load, given)}")


def load(given: Path | None) -> tuple[LabelledImages, LabelledImages]:
    """Return the training and the test images, (N, 1, 28, 28).

    Raises:
        UsageError: a file is missing or damaged, or the files do not fit together.
    """
    root = data_dir(given)
    train, test = (_read(root / images, root / labels) for images, labels in PARTS)
    return train, test


def _read(images: Path, labels: Path) -> LabelledImages:
    from torchvision.datasets.mnist import read_image_file, read_label_file

    found = []
    for path, read in ((images, read_image_file), (labels, read_label_file)):
        if not path.is_file():
            raise UsageError(f"{path} not found; {_MISSING_HINT}")
        try:
            found.append(read(str(path)))
        except Exception as error:  # noqa: BLE001 torchvision asserts what a header should be
            raise UsageError(f"{path} is damaged: no idx file of bytes ({error or type(error).__name__})") from None
    pixels, classes = found
    if pixels.shape[1:] != (MNIST_SIDE, MNIST_SIDE):
        raise UsageError(f"{images} is damaged: expected images of {MNIST_SIDE}x{MNIST_SIDE} bytes")
    if len(pixels) != len(classes) or not len(pixels):
        raise UsageError(f"{images} has {len(pixels)} images, {labels} has {len(classes)} labels")
    if classes.max() >= _CLASSES:
        raise UsageError(f"{labels} has labels other than 0 to {_CLASSES - 1}")
    return LabelledImages(pixels.unsqueeze(1), classes.to(torch.int64), white=255)
