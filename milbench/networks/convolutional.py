"""All-convolutional networks from images to logits by position, and the geometry of their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from milbench.api.task import Network
from milbench.networks.initialisation import SLOPE, initialise

LEAST_CONTRAST = 1 / 32
"""Smallest standard deviation that an image in [0, 1] is divided by: eight of 256 levels."""


class Layer(NamedTuple):
    """A square convolution: output channels, then kernel, stride and zeros on every side in pixels of its input."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0


def output_size(layers: Sequence[Layer], size: int) -> int:
    """Return the number of positions along one side of an image of `size` pixels.

    Examples:
        >>> output_size((Layer(16, 5, padding=2), Layer(16, 5, stride=2, padding=2), Layer(11, 3)), 28)
        12
    """
    for layer in layers:
        size = (size + 2 * layer.padding - layer.kernel) // layer.stride + 1
    return size


def position_centres(layers: Sequence[Layer], height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the centres of the receptive fields of all positions in an image of `height` x `width` pixels.

    They are y of every row (h,) and x of every column (w,), float64, on the scale of `milbench.api.bags.Truth.boxes`:
    the left edge of the image is 0 and the middle of its first pixel 0.5.

    Examples:
        A kernel of 4 pixels that moves by 4 pixels covers the image in tiles.

        >>> position_centres((Layer(3, kernel=4, stride=4),), height=8, width=12)
        (tensor([2., 6.], dtype=torch.float64), tensor([ 2.,  6., 10.], dtype=torch.float64))
    """
    first, step = 0.5, 1
    for layer in layers:
        first += step * ((layer.kernel - 1) / 2 - layer.padding)
        step *= layer.stride
    rows, columns = output_size(layers, height), output_size(layers, width)
    return first + step * torch.arange(rows).double(), first + step * torch.arange(columns).double()


class Grid(Network):
    """Base class of networks from images (B, N, H, W) to positions in rows and columns, those of `layers`."""

    layers: tuple[Layer, ...]

    def output_shape(self, height: int, width: int) -> tuple[int, int]:
        """Return (h, w), the numbers of rows and columns of positions of an image of this size."""
        return output_size(self.layers, height), output_size(self.layers, width)

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return y of every row and x of every column of positions: the centres of their receptive fields."""
        return position_centres(self.layers, height, width)


class AllConvolutional(Grid):
    """Convolutions with leaky ReLUs between them, from images (B, N, H, W) to logits (B, C+1, h, w), background last.

    The last of `layers` has C + 1 channels; images have `in_channels`, N; the `seed` decides the initial weights.
    """

    head: nn.Conv2d

    def __init__(self, layers: Sequence[Layer], in_channels: int, seed: int) -> None:
        super().__init__()
        self.layers = tuple(layers)
        inputs = [in_channels, *(layer.channels for layer in layers)]
        convolutions = [nn.Conv2d(n, *layer) for n, layer in zip(inputs, self.layers, strict=False)]
        self.body = nn.Sequential(*(m for c in convolutions[:-1] for m in (c, nn.LeakyReLU(SLOPE))))
        self.head = convolutions[-1]
        initialise(self, seed)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (B, C+1, h, w) of images (B, N, H, W)."""
        logits: Tensor = self.head(self.body(images))
        return logits


class Classifier(AllConvolutional):
    """The same without a background, for losses with the head "class".

    The last layer has C channels; a background channel of zeros, which these losses ignore, is added.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (B, C+1, h, w) of images (B, N, H, W)."""
        return nn.functional.pad(super().forward(images), (0, 0, 0, 0, 0, 1))


def standardised(network: nn.Module, images: tuple[Tensor]) -> Tensor:  # noqa: ARG001 the signature of a hook
    """Return the images (B, N, H, W) of a network, each with mean 0 and standard deviation 1: a forward pre-hook.

    It is divided by `LEAST_CONTRAST` at least, so that the noise of a flat image is not amplified.
    """
    spread, mean = torch.std_mean(images[0], dim=(1, 2, 3), correction=0, keepdim=True)
    return (images[0] - mean) / spread.clamp(min=LEAST_CONTRAST)
