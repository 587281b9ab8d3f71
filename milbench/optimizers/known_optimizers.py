"""Optimisers and learning-rate schedules by name.

Packages add optimisers as entry points `milbench.optimizers`.
"""

import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from milbench.contracts.recipe import Recipe, gradient_rule
from milbench.contracts.registry import Registry, built_in_functions
from milbench.errors import UsageError, unknown
from milbench.optimizers.muon import Muon
from milbench.optimizers.psgd import KroneckerPSGD

OptimizerMaker = Callable[[torch.nn.Module, Recipe, int], torch.optim.Optimizer]
"""From a model, a recipe and a seed to an optimiser in its initial state.

It optimises the trainable parameters of the model. Its random numbers must depend on the seed
alone. Before every step its learning rate is set in all `param_groups`.
"""
Schedule = Callable[[int, int], float]
"""From a step (from 0) and the number of all steps to a factor of the peak learning rate.

A schedule has no state, so checkpoints need not hold it.
"""


def _torch_maker(cls: Any, **fixed: Any) -> OptimizerMaker:
    """Return the maker of an optimiser of torch.

    Learning rate and weight decay are those of the recipe, where the optimiser has them. Other
    settings are `fixed`, or have torch's defaults.
    """
    arguments = inspect.signature(cls).parameters

    def make(
        model: torch.nn.Module,
        recipe: Recipe,
        seed: int,  # noqa: ARG001 it uses no random numbers
    ) -> torch.optim.Optimizer:
        settings = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
        accepted = {key: value for key, value in settings.items() if key in arguments}
        optimizer: torch.optim.Optimizer = cls(model.parameters(), **accepted, **fixed)
        return optimizer

    settings_text = [f"{key} = {value}" for key, value in fixed.items()]
    make.__doc__ = ", ".join([f"torch.optim.{cls.__name__}", *settings_text])
    return make


def _psgd(model: torch.nn.Module, recipe: Recipe, seed: int) -> torch.optim.Optimizer:
    """Preconditioned stochastic gradient descent (PSGD) with Kronecker products.

    It computes exact Hessian-vector products.
    """
    rule, number = gradient_rule(recipe.gradient_norm)
    clip_rms = number if rule == "rms" else None
    return KroneckerPSGD(model, lr=recipe.lr, clip_rms=clip_rms, seed=seed)


def _muon(
    model: torch.nn.Module,
    recipe: Recipe,
    seed: int,  # noqa: ARG001 it uses no random numbers
) -> torch.optim.Optimizer:
    """Muon for the weights of every layer, AdamW for biases; it needs torch 2.9 or later."""
    if not hasattr(torch.optim, "Muon"):
        raise UsageError(
            f"the optimizer 'muon' needs torch 2.9 or later, and this is {torch.__version__}"
        )
    return Muon(model, lr=recipe.lr, weight_decay=recipe.weight_decay)


_UNSUITABLE = ("optimizer", "lbfgs", "sparseadam", "muon", "adafactor", "asgd")
"""The names in `torch.optim` that are no choice for a recipe.

They are the base class, optimisers that need more than gradients or make the CPU wait for the GPU,
and torch's Muon, which `_muon` replaces.
"""


def _optimizers_of_torch() -> dict[str, OptimizerMaker]:
    """Return name -> the maker, for the suitable optimisers of torch."""
    makers = {}
    for class_name, cls in vars(torch.optim).items():
        is_optimizer = inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)
        name = class_name.lower()
        if is_optimizer and name not in _UNSUITABLE:
            makers[name] = _torch_maker(cls)
    return makers


OPTIMIZERS: dict[str, OptimizerMaker] = {
    **_optimizers_of_torch(),
    "sgd": _torch_maker(torch.optim.SGD, momentum=0.9, nesterov=True),
    "muon": _muon,
    "psgd": _psgd,
}
"""The optimisers of torch, by their names in lower case, and those of milbench."""
_ONE_CYCLE = {"schedule": "one-cycle", "gradient_norm": "unit"}
OPTIMIZER_DEFAULTS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 1e-3, **_ONE_CYCLE},
    "sgd": {"lr": 0.05, **_ONE_CYCLE},
    "muon": {"lr": 2e-3, **_ONE_CYCLE},
    "psgd": {"lr": 0.02, "schedule": "drop-at-half", "gradient_norm": "rms:0.1"},
}
"""Optimiser -> the settings that a recipe gets where the task's own recipe has another optimiser.

The settings of psgd are as published.
"""


def _one_cycle(step: int, steps: int) -> float:
    """Rise from 1/25 to 1 over the first 30 % of the steps, then fall to 1/250,000.

    Both follow half a cosine (L. N. Smith and N. Topin, 2017).
    """
    peak = 0.3 * steps
    if step < peak:
        return _along_cosine(1 / 25, 1.0, step / peak)
    # The fall ends at the last step, which has the number steps - 1. In a training of one or two
    # steps the difference is less than 1, and may be negative.
    steps_of_fall = max(steps - 1 - peak, 1)
    return _along_cosine(1.0, 4e-6, (step - peak) / steps_of_fall)


def _along_cosine(start: float, end: float, fraction: float) -> float:
    """Return the value at a fraction of the way from start to end, along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2


def _drop_at_half(step: int, steps: int) -> float:
    """Fall to a tenth after half of the steps."""
    return 1.0 if 2 * step < steps else 0.1


def _drop_at_thirds(step: int, steps: int) -> float:
    """Fall to a tenth after a third of the steps, and to a hundredth after two thirds."""
    if 3 * step < steps:
        return 1.0
    if 3 * step < 2 * steps:
        return 0.1
    return 0.01


def _constant(step: int, steps: int) -> float:  # noqa: ARG001
    return 1.0


SCHEDULES: dict[str, Schedule] = {
    "one-cycle": _one_cycle,
    "drop-at-half": _drop_at_half,
    "drop-at-thirds": _drop_at_thirds,
    "constant": _constant,
}


@cache
def optimizers() -> Registry[OptimizerMaker]:
    """Return the registry of optimisers."""
    return Registry("optimizer", "optimizers", built_in_functions(OPTIMIZERS))


def check_recipe(recipe: Recipe) -> None:
    """Raise UsageError where the recipe names an unknown optimiser or schedule.

    A setting that has no effect with the optimiser is refused too.
    """
    optimizers().get(recipe.optimizer)
    if recipe.schedule not in SCHEDULES:
        raise unknown("schedule", recipe.schedule, SCHEDULES)
    rule, number = gradient_rule(recipe.gradient_norm)
    if rule == "rms" and recipe.optimizer != "psgd":
        raise UsageError(
            f"recipe.gradient_norm = {recipe.gradient_norm} is for psgd alone, "
            f"not {recipe.optimizer}; did you mean max:{number:g}?"
        )
    if recipe.weight_decay and recipe.optimizer == "psgd":
        raise UsageError(
            f"recipe.weight_decay = {recipe.weight_decay}: psgd has none; leave it at 0"
        )


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Return the learning rate of one step (from 0) out of all steps of a training."""
    return recipe.lr * SCHEDULES[recipe.schedule](step, steps)
