"""An optimiser."""

from collections.abc import Callable

import torch

from milbench import Recipe


class Signs(torch.optim.Optimizer):
    """Steps of the sign of the gradient."""

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad.sign()


def signs(model: torch.nn.Module, recipe: Recipe, seed: int) -> torch.optim.Optimizer:
    """Move every weight by the learning rate, against the sign of its gradient."""
    return Signs(list(model.parameters()), recipe.lr)
