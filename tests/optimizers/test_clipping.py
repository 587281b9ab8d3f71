"""Rules for the length of a gradient, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench.optimizers.clipping import GradientNorm


def gradients(steps: int = 30) -> list[list[Tensor]]:
    """Return the gradients of two parameters in a row of steps; their lengths differ by orders of magnitude."""
    rng = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 1, steps)[torch.randperm(steps, generator=rng)]
    return [[size * torch.randn(shape, generator=rng) for shape in ((3, 2), (4,))] for size in sizes]


def applied(clipping: GradientNorm, steps: list[list[Tensor]]) -> tuple[list[Tensor], list[bool]]:
    after, changed = [], []
    for step in steps:
        parameters = [torch.zeros_like(g) for g in step]
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        changed.append(bool(clipping.apply(parameters)))
        after.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
    return after, changed


@pytest.mark.parametrize("rule", ["quantile:0.1", "quantile:0.5", "max:0.1"])
def test_the_limit_is_a_number_or_a_quantile_of_all_lengths_so_far(rule: str) -> None:
    steps, clipping = gradients(), GradientNorm(rule)
    number = float(rule.partition(":")[2])
    lengths: list[float] = []
    for step, after, changed in zip(steps, *applied(clipping, steps), strict=True):
        before = torch.cat([g.flatten() for g in step])
        lengths.append(float(before.norm()))
        limit = number if rule.startswith("max") else float(np.quantile(np.array(lengths), number))
        expected = before * min(1.0, limit / lengths[-1])
        torch.testing.assert_close(after, expected)
        assert changed == (lengths[-1] > limit * (1 + 1e-6))


def test_normalised_gradients_have_length_one_and_keep_their_direction() -> None:
    steps = gradients()
    for step, after in zip(steps, applied(GradientNorm("unit"), steps)[0], strict=True):
        before = torch.cat([g.flatten() for g in step])
        torch.testing.assert_close(after, before / before.norm())
