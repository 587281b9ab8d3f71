"""The protocol of the published runs of X.-L. Li, arXiv:1811.12346, which several tasks share.

A protocol names settings as reports do: `recipe.x`, `task.x` or `loss.x`. A report compares a run
with a published one only if the run has all of these settings. Where a setting has several values
in parentheses, the first is that of the source. The run may have any of them, and its report says
where it is not the first.
"""

from typing import Any

LI_2018 = "X.-L. Li, arXiv:1811.12346, 2018"
RULE = "by the smallest test error of all epochs, as in the author's program (our reading)"
"""How the published runs chose the epoch whose error they state."""
TWICE_THE_SPREAD = (
    "The margin is twice the printed standard deviation: about where single runs of the source lie."
)
"""Why a margin beside a published value is as wide as it is."""
RECIPE: dict[str, Any] = {
    "recipe.optimizer": "psgd",
    "recipe.weight_decay": 0.0,
    "recipe.head_init": "paper",
    "recipe.steps_per_epoch": None,
    # The runs of 2018 are older than tf32, with which torch convolves on a GPU by default.
    "recipe.precision": ("float32", "tf32"),
    "recipe.evaluate_every": 1,
    "task.validation": 0,
}
"""Settings of all published runs."""
PROTOCOL: dict[str, Any] = {
    **RECIPE,
    "recipe.schedule": "drop-at-half",
    "recipe.gradient_norm": "rms:0.1",
    "task.any_data": False,
    "network": "paper",
}
"""Settings of the published runs on MNIST, extended MNIST and CIFAR-10."""
AS_EXACT: dict[str, Any] = {
    "loss.divide_by": ("bag", "batch"),
    "loss.rule": "sum",
    "loss.method": ("auto", "exact"),
}
"""Parameters of the loss `exact` in the published runs.

All bags of a batch have the same size there, so that dividing by the size of the bag equals
dividing by the mean size in the batch.
"""
