"""Bags of Gaussian instances: their sizes and label sets, wrong ones too, and where classes and background lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench._utils.devices import to_device
from milbench.families.conditioned_draws import ConditionedDraws
from milbench.families.label_set_prior import LabelSetPrior, contains


@dataclass(frozen=True, slots=True, eq=False)
class BagModel:
    """The distribution of bags, apart from where classes and background lie.

    All sizes from the smallest to the largest are as probable. `draws` are of label sets and classes; None: instances
    are independent. `context` is the share of the background that is context, in bags without class 0 and with it.
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


def class_rates(num_classes: int, rate: float, imbalance: float) -> Tensor:
    """Return (C+1,) float64, the probability of each class, background last; `rate` is the mean of classes.

    `imbalance` is that of the first class divided by that of the last; those between fall geometrically.
    """
    classes = torch.full((num_classes,), rate, dtype=torch.float64)
    if imbalance != 1:
        falling = imbalance ** -torch.linspace(0, 1, num_classes, dtype=torch.float64)
        classes = falling * (num_classes * rate / falling.sum())
    return torch.cat([classes, torch.tensor([1 - num_classes * rate], dtype=torch.float64)])


def clusters(
    num_classes: int, dimension: int, separation: float, background_scale: float, *, context: bool
) -> tuple[Tensor, Tensor]:
    """Return the means (M, d) and the standard deviations (M,) of the C classes, the background, and its context.

    Class c is at separation/sqrt(2) on axis c, the background at 0, and the context, a second kind of background, where
    class C would be; any two of classes and context are `separation` apart, and have the deviation 1. M is C+1, with
    context C+2.
    """
    axes = num_classes + context
    centres = torch.eye(axes, dimension) * separation / math.sqrt(2)
    means = torch.cat([centres[:num_classes], torch.zeros(1, dimension), centres[num_classes:]])
    return means, torch.tensor([1.0] * num_classes + [background_scale] + [1.0] * context)


def log_joint(instances: Tensor, means: Tensor, scales: Tensor, rates: Tensor, context: float = 0.0) -> Tensor:
    """Return log p(z) + log p(x | z) (B, C+1, K) float64 of instances x (B, K, d) for every class z, background last.

    The same constant is left out everywhere. `means` and `scales` are those of `clusters`, `rates` (C+1,) are p(z), and
    `context` is the share of the background that is context.
    """
    classes = len(rates) - 1
    squares = (instances.double().unsqueeze(-2) - means.double()).square().sum(dim=-1)
    shares = torch.cat([rates[:-1], rates[-1:] * (1 - context), rates[-1:] * context])[: len(means)]
    variances = scales.double().square()
    joint = shares.log() - instances.shape[-1] * scales.double().log() - squares / (2 * variances)
    if context:
        background = joint[..., classes:].logsumexp(dim=-1, keepdim=True)
        return torch.cat([joint[..., :classes], background], dim=-1).transpose(1, 2)
    return joint[..., : classes + 1].transpose(1, 2)


def noisy_labels(labels: Tensor, sizes: Tensor, dropped: float, added: float, rng: torch.Generator) -> Tensor:
    """Return label sets (B, C) without a present class at the rate `dropped`, with an absent one at the rate `added`.

    Errors are independent. No bag gets more labels than it has instances, `sizes` (B,): where there is room for some of
    the wrong ones alone, chance decides.
    """
    uniform = to_device(torch.rand(labels.shape, generator=rng), labels.device)
    kept = labels & (uniform >= dropped)
    wrong = ~labels & (uniform < added)
    room = sizes - kept.sum(dim=1)
    rank = uniform.masked_fill(~wrong, torch.inf).argsort(dim=1).argsort(dim=1)
    return kept | (wrong & (rank < room.unsqueeze(1)))
