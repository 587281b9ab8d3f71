"""Optimisers, their settings, rules for the length of a gradient against their definitions, and schedules."""

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench import Recipe, UsageError
from milbench.optimizers.clipping import GradientNorm
from milbench.optimizers.known_optimizers import SCHEDULES, learning_rate, optimizers
from milbench.optimizers.psgd import KroneckerPSGD
from tests._helpers.training import NAMES, needs_muon, small_cell


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    if isinstance(optimizer, KroneckerPSGD):
        optimizer.backward(loss)
    else:
        loss.backward()
    optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_every_optimiser_descends(name: str) -> None:
    model = torch.nn.Linear(2, 3)
    before = torch.cat([model.weight, model.bias.unsqueeze(1)], dim=1).detach().clone()
    optimizer = optimizers().get(name)(model, Recipe(lr=1.0 if name == "adadelta" else 0.05), 0)
    for _ in range(300):
        weights = torch.cat([model.weight, model.bias.unsqueeze(1)], dim=1)
        step(optimizer, (weights * torch.tensor([1.0, 3.0, 2.0])).square().sum())
    after = torch.cat([model.weight, model.bias.unsqueeze(1)], dim=1).detach()
    assert after.square().sum() < 0.6 * before.square().sum()


@needs_muon
def test_muon_moves_every_matrix_by_an_orthogonal_one() -> None:
    """From rest, a step's singular values are alike, whatever the gradient's are, in either memory format."""
    for layout in (torch.contiguous_format, torch.channels_last):
        model = torch.nn.Conv2d(3, 8, 3).to(memory_format=layout)
        before = model.weight.detach().clone()
        rng = torch.Generator().manual_seed(0)
        slopes = (
            torch.randn(8, 3, 3, 3, generator=rng) * torch.logspace(-2, 0, 8)[:, None, None, None]
        )
        optimizer = optimizers().get("muon")(model, Recipe(lr=0.1), 0)
        step(optimizer, (model.weight * slopes).sum())
        values = torch.linalg.svdvals((model.weight.detach() - before).flatten(1))
        assert values.max() < 2 * values.min()
        assert (
            torch.linalg.svdvals(slopes.flatten(1)).max()
            > 20 * torch.linalg.svdvals(slopes.flatten(1)).min()
        )


@pytest.mark.parametrize(("recipe", "complaint"), [
    ({"optimizer": "muon", "gradient_norm": "rms:0.1"}, "for psgd alone, not muon; did you mean max:0.1"),
    ({"optimizer": "psgd", "weight_decay": 0.1}, "weight_decay = 0.1: psgd has none"),
    *(({"gradient_norm": rule}, r"gradient_norm = .* is wrong: .*(expected unit, none, max:X|valid string)") for rule in
      ("", "clip:1", "unit:2", "none:1", "max", "max:0", "max:nan", "max:inf", "quantile:1", "rms:-1", 1.0)),
])  # fmt: skip
def test_a_wrong_or_ignored_setting_is_refused(recipe: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        small_cell(recipe=recipe)


def gradients(steps: int = 30) -> list[list[Tensor]]:
    """Return the gradients of two parameters in a row of steps; their lengths differ by orders of magnitude."""
    rng = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 1, steps)[torch.randperm(steps, generator=rng)]
    return [
        [size * torch.randn(shape, generator=rng) for shape in ((3, 2), (4,))] for size in sizes
    ]


def applied(clipping: GradientNorm, steps: list[list[Tensor]]) -> tuple[list[Tensor], list[bool]]:
    after, changed = [], []
    for step in steps:
        parameters = [torch.zeros_like(g) for g in step]
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        changed.append(bool(clipping.apply(parameters)))
        after.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
    return after, changed


@pytest.mark.parametrize("rule", ["quantile:0.1", "quantile:0.5", "max:0.1", "unit"])
def test_gradients_are_brought_to_the_length_asked_for(
    rule: str,
) -> None:
    steps, clipping = gradients(), GradientNorm(rule)
    number = float(rule.partition(":")[2] or 1)
    lengths: list[float] = []
    for step, after, changed in zip(steps, *applied(clipping, steps), strict=True):
        before = torch.cat([g.flatten() for g in step])
        lengths.append(length := float(before.norm()))
        limit = float(np.quantile(lengths, number)) if rule.startswith("quantile") else number
        factor = limit / length if rule == "unit" else min(1.0, limit / length)
        torch.testing.assert_close(after, before * factor)
        assert changed == (abs(factor - 1) > 1e-6)


@pytest.mark.parametrize(("one", "same", "other"), [
    ("max:1", "max:1.0", "max:1.00000001"),
    ("quantile:.5", "quantile:0.50", "quantile:0.99999999"),
    ("max:1e-3", "max:0.001", "unit"),
])  # fmt: skip
def test_a_rule_in_two_spellings_is_one_cell(one: str, same: str, other: str) -> None:
    cell, again, another = (
        small_cell(recipe={"gradient_norm": rule}) for rule in (one, same, other)
    )
    assert cell.id == again.id != another.id
    assert GradientNorm(another.recipe.gradient_norm).rule == other.partition(":")[0], (
        "what is kept is a rule"
    )


def test_schedules() -> None:
    def rates(name: str, steps: int = 1000) -> list[float]:
        return [learning_rate(Recipe(schedule=name, lr=2.0), step, steps) for step in range(steps)]

    parameter = torch.nn.Parameter(torch.zeros(1))
    reference = torch.optim.SGD([parameter], lr=0.1)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        reference, max_lr=2.0, total_steps=1000, cycle_momentum=False
    )
    for step, rate in enumerate(rates("one-cycle")):
        assert rate == pytest.approx(theirs.get_last_lr()[0], rel=0.02, abs=1e-4), step
        reference.step()
        if step < 999:
            theirs.step()
    assert rates("drop-at-half") == [2.0] * 500 + [0.2] * 500
    assert rates("drop-at-thirds") == pytest.approx([2.0] * 334 + [0.2] * 333 + [0.02] * 333)
    assert rates("constant") == [2.0] * 1000
    assert all(0 < rate <= 2.0 for name in SCHEDULES for rate in rates(name, 1) + rates(name, 2))
