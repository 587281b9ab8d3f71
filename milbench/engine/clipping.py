"""Rules that shorten the gradient of a step: an absolute limit, a limit from its own history, or one length for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from milbench.api.recipe import Recipe


@dataclass
class Clipping:
    """The clipping rule of a recipe, with what it remembers of earlier gradients.

    The lengths of gradients stay on their device, so that the host does not wait for a GPU.

    Args:
        norm: the largest length, to which longer gradients are shortened; None: there is none.
        quantile: the limit is this quantile of the lengths of all gradients so far, the present one included.
        normalize: every gradient gets length 1; one of length 0 stays 0.
    """

    norm: float | None = None
    quantile: float | None = None
    normalize: bool = False
    _lengths: Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)
    _steps: int = field(default=0, init=False, repr=False)

    @classmethod
    def of(cls, recipe: Recipe) -> Clipping:
        """Return the rule of a recipe, before the first step."""
        return cls(recipe.clip_norm, recipe.clip_quantile, recipe.normalize_gradient)

    def apply(self, parameters: Sequence[Tensor]) -> Tensor:
        """Change the gradients of the parameters by the rule.

        Args:
            parameters: with the gradient of this step; those without a gradient are left out.

        Returns:
            (), nonzero where the gradient was shortened or brought to length 1.
        """
        if self.quantile is None and not self.normalize:
            limit = math.inf if self.norm is None else self.norm
            return torch.nn.utils.clip_grad_norm_(parameters, limit) > limit
        gradients = [p.grad for p in parameters if p.grad is not None]
        length = torch.nn.utils.get_total_norm(gradients)
        wanted = torch.ones_like(length)
        if self.quantile is not None:
            wanted = torch.minimum(length, self._limit(length, self.quantile))
        factor = torch.where(length > 0, wanted / length, 1.0)
        torch._foreach_mul_(gradients, factor)
        return factor != 1

    def _limit(self, length: Tensor, quantile: float) -> Tensor:
        """Return the limit for a gradient of this length, and remember the length."""
        self._lengths = self._lengths.to(length.device)
        if self._steps >= len(self._lengths):
            room = torch.zeros(max(2 * self._steps, 1024), device=length.device)
            room[: self._steps] = self._lengths[: self._steps]
            self._lengths = room
        self._lengths[self._steps] = length
        self._steps += 1
        return torch.quantile(self._lengths[: self._steps], quantile).to(length)

    def state_dict(self) -> dict[str, Any]:
        """Return what the rule remembers, for a checkpoint."""
        return {"lengths": self._lengths[: self._steps].cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set what the rule remembers to what `state_dict` returned."""
        self._lengths = state["lengths"]
        self._steps = len(self._lengths)
