"""Networks: the all-convolutional ones of the paper, and instance-wise ones for bags of unordered instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from milbench.api.task import Network
from milbench.networks.initialisation import SLOPE, initialise

LEAST_CONTRAST = 1 / 32
"""Of images in [0, 1]: eight of 256 levels."""


class Layer(NamedTuple):
    """A square convolution: output channels, kernel size, stride and zero padding, in pixels of its input."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0


def output_size(layers: Sequence[Layer], size: int) -> int:
    """Return how many positions lie along a side of `size` pixels."""
    for layer in layers:
        size = (size + 2 * layer.padding - layer.kernel) // layer.stride + 1
    return size


def position_centres(layers: Sequence[Layer], height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return where in the image the positions look: y of every row and x of every column of the output, float64.

    The centre of a position's receptive field in pixels, on the scale of `milbench.api.bags.Truth.boxes`: the left edge
    of the image is 0 and the middle of its first pixel 0.5.
    """
    first, step = 0.5, 1
    for layer in layers:
        first += step * ((layer.kernel - 1) / 2 - layer.padding)
        step *= layer.stride
    rows, columns = output_size(layers, height), output_size(layers, width)
    return first + step * torch.arange(rows).double(), first + step * torch.arange(columns).double()


class AllConvolutional(Network):
    """Convolutions with leaky ReLUs between them: images (B, N, H, W) to logits (B, C+1, h, w), background last.

    standardised: whether every image is first brought to mean 0 and standard deviation 1, over all of its pixels and
    channels.
    """

    head: nn.Conv2d

    def __init__(self, layers: Sequence[Layer], in_channels: int, seed: int, *, standardised: bool = False) -> None:
        super().__init__()
        self.layers = tuple(layers)
        self.standardised = standardised
        inputs = [in_channels, *(layer.channels for layer in layers)]
        convolutions = [nn.Conv2d(n, *layer) for n, layer in zip(inputs, self.layers, strict=False)]
        self.body = nn.Sequential(*(m for c in convolutions[:-1] for m in (c, nn.LeakyReLU(SLOPE))))
        self.head = convolutions[-1]
        initialise(self, seed)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (B, C+1, h, w) of images (B, N, H, W)."""
        logits: Tensor = self.head(self.body(standardise(images) if self.standardised else images))
        return logits

    def output_shape(self, height: int, width: int) -> tuple[int, int]:
        """Return (h, w), the positions that an image of this size has."""
        return output_size(self.layers, height), output_size(self.layers, width)

    def position_centres(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return y of every row and x of every column of positions, see `position_centres` of this module."""
        return position_centres(self.layers, height, width)


class Classifier(AllConvolutional):
    """The same without a background: images (B, N, H, W) to logits (B, C+1, h, w) whose last channel is a constant 0.

    The layers end with C channels. What a loss of head "class" gets: it does not read the channel that is not there.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (B, C+1, h, w) of images (B, N, H, W)."""
        return nn.functional.pad(super().forward(images), (0, 0, 0, 0, 0, 1))


def standardise(images: Tensor) -> Tensor:
    """Return images (B, N, H, W) with mean 0 and standard deviation 1 each; one without contrast becomes near 0.

    A photograph of little contrast then looks to a network like one of much. The smallest deviation divided by is
    LEAST_CONTRAST: an image that is flat but for noise does not become noise alone.
    """
    spread, mean = torch.std_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
    return (images - mean) / spread.clamp(min=LEAST_CONTRAST)
