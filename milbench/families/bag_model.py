"""How bags of Gaussian instances are made: their sizes, their label sets, and which background they have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.families.conditioned_draws import ConditionedDraws
from milbench.families.label_set_prior import LabelSetPrior, contains


@dataclass(frozen=True, slots=True, eq=False)
class BagModel:
    """The distribution of bags, apart from where classes and background lie.

    Args:
        sizes: the smallest and the largest number of instances, all as probable.
        draws: of label sets and classes; None: instances are independent.
        context: the share of the background that is context, in bags without class 0 and with it.
    """

    sizes: tuple[int, int]
    draws: ConditionedDraws | None
    context: tuple[float, float]

    def is_context(self, uniform: Tensor, labels: Tensor) -> Tensor:
        """Return (B, K) bool, which background is context, by draws (B, K) from [0, 1) and the label sets (B, C)."""
        without, having = self.context
        return torch.where(labels[:, :1], uniform < having, uniform < without)


def marginal_rates(model: BagModel, prior: LabelSetPrior, rates: Tensor) -> tuple[Tensor, float]:
    """Return how probable each class is (C+1,) for one instance of an unknown bag, and which background is context.

    With pi_n(L) the prior of label sets, q_n(L) that of n independent instances, and r their rates, as in
    `LabelSetPrior`,

        P(z_k = c, L) = pi_n(L) / q_n(L) r_c (q_{n-1}(L) + q_{n-1}(L - c)) for c in L,
        P(z_k = background, L) = pi_n(L) / q_n(L) r_background q_{n-1}(L).

    A bag of n has n instances, so that sizes count by n.
    """
    low, high = model.sizes
    classes = len(rates) - 1
    others = prior.log_independent[low - 1 : high].exp()  # q_{n-1}, (N, 2^C)
    weight = prior.log_weight[low : high + 1].exp() * torch.arange(low, high + 1).unsqueeze(1)
    sets, bits = torch.arange(2**classes).unsqueeze(1), 2 ** torch.arange(classes)
    follow = (others.unsqueeze(2) + others[:, sets & ~bits]) * contains(classes)
    of_class = torch.einsum("ns,nsc->c", weight, follow) * rates[:-1]
    of_background = (weight * others).sum(dim=0) * rates[-1]
    total = of_class.sum() + of_background.sum()
    having = float(of_background[contains(classes)[:, 0]].sum() / of_background.sum().clamp(min=1e-300))
    without_context, with_context = model.context
    context = without_context * (1 - having) + with_context * having
    return torch.cat([of_class, of_background.sum().unsqueeze(0)]) / total, context
