"""Rules for the length of a gradient: against their definitions, whatever the units of the loss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench import Recipe
from milbench.optimizers.clipping import Clipping


def by_quantile(quantile: float) -> Clipping:
    return Clipping(Recipe(clip_quantile=quantile, normalize_gradient=False))


def gradients(steps: int = 30, scale: float = 1.0) -> list[list[Tensor]]:
    """Return the gradients of two parameters in a row of steps; their lengths differ by orders of magnitude."""
    rng = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 1, steps)[torch.randperm(steps, generator=rng)]
    return [[scale * size * torch.randn(shape, generator=rng) for shape in ((3, 2), (4,))] for size in sizes]


def applied(clipping: Clipping, steps: list[list[Tensor]]) -> tuple[list[Tensor], list[bool]]:
    after, changed = [], []
    for step in steps:
        parameters = [torch.zeros_like(g) for g in step]
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        changed.append(bool(clipping.apply(parameters)))
        after.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
    return after, changed


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_the_limit_is_a_quantile_of_all_lengths_so_far(quantile: float) -> None:
    steps = gradients()
    lengths: list[float] = []
    for step, after, changed in zip(steps, *applied(by_quantile(quantile), steps), strict=True):
        before = torch.cat([g.flatten() for g in step])
        lengths.append(float(before.norm()))
        limit = float(np.quantile(np.array(lengths), quantile))
        expected = before * min(1.0, limit / lengths[-1])
        torch.testing.assert_close(after, expected)
        assert changed == (lengths[-1] > limit * (1 + 1e-6))


def test_normalised_gradients_have_length_one_and_keep_their_direction() -> None:
    steps = gradients()
    for step, after in zip(steps, applied(Clipping(Recipe()), steps)[0], strict=True):
        before = torch.cat([g.flatten() for g in step])
        torch.testing.assert_close(after, before / before.norm())


def relative_lengths(rule: Callable[[], Clipping], scale: float) -> Tensor:
    lengths = torch.stack([g.norm() for g in applied(rule(), gradients(scale=scale))[0]])
    return lengths / lengths[0]


@pytest.mark.parametrize(
    ("rule", "free"),
    [
        (lambda: by_quantile(0.3), True),
        (lambda: Clipping(Recipe()), True),
        (lambda: Clipping(Recipe(clip_norm=0.1, normalize_gradient=False)), False),
    ],
    ids=["quantile", "normalize", "absolute"],
)
def test_every_rule_but_the_absolute_limit_is_free_of_the_units_of_the_loss(
    rule: Callable[[], Clipping], free: bool
) -> None:
    assert torch.allclose(relative_lengths(rule, 1.0), relative_lengths(rule, 2.0**-10)) == free
