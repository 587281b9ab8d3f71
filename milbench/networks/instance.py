"""A perceptron that is applied to each instance of a bag of unordered instances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from milbench.api.task import Network
from milbench.networks.initialisation import SLOPE, initialise


class InstanceMLP(Network):
    """The same perceptron for every instance, from bags (B, K, D) to logits (B, C+1, K), background last.

    Args:
        widths: of all layers, from D to C + 1.
        seed: decides the initial weights.
    """

    head: nn.Linear

    def __init__(self, widths: Sequence[int], seed: int) -> None:
        super().__init__()
        linear = [nn.Linear(n, m) for n, m in pairwise(widths)]
        self.body = nn.Sequential(*(m for layer in linear[:-1] for m in (layer, nn.LeakyReLU(SLOPE))))
        self.head = linear[-1]
        initialise(self, seed)

    def forward(self, instances: Tensor) -> Tensor:
        """Return the logits (B, C+1, K) of instances (B, K, D)."""
        logits: Tensor = self.head(self.body(instances))
        return logits.transpose(1, 2)
