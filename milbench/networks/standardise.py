"""How instances are scaled before a network sees them, so that every network gets them alike."""

import torch
from torch import Tensor, nn

ROUNDING = 1e-7
"""A spread below this share of the mean may come from rounding: float32 numbers are off by up to 6e-8 of their size."""
LEAST_CONTRAST = 1 / 32
"""Smallest standard deviation that an image in [0, 1] is divided by: eight of 256 levels."""


def divisors(mean: Tensor, spread: Tensor) -> Tensor:
    """Return the standard deviation of each feature, whatever its unit, or 1 where rounding alone can cause it."""
    return torch.where(spread > ROUNDING * mean.abs(), spread, 1)


class StandardiseFeatures(nn.Module):
    """Features (B, K, D) less their mean, divided by `divisors`; both (D,) are stored with the network's weights."""

    mean: Tensor
    divisor: Tensor

    def __init__(self, mean: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("divisor", divisors(mean, spread).float())

    def forward(self, instances: Tensor) -> Tensor:
        centred = instances - self.mean
        # In place, since a batch may take half a gigabyte.
        return centred.div_(self.divisor)


class StandardiseImages(nn.Module):
    """Images (B, N, H, W), each with mean 0 and standard deviation 1.

    An image is divided by `LEAST_CONTRAST` at least, so that the noise of a flat one is not
    amplified.
    """

    def forward(self, images: Tensor) -> Tensor:
        spread, mean = torch.std_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
        return (images - mean) / spread.clamp(min=LEAST_CONTRAST)
