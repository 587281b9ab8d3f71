"""Losses that pool detectors, against their formulas in 600 digits, their limits, and a training of their weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from milbench import Loss
from tests._helpers.label_maps import ALL_LABELS, C, exactly, numbers
from tests._helpers.losses import per_bag, random_logits

K = 5
Row = list[Any]
Pooling = Callable[[Row, Any], Any]
"""From the logits of a class at all positions of a bag, and the loss's own weight for the class, to P."""


def sigmoid(value: Any) -> Any:
    return 1 / (1 + exactly.exp(-value))


def weighted(weight: Callable[[Any, Any], Any]) -> Pooling:
    """Return the mean of probabilities p with weights that depend on p and the weight of the class."""

    def pool(z: Row, own: Any) -> Any:
        p = [sigmoid(value) for value in z]
        return sum(weight(v, own) * v for v in p) / sum(weight(v, own) for v in p)

    return pool


def generalised_mean(r: Any) -> Pooling:
    return lambda z, _: (
        (sum(sigmoid(v) ** exactly.mpf(r) for v in z) / len(z)) ** (1 / exactly.mpf(r))
    )


def log_sum_exp(start: float) -> Pooling:
    def pool(z: Row, own: Any) -> Any:
        r = start * exactly.exp(own)
        return sigmoid(exactly.log(sum(exactly.exp(r * v) for v in z) / len(z)) / r)

    return pool


def noisy_and(a: float) -> Pooling:
    def pool(z: Row, own: Any) -> Any:
        b, share = sigmoid(own), sum(sigmoid(v) for v in z) / len(z)
        none, every = sigmoid(-a * b), sigmoid(a * (1 - b))
        return (sigmoid(a * (share - b)) - none) / (every - none)

    return pool


def isr(z: Row, _: Any) -> Any:
    odds = sum(sigmoid(v) / (1 - sigmoid(v)) for v in z)
    return odds / (1 + odds)


def noisy_or(z: Row, _: Any) -> Any:
    return 1 - math.prod(1 - sigmoid(v) for v in z)


def top_k(one_in: int) -> Pooling:
    def pool(z: Row, _: Any) -> Any:
        k = max(1, (len(z) + one_in - 1) // one_in)
        return sigmoid(sum(sorted(z)[-k:]) / k)

    return pool


@dataclass
class Case:
    """A loss, what it computes, and values for the weight of its own, if it has one: one a class, or one for all."""

    name: str
    pool: Pooling
    params: dict[str, Any] = field(default_factory=dict)
    weights: tuple[float, ...] = (0.0,)

    def __str__(self) -> str:
        return "-".join([self.name, *map(str, self.params.values())])

    def load(self) -> Loss:
        loss = per_bag(self.name, **self.params).build(C).double()
        for parameter in loss.parameters():
            parameter.data = torch.tensor(self.weights, dtype=torch.float64).reshape(
                parameter.shape
            )
        return loss

    def weight(self, c: int) -> Any:
        return exactly.mpf(self.weights[min(c, len(self.weights) - 1)])

    def definition(self, z: Row, c: int, own: Any | None = None) -> tuple[Any, Any]:
        """Return log P and log(1 - P) of class c."""
        p = self.pool(z, self.weight(c) if own is None else own)
        return exactly.log(p), exactly.log(1 - p)


CASES = (
    Case("one-vs-rest", lambda z, _: sigmoid(max(z))),
    Case("mean", weighted(lambda _, __: 1)),
    Case("linear-softmax", weighted(lambda p, _: p)),
    Case("exponential-softmax", weighted(lambda p, _: exactly.exp(p))),
    Case("auto-pool", weighted(lambda p, alpha: exactly.exp(alpha * p)), weights=(-1.0, 0.5, 6.0)),
    Case("power-pooling", weighted(lambda p, own: p ** exactly.exp(own)), weights=(-3.0, 0.5, 2.0)),
    Case("isr", isr),
    Case("noisy-or", noisy_or),
    Case("top-k", top_k(2), {"one_in": 2}),
    Case("top-k", top_k(1), {"one_in": 1}),
    *(Case("generalised-mean", generalised_mean(r), {"exponent": r}) for r in (0.4, 20.0)),
    *(Case("noisy-and", noisy_and(a), {"slope": a}, weights=(0.0, -3.0, 1.0)) for a in (0.3, 40.0)),
    Case("log-sum-exp", log_sum_exp(5.0), weights=(-0.3,)),
    Case("log-sum-exp", log_sum_exp(0.2), {"sharpness": 0.2, "learn": False}),
)
EXTREME = {
    "wide": random_logits(C + 1, K, seed=0, scale=100).clamp(-200, 200),
    "signs": 195 * random_logits(C + 1, K, seed=1).sign()
    + random_logits(C + 1, K, seed=12, scale=1.0),
    "all low": -200 + random_logits(C + 1, K, seed=2, scale=1.0).abs(),
    "all high": 200 - random_logits(C + 1, K, seed=3, scale=1.0).abs(),
    "moderately rare": random_logits(C + 1, K, seed=4) - 18,
    "moderately sure": random_logits(C + 1, K, seed=5) + 12,
}
STEP = exactly.mpf(10) ** -120


def slope(function: Callable[[Any], Any], at: Any) -> Any:
    """Return a derivative to many digits, as a central difference in 600 digits."""
    return (function(at + STEP) - function(at - STEP)) / (2 * STEP)


def gradient_of(case: Case, row: Row, c: int, present: bool) -> list[float]:
    """Return the derivatives of the loss of one class by the logits of a bag."""
    side = 0 if present else 1

    def loss_at(k: int, value: Any) -> Any:
        return -case.definition([*row[:k], value, *row[k + 1 :]], c)[side]

    return [float(slope(partial(loss_at, k), at)) for k, at in enumerate(row)]


def check(case: Case, logits: Tensor, mask: Tensor | None, *, rel: float, tiny: float) -> None:
    """Compare loss, gradient and presence of one bag (C+1, K) with the definition, for every label set."""
    loss = case.load()
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    masks = None if mask is None else mask.expand(len(ALL_LABELS), -1)
    value = loss(leaf, ALL_LABELS, masks)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    there = [k for k in range(K) if mask is None or mask[k]]
    rows = [[row[k] for k in there] for row in numbers(logits)[:C]]
    logs = [case.definition(row, c) for c, row in enumerate(rows)]
    slopes = {(c, on): gradient_of(case, rows[c], c, on) for c in range(C) for on in (False, True)}
    presence = loss.score(leaf, masks).presence[0].tolist()
    assert presence == pytest.approx([float(one - other) for one, other in logs], rel=rel, abs=tiny)
    for i, labels in enumerate(ALL_LABELS.tolist()):
        expected = -sum(logs[c][0 if labels[c] else 1] for c in range(C))
        assert value[i].item() == pytest.approx(float(expected), rel=rel, abs=tiny)
        for c in range(C):
            assert gradient[i, c, there].tolist() == pytest.approx(
                slopes[c, labels[c]], rel=30 * rel, abs=tiny
            )
        assert (gradient[i, C] == 0).all(), "the background is not used"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_gradient_and_presence_are_those_of_the_definition(case: Case) -> None:
    check(case, random_logits(C + 1, K, seed=6), None, rel=1e-11, tiny=1e-12)
    check(
        case,
        random_logits(C + 1, K, seed=7),
        torch.tensor([True, False, True, True, False]),
        rel=1e-11,
        tiny=1e-12,
    )


@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_extreme_logits_in_float32(case: Case, name: str) -> None:
    """P rounds to 0 or to 1, loss and gradient do not: nothing is clamped."""
    # These two are exact also where losses and their gradients all but vanish.
    tiny = 1e-30 if case.name in ("one-vs-rest", "noisy-or") else 1e-4
    check(case, EXTREME[name].float(), None, rel=1e-5, tiny=tiny)


@pytest.mark.parametrize("case", [case for case in CASES if any(case.weights)], ids=str)
def test_the_gradient_of_its_own_weights(case: Case) -> None:
    loss, logits = case.load(), random_logits(C + 1, K, seed=8)
    labels = torch.tensor([[True, False, True]])
    (parameter,) = loss.parameters()
    (gradient,) = torch.autograd.grad(loss(logits.unsqueeze(0), labels).sum(), parameter)
    rows = numbers(logits)

    def loss_at(c: int, own: Any) -> Any:
        return -case.definition(rows[c], c, own)[0 if labels[0, c] else 1]

    expected = [float(slope(partial(loss_at, c), case.weight(c))) for c in range(C)]
    found = gradient.flatten().tolist()
    assert found == pytest.approx(expected if parameter.ndim else [sum(expected)], rel=1e-10)
    # A bag without instances has no part in it.
    mask = torch.tensor([[True] * K, [False] * K])
    value = loss(torch.stack([logits, logits]), torch.cat([labels, labels & False]), mask)
    (again,) = torch.autograd.grad(value.sum(), parameter)
    assert_close(again, gradient)


@pytest.mark.parametrize(("one_in", "expected"), [(2, [-0.25, -0.25, 0.0, 0.0]), (1, [-0.125] * 4)])
def test_positions_that_tie_for_the_last_places_share_the_gradient(
    one_in: int, expected: list[float]
) -> None:
    """At a mean of 0 the loss has the slope -1/2, which the k positions share."""
    values = [0.0, 0.0, -4.0, -5.0] if one_in > 1 else [3.0, 3.0, -3.0, -3.0]
    leaf = torch.tensor([[values, [0.0] * 4]]).requires_grad_()
    (gradient,) = torch.autograd.grad(
        per_bag("top-k", one_in=one_in)(leaf, torch.tensor([[True]])).sum(), leaf
    )
    assert gradient[0, 0].tolist() == expected
