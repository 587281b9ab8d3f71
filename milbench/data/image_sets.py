"""Find, fetch, check and read the labelled images of MNIST, Fashion-MNIST, KMNIST and CIFAR-10."""

import gzip
import pickle  # noqa: TID251 for an unpickler that makes nothing but arrays
import struct
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from milbench._utils.files import reading
from milbench.data.catalog import DATASETS, check_dataset, data_dir, how_to_get
from milbench.data.labelled_images import LabelledImages
from milbench.errors import UsageError

MnistName = Literal["mnist", "fashion-mnist", "kmnist"]
MNIST_SIDE = 28
"""Height and width of an image of MNIST, Fashion-MNIST and KMNIST, in pixels."""
CIFAR10_SIDE = 32
"""Height and width of an image of CIFAR-10, in pixels."""
_CLASSES = 10
_WHITE = 255
"""The value of a white pixel."""
_TITLES = {
    "mnist": "MNIST",
    "fashion-mnist": "FashionMNIST",
    "kmnist": "KMNIST",
    "cifar10": "CIFAR-10",
}
"""The names that people read. Except CIFAR-10 they are also the names of torchvision's classes."""
CLASS_NAMES: dict[MnistName, tuple[str, ...]] = {
    "mnist": ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    "fashion-mnist": (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    "kmnist": ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
}  # fmt: skip
"""The names of the classes, as torchvision spells them."""


def check(name: str, given: Path | None, any_data: bool) -> str:
    """Return the title of a data set with the digest of its files, downloaded if needed.

    Args:
        name: the name of the data set.
        given: the data directory that the user gave, None for none.
        any_data: see `milbench.data.catalog.check_dataset`.

    Raises:
        UsageError: where the files are missing or damaged.
    """
    return check_dataset(
        name, _TITLES[name], given, partial(load, name), _missing_hint(name), any_data=any_data
    )


def load(name: str, given: Path | None) -> tuple[LabelledImages, LabelledImages]:
    """Return the training images and the test images of a data set.

    They are (N, 3, 32, 32) for CIFAR-10, and (N, 1, 28, 28) for the other data sets. Raises
    UsageError where a file is missing or damaged.
    """
    root = data_dir(given)
    # The file .meta of CIFAR-10 holds the names of the classes, which are not needed.
    parts = [part for part in DATASETS[name].parts if not part.path.endswith(".meta")]
    paths = [root / part.path for part in parts]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path} not found; {_missing_hint(name)}")
    if name == "cifar10":
        return _read_cifar10(paths)
    train_images, train_labels, test_images, test_labels = paths
    return _read_idx(train_images, train_labels), _read_idx(test_images, test_labels)


def _read_cifar10(paths: list[Path]) -> tuple[LabelledImages, LabelledImages]:
    """Return the training images and the test images of CIFAR-10.

    The test images are in the last file.
    """
    *train, test = (_read_batch(path) for path in paths)
    pixels = torch.cat([pixels_of_file for pixels_of_file, _ in train])
    classes = torch.cat([classes_of_file for _, classes_of_file in train])
    return LabelledImages(pixels, classes, _WHITE), LabelledImages(*test, _WHITE)


def _missing_hint(name: str) -> str:
    alternative = "extended-digits needs no download"
    if name == "cifar10":
        alternative = "mnist is the same on smaller images"
    place = Path(DATASETS[name].parts[0].path).parent
    return how_to_get(name, place, alternative)


def _read_idx(images: Path, labels: Path) -> LabelledImages:
    """Return the images of one idx file, with their classes from another. Raises UsageError."""
    pixels = _idx_values(images, dimensions=3)
    classes = _idx_values(labels, dimensions=1)
    if pixels.shape[1:] != (MNIST_SIDE, MNIST_SIDE):
        raise UsageError(f"{images} is damaged: expected images of {MNIST_SIDE}x{MNIST_SIDE} bytes")
    if len(pixels) != len(classes) or not len(pixels):
        raise UsageError(f"{images} has {len(pixels)} images, {labels} has {len(classes)} labels")
    if classes.max() >= _CLASSES:
        raise UsageError(f"{labels} has labels other than 0 to {_CLASSES - 1}")
    return LabelledImages(pixels.unsqueeze(1), classes.to(torch.int64), _WHITE)


def _idx_values(path: Path, dimensions: int) -> Tensor:
    """Return the values of an idx file, which are bytes, in its shape. Raises UsageError.

    Before the values the file has 0x0800 + the number of dimensions, and then the length of each
    dimension. These numbers have 4 bytes each, the most significant byte first.
    """
    with reading(path, "is damaged: no idx file of bytes"):
        contents = path.read_bytes()
        if path.suffix == ".gz":
            contents = gzip.decompress(contents)
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", contents)
        if magic != 0x0800 + dimensions:
            raise ValueError("another header")
        header_bytes = 4 * (1 + dimensions)
        # torch warns of bytes that must not be written to, so a copy is made.
        values = torch.frombuffer(bytearray(contents), dtype=torch.uint8, offset=header_bytes)
        return values.view(shape)


class _ArraysOnly(pickle.Unpickler):
    """Unpickles numpy arrays and nothing else.

    CIFAR-10 is distributed as pickles, and a forged pickle can run any code.
    """

    allowed = (
        # numpy 1 and numpy 2 have this function in different modules.
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.ndarray",
        "numpy.dtype",
        # Python 3 writes bytes for Python 2 by this function.
        "_codecs.encode",
    )

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self.allowed:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return super().find_class(module, name)


def _read_batch(path: Path) -> tuple[Tensor, Tensor]:
    """Return the pixels (n, 3, 32, 32) uint8 and the classes (n,) int64 of a file of CIFAR-10.

    Raises UsageError for a damaged file.
    """
    with reading(path, "is damaged"), path.open("rb") as file:
        batch = _ArraysOnly(file, encoding="latin1").load()
        pixels = batch["data"]
        labels = batch["labels"]
        # A forged pickle of a few bytes can make a huge array, or lists that hold one list over and
        # over. So the array must not be larger than its file, and each label must be a number.
        is_array = isinstance(pixels, np.ndarray) and pixels.nbytes <= path.stat().st_size
        if not is_array or pixels.dtype != np.uint8:
            raise ValueError("its data are no bytes")
        if not labels or not all(_is_class(label) for label in labels):
            raise ValueError(f"expected labels from 0 to {_CLASSES - 1}")
        if pixels.shape != (len(labels), 3 * CIFAR10_SIDE**2):
            raise ValueError("expected n rows of 3072 bytes and n labels")
    images = torch.tensor(pixels).view(-1, 3, CIFAR10_SIDE, CIFAR10_SIDE)
    return images, torch.tensor(labels)


def _is_class(label: Any) -> bool:
    """Return whether a value of a pickle is the number of a class.

    Its type is compared, since True would pass as an instance of int.
    """
    return type(label) is int and 0 <= label < _CLASSES
