"""What several tasks share of X.-L. Li, arXiv:1811.12346: the protocol of the published runs, and the MNIST network.

Keys of a protocol name a setting as reports do: `recipe.x`, `task.x` or `loss.x`. A run that differs from the published
one in `PROTOCOL` is not compared with it; one that differs in `MINOR` is, with a note.
"""

from __future__ import annotations

from typing import Any

from milbench.networks.convolutional import Layer

LI_2018 = "X.-L. Li, arXiv:1811.12346, 2018"
RULE = "smallest test error of all epochs"
"""How the published figures were selected."""
PROTOCOL: dict[str, Any] = {
    "recipe.optimizer": "psgd",
    "recipe.schedule": "drop-at-half",
    "recipe.head_init": "paper",
    "recipe.steps_per_epoch": None,
    "task.any_data": False,
}
"""Settings of the published runs on MNIST, extended MNIST and CIFAR-10."""
MINOR: dict[str, Any] = {
    "recipe.weight_decay": 0.0,
    "recipe.clip_norm": None,
    "recipe.clip_rms": 0.1,
    "recipe.precision": "float32",
    "task.validation": 0,
}
"""Further settings of these runs, from which a comparable run may differ."""
AS_EXACT = {"loss.per_position": True, "loss.rule": "sum"}
"""Parameters of the loss `exact` in the published runs."""


def mnist_layers(num_classes: int) -> tuple[Layer, ...]:
    """Return the network for MNIST and extended MNIST: 28 pixels give 4 positions, 56 give 18, 84 give 32."""
    same = Layer(64, 5, padding=2)
    return (same, same, Layer(64, 5, stride=2, padding=2), Layer(64, 5, padding=1), Layer(64, 5),
            Layer(num_classes + 1, 5))  # fmt: skip
