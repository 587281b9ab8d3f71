"""The networks of X.-L. Li, arXiv:1811.12346, 2018, Section 5.4, for house numbers, in three sizes."""

from __future__ import annotations

from functools import partial

from milbench.api.geometry import Layer
from milbench.api.network import Network, NetworkMaker
from milbench.networks.convolutional import AllConvolutional

WIDTHS = {"small": (48, 64, 96), "medium": (96, 128, 192), "large": (128, 192, 256)}


def _network(size: str, inputs: int, num_classes: int, seed: int) -> Network:
    """Make the paper's ten 5x5 convolutions for house numbers: 64 pixels give 28 positions."""
    a, b, c = WIDTHS[size]
    layers = [*(Layer(a, 5, padding=2),) * 3, Layer(b, 5, stride=2, padding=2), *(Layer(b, 5, padding=2),) * 2,
              *(Layer(c, 5, padding=2),) * 3, Layer(num_classes + 1, 5)]  # fmt: skip
    return AllConvolutional(layers, inputs, seed)


HOUSE_NUMBERS: dict[str, NetworkMaker] = {size: partial(_network, size) for size in WIDTHS}
