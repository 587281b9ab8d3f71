"""The networks of extended MNIST and MNIST: those of X.-L. Li, arXiv:1811.12346, 2018, and small ones beside them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from milbench.api.geometry import Layer
from milbench.api.network import Network, NetworkMaker
from milbench.networks.convolutional import AllConvolutional, Classifier

_SMALL_RECIPE: Mapping[str, Any] = MappingProxyType({"lr": 3e-3, "weight_decay": 0.1})
"""Chosen with `exact` on validation digits, as the layers of the small network were."""
_SMALL = (Layer(16, 5, stride=2, padding=2), Layer(32, 3, padding=1), Layer(32, 3, stride=2, padding=1),
          Layer(64, 3, padding=1))  # fmt: skip


def paper(inputs: int, num_classes: int, seed: int) -> Network:
    """Make the paper's six 5x5 convolutions: 28 pixels give 4 positions, 56 give 18, 84 give 32."""
    same = Layer(64, 5, padding=2)
    layers = (same, same, Layer(64, 5, stride=2, padding=2), Layer(64, 5, padding=1), Layer(64, 5),
              Layer(num_classes + 1, 5))  # fmt: skip
    return AllConvolutional(layers, inputs, seed)


class Small(AllConvolutional):
    """Seven convolutions with batch norm, 1/22 of the paper's cost: 28 pixels give 3 positions, 56 give 10, 84 17."""

    recipe: ClassVar[Mapping[str, Any]] = _SMALL_RECIPE

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        last = Layer(64, 3, padding=1), Layer(64, 3), Layer(num_classes + 1, 3)
        super().__init__((*_SMALL, *last), inputs, seed, batch_norm=True)


def paper_baseline(inputs: int, num_classes: int, seed: int) -> Network:
    """Make the paper's network with less padding: 28 pixels give 1 position."""
    same, last = Layer(64, 5, padding=2), Layer(num_classes, 5)
    return Classifier((same, same, Layer(64, 5, stride=2, padding=1), Layer(64, 5), Layer(64, 5), last), inputs, seed)


class SmallBaseline(Classifier):
    """The small network with less padding: 28 pixels give 1 position."""

    recipe: ClassVar[Mapping[str, Any]] = _SMALL_RECIPE

    def __init__(self, inputs: int, num_classes: int, seed: int) -> None:
        last = Layer(64, 3), Layer(64, 3), Layer(num_classes, 3)
        super().__init__((*_SMALL, *last), inputs, seed, batch_norm=True)


NETWORKS: Mapping[str, NetworkMaker] = MappingProxyType({"paper": paper, "small": Small})
BASELINES: Mapping[str, NetworkMaker] = MappingProxyType({"paper": paper_baseline, "small": SmallBaseline})
"""For losses that name one class of an image."""
