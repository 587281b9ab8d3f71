"""The rules for the length of a gradient, see `Recipe.gradient_norm`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from milbench.contracts.recipe import gradient_rule


class GradientNorm:
    """The rule of a recipe for the length of gradients.

    The rule `quantile` needs the norms of all earlier gradients, which are kept on their device.
    """

    def __init__(self, rule: str) -> None:
        self.rule, self.number = gradient_rule(rule)
        self._norms = torch.empty(0)

    def apply(self, parameters: Sequence[Tensor]) -> Tensor:
        """Change the gradients of parameters by the rule. Return whether they changed: () bool."""
        # The optimiser psgd applies `rms` itself, to its steps.
        if self.rule in ("none", "rms"):
            return torch.zeros((), dtype=torch.bool)
        if self.rule == "max":
            norm_before = torch.nn.utils.clip_grad_norm_(parameters, self.number)
            return norm_before > self.number
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        new_norm = self._new_norm(norm)
        # A gradient of 0 has no direction, and stays 0.
        factor = torch.where(norm > 0, new_norm / norm, 1.0)
        for gradient in gradients:
            gradient.mul_(factor)
        return factor != 1

    def _new_norm(self, norm: Tensor) -> Tensor:
        """Return the norm () that a gradient of this norm () gets, by `unit` or `quantile`."""
        if self.rule == "unit":
            return torch.ones_like(norm)
        self._norms = torch.cat([self._norms.to(norm.device), norm.reshape(1)])
        limit = torch.quantile(self._norms, self.number).to(norm)
        return torch.minimum(norm, limit)

    def state_dict(self) -> dict[str, Any]:
        """Return what the rule remembers, for a checkpoint."""
        return {"norms": self._norms.cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set what the rule remembers."""
        self._norms = state["norms"]
