"""What several tasks share of X.-L. Li, arXiv:1811.12346: the protocol of the published runs, and the MNIST network.

Keys of a protocol name a setting as reports do: `recipe.x`, `task.x` or `loss.x`. A run that differs from the published
one in any of them is not compared with it.
"""

from __future__ import annotations

from typing import Any

from milbench.networks.convolutional import Layer

LI_2018 = "X.-L. Li, arXiv:1811.12346, 2018"
RULE = "by the smallest test error of all epochs, as in the author's program (our reading)"
"""How the published figures were selected."""
TWICE_THE_SPREAD = "The margin is twice the printed standard deviation: about where single runs of the source lie."
"""Why a margin is what it is."""
RECIPE: dict[str, Any] = {
    "recipe.optimizer": "psgd",
    "recipe.weight_decay": 0.0,
    "recipe.head_init": "paper",
    "recipe.steps_per_epoch": None,
    "recipe.clip_norm": None,
    "recipe.clip_quantile": None,
    "recipe.normalize_gradient": False,
    "recipe.precision": "float32",
    "recipe.evaluate_every": 1,
    "recipe.interim_bags": None,
    "task.validation": 0,
}
"""Settings of all published runs."""
PROTOCOL: dict[str, Any] = {**RECIPE, "recipe.schedule": "drop-at-half", "recipe.clip_rms": 0.1, "task.any_data": False}
"""Settings of the published runs on MNIST, extended MNIST and CIFAR-10."""
AS_EXACT: dict[str, Any] = {
    "loss.divide_by": ("bag", "batch"),
    "loss.rule": "sum",
    "loss.method": ("auto", "exact"),
}
"""Parameters of the loss `exact` in the published runs. All bags of their batches have one size, so that to divide by
the size of the bag and by the mean size in the batch is the same."""


def mnist_layers(num_classes: int) -> tuple[Layer, ...]:
    """Return the network for MNIST and extended MNIST: 28 pixels give 4 positions, 56 give 18, 84 give 32."""
    same = Layer(64, 5, padding=2)
    return (same, same, Layer(64, 5, stride=2, padding=2), Layer(64, 5, padding=1), Layer(64, 5),
            Layer(num_classes + 1, 5))  # fmt: skip
