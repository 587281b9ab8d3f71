"""Gaussian instances of classes and background: where they lie, and how probable an instance is under each."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def class_rates(num_classes: int, rate: float, imbalance: float) -> Tensor:
    """Return (C+1,) float64, the probability of each class, background last; `rate` is the mean of classes.

    `imbalance` is that of the first class divided by that of the last; those between fall geometrically.

    Examples:
        >>> class_rates(3, rate=0.07, imbalance=4.0)
        tensor([0.1200, 0.0600, 0.0300, 0.7900], dtype=torch.float64)
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
