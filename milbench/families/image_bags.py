"""Bags from labelled images: one bag an image, and batches that are made when they are accessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar, overload

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.api.bags import Bags, Truth, label_matrix
from milbench.data.labelled_images import LabelledImages

if TYPE_CHECKING:
    from PIL.Image import Image

DIGITS = 10
"""How many classes a task has whose classes are the digits."""


def single_instance_bags(images: LabelledImages, num_classes: int) -> Bags:
    """Return every image as a bag of one instance that fills it.

    Args:
        images: N images with classes (N,).
        num_classes: C, the background not counted.

    Returns:
        Bags with instances (N, channels, h, w) in [0, 1].
    """
    height, width = images.pixels.shape[-2:]
    classes = images.classes.unsqueeze(1)
    box = to_device(torch.tensor([0.0, 0.0, width, height]), classes.device)
    return Bags(
        images.scaled(), label_matrix(classes, num_classes), truth=Truth(classes, box.expand(len(images), 1, 4))
    )


class Selectable(Protocol):
    """Data of which some can be selected, such as labelled images."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice | Tensor) -> Self: ...


Data = TypeVar("Data", bound=Selectable)


@dataclass(frozen=True, slots=True)
class LazyBatches(Sequence[Bags], Generic[Data]):
    """Images or sequences as batches of bags, each made when it is accessed, because bags take more memory.

    Batches are numbered from 0; other numbers, also negative ones, raise IndexError.

    Args:
        images: the images, or other data.
        size: the number of bags in a batch; the last batch may be smaller.
        as_bags: makes the bags of a batch.
        which: (n,) int64, the numbers of the images that are used, in their order; None: all.
    """

    images: Data
    size: int
    as_bags: Callable[[Data], Bags]
    which: Tensor | None = None

    def __len__(self) -> int:
        count = len(self.images) if self.which is None else len(self.which)
        return (count + self.size - 1) // self.size

    @overload
    def __getitem__(self, n: int) -> Bags: ...
    @overload
    def __getitem__(self, n: slice) -> list[Bags]: ...
    def __getitem__(self, n: int | slice) -> Bags | list[Bags]:
        if isinstance(n, slice):
            return [self[k] for k in range(*n.indices(len(self)))]
        if not 0 <= n < len(self):
            raise IndexError(n)
        part = slice(n * self.size, (n + 1) * self.size)
        return self.as_bags(self.images[part if self.which is None else self.which[part]])


def to_picture(instances: Tensor, white: int) -> Image:
    """Return instances (N, H, W) as a picture, grey for N = 1 and in colours for N = 3.

    Args:
        instances: pixels divided by `white`.
        white: 255, or 256 where no instance reaches 1.
    """
    from PIL.Image import fromarray

    pixels = (instances * white).round().clamp(0, 255).byte().cpu().numpy()
    return fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
