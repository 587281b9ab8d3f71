"""Standardising instances before a network sees them, in the same way for every network."""

import torch
from torch import Tensor, nn

ROUNDING = 1e-7
"""A standard deviation below this share of the mean may come from rounding alone.

Rounding to float32 changes a number by up to 6e-8 of its size.
"""
LEAST_CONTRAST = 1 / 32
"""The smallest standard deviation by which an image in [0, 1] is divided: 8 of 256 levels."""


def divisors(mean: Tensor, spread: Tensor) -> Tensor:
    """Return what each feature is divided by: its standard deviation, `spread`.

    It is 1 where rounding alone can have caused the standard deviation. The comparison is relative
    to the mean, so that the unit of a feature does not matter.
    """
    return torch.where(spread > ROUNDING * mean.abs(), spread, 1)


class StandardiseFeatures(nn.Module):
    """Subtract the mean of each feature of instances (B, K, D), and divide by `divisors`.

    Mean and divisor (D,) are stored with the weights of the network.
    """

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
    """Scale each image of (B, N, H, W) to mean 0 and standard deviation 1.

    An image is divided by at least `LEAST_CONTRAST`, so that the noise of an almost uniform image
    is not amplified.
    """

    def forward(self, images: Tensor) -> Tensor:
        spread, mean = torch.std_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
        return (images - mean) / spread.clamp(min=LEAST_CONTRAST)
