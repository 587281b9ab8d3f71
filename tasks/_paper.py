"""How the runs were made that X.-L. Li published, as far as several tasks share it."""

from __future__ import annotations

from typing import Any

PAPER = "X.-L. Li, arXiv:1811.12346, 2018"
RULE = "smallest test error of all epochs"
PROTOCOL: dict[str, Any] = {
    "recipe.optimizer": "psgd",
    "recipe.schedule": "drop-at-half",
    "recipe.head_init": "paper",
    "recipe.steps_per_epoch": None,
    "task.any_data": False,
}
MINOR: dict[str, Any] = {
    "recipe.weight_decay": 0.0,
    "recipe.clip_norm": None,
    "recipe.clip_rms": 0.1,
    "recipe.precision": "float32",
    "task.validation": 0,
}
AS_EXACT = {"loss.per_position": True, "loss.rule": "sum"}
