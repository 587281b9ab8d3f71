"""Optimisers, rules that change the length of gradients, and schedules of the learning rate."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from milbench import Recipe, UsageError
from milbench.optimizers.clipping import GradientNorm
from milbench.optimizers.known_optimizers import SCHEDULES, learning_rate, optimizers
from milbench.optimizers.psgd import KroneckerPSGD
from tests._helpers.training import NAMES, needs_muon, small_cell


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    if isinstance(optimizer, KroneckerPSGD):
        optimizer.backward(loss)
    else:
        loss.backward()
    optimizer.step()


def weights_and_biases(model: torch.nn.Linear) -> Tensor:
    return torch.cat([model.weight, model.bias.unsqueeze(1)], dim=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_optimiser_descends(name: str) -> None:
    model = torch.nn.Linear(2, 3)
    before = weights_and_biases(model).detach().clone()
    # Adadelta's first steps are short for any gradient, so it needs a larger learning rate.
    lr = 1.0 if name == "adadelta" else 0.05
    optimizer = optimizers().get(name)(model, Recipe(lr=lr), 0)
    slopes = torch.tensor([1.0, 3.0, 2.0])
    for _ in range(300):
        take_step(optimizer, (weights_and_biases(model) * slopes).square().sum())
    after = weights_and_biases(model).detach()
    assert after.square().sum() < 0.6 * before.square().sum()


def spread_of_singular_values(matrix: Tensor) -> float:
    values = torch.linalg.svdvals(matrix)
    return float(values.max() / values.min())


@needs_muon
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(torch.contiguous_format, id="channels first"),
        pytest.param(torch.channels_last, id="channels last"),
    ],
)
def test_muon_moves_every_matrix_by_an_orthogonal_one(layout: torch.memory_format) -> None:
    """The singular values of the first step are nearly equal, unlike those of the gradient."""
    model = torch.nn.Conv2d(3, 8, 3).to(memory_format=layout)
    before = model.weight.detach().clone()
    rng = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-2, 0, 8).view(8, 1, 1, 1)
    gradient = sizes * torch.randn(8, 3, 3, 3, generator=rng)
    optimizer = optimizers().get("muon")(model, Recipe(lr=0.1), 0)
    take_step(optimizer, (model.weight * gradient).sum())
    moved = model.weight.detach() - before
    assert spread_of_singular_values(gradient.flatten(1)) > 20
    assert spread_of_singular_values(moved.flatten(1)) < 2


@pytest.mark.parametrize(
    ("recipe", "complaint"),
    [
        pytest.param(
            {"optimizer": "muon", "gradient_norm": "rms:0.1"},
            "for psgd alone, not muon; did you mean max:0.1",
            id="rms without psgd",
        ),
        pytest.param(
            {"optimizer": "psgd", "weight_decay": 0.1},
            "weight_decay = 0.1: psgd has none",
            id="weight decay with psgd",
        ),
    ],
)
def test_a_setting_of_no_effect_is_refused(recipe: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        small_cell(recipe=recipe)


WRONG_RULES = [
    "", "clip:1", "unit:2", "none:1", "max", "max:0", "max:nan", "max:inf", "quantile:1", "rms:-1",
    1.0,
]  # fmt: skip


@pytest.mark.parametrize("rule", WRONG_RULES)
def test_a_wrong_rule_for_gradients_is_refused(rule: object) -> None:
    complaint = r"gradient_norm = .* is wrong: .*(expected unit, none, max:X|valid string)"
    with pytest.raises(UsageError, match=complaint):
        small_cell(recipe={"gradient_norm": rule})


def gradients(steps: int = 30) -> list[list[Tensor]]:
    """Return the gradients of two parameters in several steps.

    From step to step their lengths differ by orders of magnitude.
    """
    rng = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 1, steps)[torch.randperm(steps, generator=rng)]
    return [
        [size * torch.randn(3, 2, generator=rng), size * torch.randn(4, generator=rng)]
        for size in sizes
    ]


class Applied(NamedTuple):
    """The gradient of all parameters before and after a rule."""

    before: Tensor
    after: Tensor
    changed: bool
    """Whether the rule says that it changed the gradient."""


def apply_rule(rule: str) -> list[Applied]:
    """Apply a rule to the gradients of each step in turn."""
    clipping = GradientNorm(rule)
    steps = []
    for of_step in gradients():
        parameters = [torch.zeros_like(gradient) for gradient in of_step]
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = gradient.clone()
        changed = bool(clipping.apply(parameters))
        before = torch.cat([gradient.flatten() for gradient in of_step])
        after = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        steps.append(Applied(before, after, changed))
    return steps


def test_unit_brings_every_gradient_to_length_one() -> None:
    for applied in apply_rule("unit"):
        torch.testing.assert_close(applied.after, applied.before / applied.before.norm())
        assert applied.changed


def test_max_shortens_gradients_that_are_longer() -> None:
    longest = 0.1
    for applied in apply_rule("max:0.1"):
        factor = min(1.0, longest / float(applied.before.norm()))
        torch.testing.assert_close(applied.after, applied.before * factor)
        assert applied.changed == (factor < 1)


@pytest.mark.parametrize("quantile", [0.1, 0.5])
def test_quantile_shortens_gradients_to_one_of_the_lengths_so_far(quantile: float) -> None:
    lengths: list[float] = []
    for applied in apply_rule(f"quantile:{quantile}"):
        length = float(applied.before.norm())
        lengths.append(length)
        factor = min(1.0, float(np.quantile(lengths, quantile)) / length)
        torch.testing.assert_close(applied.after, applied.before * factor)
        # Where the quantile is this length itself, the factor is 1 up to rounding.
        assert applied.changed == (factor < 1 - 1e-6)


@pytest.mark.parametrize(
    ("rule", "same", "other"),
    [
        pytest.param("max:1", "max:1.0", "max:1.00000001", id="max"),
        pytest.param("quantile:.5", "quantile:0.50", "quantile:0.99999999", id="quantile"),
        pytest.param("max:1e-3", "max:0.001", "unit", id="exponent"),
    ],
)
def test_a_rule_in_two_spellings_is_one_cell(rule: str, same: str, other: str) -> None:
    cell = small_cell(recipe={"gradient_norm": rule})
    cell_of_same = small_cell(recipe={"gradient_norm": same})
    cell_of_other = small_cell(recipe={"gradient_norm": other})
    assert cell_of_same.id == cell.id
    assert cell_of_other.id != cell.id
    # The spelling that a cell stores can be read again.
    kept = GradientNorm(cell_of_other.recipe.gradient_norm)
    kind, _, _ = other.partition(":")
    assert kept.rule == kind


PEAK = 2.0


def rates(schedule: str, steps: int) -> list[float]:
    recipe = Recipe(schedule=schedule, lr=PEAK)
    return [learning_rate(recipe, step, steps) for step in range(steps)]


def test_one_cycle_is_the_schedule_of_torch() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=PEAK, total_steps=1000, cycle_momentum=False
    )
    expected = []
    for _ in range(1000):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        # torch's schedule refuses a step after the last one.
        if len(expected) < 1000:
            scheduler.step()
    assert rates("one-cycle", 1000) == pytest.approx(expected, rel=0.02, abs=1e-4)


def test_drop_at_half_falls_to_a_tenth() -> None:
    assert rates("drop-at-half", 1000) == [2.0] * 500 + [0.2] * 500


def test_drop_at_thirds_falls_twice_to_a_tenth() -> None:
    # 1,000 steps are no multiple of 3, so the first third has 334 steps and the others 333.
    expected = [2.0] * 334 + [0.2] * 333 + [0.02] * 333
    assert rates("drop-at-thirds", 1000) == pytest.approx(expected)


def test_constant_stays_at_the_peak() -> None:
    assert rates("constant", 1000) == [2.0] * 1000


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_short_trainings_have_a_rate_within_the_peak(schedule: str, steps: int) -> None:
    for rate in rates(schedule, steps):
        assert 0 < rate <= PEAK
