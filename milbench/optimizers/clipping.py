"""Rules for the length of a gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from milbench.api.recipe import Recipe

CLIPPING: dict[str, Any] = {"clip_norm": None, "clip_quantile": None, "normalize_gradient": False}
"""The fields of a recipe that set a rule for the length of a gradient, each with the value that sets none."""


class Clipping:
    """The clipping rule of a recipe, with the lengths of earlier gradients, which stay on their device."""

    def __init__(self, recipe: Recipe) -> None:
        self.norm, self.quantile, self.normalize = recipe.clip_norm, recipe.clip_quantile, recipe.normalize_gradient
        self._lengths = torch.empty(0)

    def apply(self, parameters: Sequence[Tensor]) -> Tensor:
        """Change the gradients of the parameters by the rule; return (), nonzero where they were changed."""
        if self.quantile is None and not self.normalize:
            limit = math.inf if self.norm is None else self.norm
            return torch.nn.utils.clip_grad_norm_(parameters, limit) > limit
        gradients = [p.grad for p in parameters if p.grad is not None]
        length = torch.nn.utils.get_total_norm(gradients)
        wanted = torch.ones_like(length)
        if self.quantile is not None:
            self._lengths = torch.cat([self._lengths.to(length.device), length.reshape(1)])
            wanted = torch.minimum(length, torch.quantile(self._lengths, self.quantile).to(length))
        factor = torch.where(length > 0, wanted / length, 1.0)
        torch._foreach_mul_(gradients, factor)
        return factor != 1

    def state_dict(self) -> dict[str, Any]:
        """Return what the rule remembers, for a checkpoint."""
        return {"lengths": self._lengths.cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set what the rule remembers."""
        self._lengths = state["lengths"]
