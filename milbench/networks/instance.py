"""A perceptron that is applied to each instance of a bag of unordered instances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from milbench.api.task import Network
from milbench.networks.initialisation import SLOPE, initialise

ROUNDING = 1e-7
"""A spread of a smaller share of the mean is one of rounding: numbers of 32 bits are off by 6e-8 of their size."""


def divisors(mean: Tensor, spread: Tensor) -> Tensor:
    """Return what each feature is divided by: its standard deviation, whatever its unit, or 1 where it is constant.

    A standard deviation that rounding alone can cause counts as 0.
    """
    return torch.where(spread > ROUNDING * mean.abs(), spread, 1)


class InstanceMLP(Network):
    """The same perceptron for every instance, from bags (B, K, D) to logits (B, C+1, K), background last.

    Args:
        widths: of all layers, from D to C + 1.
        seed: decides the initial weights.
        mean: (D,), is subtracted from every instance, and stored with the weights; None: instances stay as they are.
        scale: (D,), the standard deviations, divide every instance then, but for features that are constant.
    """

    head: nn.Linear
    mean: Tensor | None
    scale: Tensor | None

    def __init__(
        self, widths: Sequence[int], seed: int, mean: Tensor | None = None, scale: Tensor | None = None
    ) -> None:
        super().__init__()
        # Buffers that are None are in no file of weights.
        self.register_buffer("mean", None if mean is None else mean.float())
        self.register_buffer("scale", None if mean is None or scale is None else divisors(mean, scale).float())
        linear = [nn.Linear(n, m) for n, m in pairwise(widths)]
        self.body = nn.Sequential(*(m for layer in linear[:-1] for m in (layer, nn.LeakyReLU(SLOPE))))
        self.head = linear[-1]
        initialise(self, seed)

    def forward(self, instances: Tensor) -> Tensor:
        """Return the logits (B, C+1, K) of instances (B, K, D)."""
        if self.mean is not None and self.scale is not None:
            instances = (instances - self.mean).div_(self.scale)  # in place: a batch may take half a gigabyte
        logits: Tensor = self.head(self.body(instances))
        return logits.transpose(1, 2)
