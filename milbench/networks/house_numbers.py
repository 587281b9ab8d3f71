"""The paper's networks for house numbers, of three widths."""

from __future__ import annotations

from typing import Literal

from milbench.networks.convolutional import Layer

Size = Literal["small", "medium", "large"]
WIDTHS: dict[Size, tuple[int, int, int]] = {"small": (48, 64, 96), "medium": (96, 128, 192), "large": (128, 192, 256)}


def house_number_layers(size: Size, num_classes: int = 10) -> tuple[Layer, ...]:
    """Return the paper's ten 5x5 convolutions, the fourth with stride 2: 64 pixels give 28 positions, 60 give 26."""
    a, b, c = WIDTHS[size]
    first_three, then = (Layer(a, 5, padding=2),) * 3, (Layer(b, 5, padding=2),) * 2
    return (*first_three, Layer(b, 5, stride=2, padding=2), *then, *(Layer(c, 5, padding=2),) * 3,
            Layer(num_classes + 1, 5))  # fmt: skip
