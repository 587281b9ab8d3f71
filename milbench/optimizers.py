"""Optimisers and learning-rate schedules by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch

from milbench.errors import unknown
from milbench.recipe import Recipe

Parameters = Iterable[torch.nn.Parameter]
OptimizerMaker = Callable[[Parameters, Recipe], torch.optim.Optimizer]
Schedule = Callable[[int, int], float]
"""From the step (from 0) and the number of steps to the factor of the peak learning rate: nothing to checkpoint."""


def _adamw(parameters: Parameters, recipe: Recipe) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)


def _sgd(parameters: Parameters, recipe: Recipe) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=recipe.lr, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay)


def _one_cycle(step: int, steps: int) -> float:
    """Rise from 1/25 by a cosine over the first 30 %, then fall to 1/250,000 by another (Smith and Topin 2017)."""
    peak = 0.3 * steps
    if step < peak:
        return _cosine(1 / 25, 1.0, step / peak)
    return _cosine(1.0, 4e-6, (step - peak) / max(steps - 1 - peak, 1))


def _drop_at_half(step: int, steps: int) -> float:
    return 1.0 if 2 * step < steps else 0.1


def _constant(step: int, steps: int) -> float:  # noqa: ARG001 the signature of a schedule
    return 1.0


OPTIMIZERS: dict[str, OptimizerMaker] = {"adamw": _adamw, "sgd": _sgd}
SCHEDULES: dict[str, Schedule] = {"one-cycle": _one_cycle, "drop-at-half": _drop_at_half, "constant": _constant}


def check_names(recipe: Recipe) -> None:
    """Raise UsageError if the recipe names an optimiser or a schedule that is not here."""
    if recipe.optimizer not in OPTIMIZERS:
        raise unknown("optimizer", recipe.optimizer, OPTIMIZERS)
    if recipe.schedule not in SCHEDULES:
        raise unknown("schedule", recipe.schedule, SCHEDULES)


def make_optimizer(parameters: Parameters, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimiser over `parameters`."""
    return OPTIMIZERS[recipe.optimizer](parameters, recipe)


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Return the learning rate of one step (from 0) out of `steps`."""
    return recipe.lr * SCHEDULES[recipe.schedule](step, steps)


def _cosine(start: float, end: float, fraction: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2
