"""Losses that pool detectors, against their formulas in 600 digits, also for extreme logits."""

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
"""Takes the logits of a class at all positions of a bag, and the loss's own weight for the class.

Returns P, the probability that the class is in the bag.
"""


def sigmoid(value: Any) -> Any:
    return 1 / (1 + exactly.exp(-value))


def weighted_mean(weight_of: Callable[[Any, Any], Any]) -> Pooling:
    """Return a pooling by a weighted mean of the probabilities p at the positions.

    The weight of a position depends on p and on the loss's own weight for the class.
    """

    def pool(z: Row, own: Any) -> Any:
        p = probabilities(z)
        weights = [weight_of(value, own) for value in p]
        total = sum(w * value for w, value in zip(weights, p, strict=True))
        return total / sum(weights)

    return pool


def probabilities(z: Row) -> Row:
    return [sigmoid(value) for value in z]


def mean_of(values: Row) -> Any:
    return sum(values) / len(values)


def maximum(z: Row, _: Any) -> Any:
    return sigmoid(max(z))


def generalised_mean(exponent: float) -> Pooling:
    def pool(z: Row, _: Any) -> Any:
        r = exactly.mpf(exponent)
        return mean_of([p**r for p in probabilities(z)]) ** (1 / r)

    return pool


def log_sum_exp(start: float) -> Pooling:
    def pool(z: Row, own: Any) -> Any:
        r = start * exactly.exp(own)
        mean_exp = mean_of([exactly.exp(r * value) for value in z])
        return sigmoid(exactly.log(mean_exp) / r)

    return pool


def noisy_and(slope: float) -> Pooling:
    def pool(z: Row, own: Any) -> Any:
        threshold = sigmoid(own)
        share = mean_of(probabilities(z))
        lowest = sigmoid(-slope * threshold)
        highest = sigmoid(slope * (1 - threshold))
        return (sigmoid(slope * (share - threshold)) - lowest) / (highest - lowest)

    return pool


def isr(z: Row, _: Any) -> Any:
    odds = sum(p / (1 - p) for p in probabilities(z))
    return odds / (1 + odds)


def noisy_or(z: Row, _: Any) -> Any:
    return 1 - math.prod(1 - p for p in probabilities(z))


def top_k(one_in: int) -> Pooling:
    def pool(z: Row, _: Any) -> Any:
        k = math.ceil(len(z) / one_in)
        return sigmoid(mean_of(sorted(z)[-k:]))

    return pool


@dataclass
class Case:
    """A loss, its formula, and values for its own weights, if it has any.

    There is one weight for each class, or one for all classes.
    """

    name: str
    pool: Pooling
    params: dict[str, Any] = field(default_factory=dict)
    weights: tuple[float, ...] = (0.0,)

    def __str__(self) -> str:
        return "-".join([self.name, *map(str, self.params.values())])

    def load(self) -> Loss:
        loss = per_bag(self.name, **self.params).build(C).double()
        weights = torch.tensor(self.weights, dtype=torch.float64)
        for parameter in loss.parameters():
            parameter.data = weights.reshape(parameter.shape)
        return loss

    def weight(self, c: int) -> Any:
        """Return the loss's own weight for a class, or its one weight for all classes."""
        is_shared = len(self.weights) == 1
        if is_shared:
            return exactly.mpf(self.weights[0])
        return exactly.mpf(self.weights[c])

    def log_odds(self, z: Row, c: int) -> Any:
        """Return log P - log(1 - P) of class c."""
        p = self.pool(z, self.weight(c))
        return exactly.log(p) - exactly.log(1 - p)

    def cost(self, z: Row, own: Any, is_held: bool) -> Any:
        """Return what a class adds to the loss of a bag, by the loss's own weight for it."""
        p = self.pool(z, own)
        return -exactly.log(p if is_held else 1 - p)


CASES = (
    Case("one-vs-rest", maximum),
    Case("mean", weighted_mean(lambda p, own: exactly.mpf(1))),
    Case("linear-softmax", weighted_mean(lambda p, own: p)),
    Case("exponential-softmax", weighted_mean(lambda p, own: exactly.exp(p))),
    Case(
        "auto-pool",
        weighted_mean(lambda p, alpha: exactly.exp(alpha * p)),
        weights=(-1.0, 0.5, 6.0),
    ),
    Case(
        "power-pooling",
        weighted_mean(lambda p, own: p ** exactly.exp(own)),
        weights=(-3.0, 0.5, 2.0),
    ),
    Case("isr", isr),
    Case("noisy-or", noisy_or),
    Case("top-k", top_k(2), {"one_in": 2}),
    Case("top-k", top_k(1), {"one_in": 1}),
    Case("generalised-mean", generalised_mean(0.4), {"exponent": 0.4}),
    Case("generalised-mean", generalised_mean(20.0), {"exponent": 20.0}),
    Case("noisy-and", noisy_and(0.3), {"slope": 0.3}, weights=(0.0, -3.0, 1.0)),
    Case("noisy-and", noisy_and(40.0), {"slope": 40.0}, weights=(0.0, -3.0, 1.0)),
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
"""In 600 digits a difference over it keeps far more digits than a float has."""


def derivative(function: Callable[[Any], Any], at: Any) -> Any:
    """Return a derivative to many digits, as a central difference in 600 digits."""
    return (function(at + STEP) - function(at - STEP)) / (2 * STEP)


def gradient_of(case: Case, row: Row, c: int, is_held: bool) -> list[float]:
    """Return the derivatives of the loss of one class by its logits in a bag."""

    def cost_with(k: int, value: Any) -> Any:
        moved = [*row[:k], value, *row[k + 1 :]]
        return case.cost(moved, case.weight(c), is_held)

    return [float(derivative(partial(cost_with, k), at)) for k, at in enumerate(row)]


def check_against_definition(
    case: Case, logits: Tensor, mask: Tensor | None = None, *, rel: float, tiny: float
) -> None:
    """Compare loss, gradient and presence of one bag with the definition, for every label set.

    `logits` are (C+1, K), `mask` is (K,).
    """
    loss = case.load()
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    masks = None if mask is None else mask.expand(len(ALL_LABELS), -1)
    value = loss(leaf, ALL_LABELS, masks)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    presence = loss.score(leaf, masks).presence[0]

    there = [k for k in range(K) if mask is None or mask[k]]
    rows = [[row[k] for k in there] for row in numbers(logits)[:C]]
    log_odds = [float(case.log_odds(rows[c], c)) for c in range(C)]
    assert presence.tolist() == pytest.approx(log_odds, rel=rel, abs=tiny)
    # By class and whether it is in the label set.
    costs: dict[tuple[int, bool], Any] = {}
    gradients: dict[tuple[int, bool], list[float]] = {}
    for c in range(C):
        for is_held in (False, True):
            costs[c, is_held] = case.cost(rows[c], case.weight(c), is_held)
            gradients[c, is_held] = gradient_of(case, rows[c], c, is_held)

    for i, labels in enumerate(ALL_LABELS.tolist()):
        expected = float(sum(costs[c, labels[c]] for c in range(C)))
        assert value[i].item() == pytest.approx(expected, rel=rel, abs=tiny)
        for c in range(C):
            expected_gradient = pytest.approx(gradients[c, labels[c]], rel=30 * rel, abs=tiny)
            assert gradient[i, c, there].tolist() == expected_gradient
        # The background is not used.
        assert (gradient[i, C] == 0).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_gradient_and_presence_agree_with_the_definition(case: Case) -> None:
    check_against_definition(case, random_logits(C + 1, K, seed=6), rel=1e-11, tiny=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_masked_positions_are_not_pooled(case: Case) -> None:
    mask = torch.tensor([True, False, True, True, False])
    check_against_definition(case, random_logits(C + 1, K, seed=7), mask, rel=1e-11, tiny=1e-12)


@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_extreme_logits_in_float32(case: Case, name: str) -> None:
    """P is rounded to 0 or 1 here, but the loss and its gradient must still be precise."""
    tiny = 1e-4
    if case.name in ("one-vs-rest", "noisy-or"):
        # These two are exact also where losses and their gradients all but vanish.
        tiny = 1e-30
    check_against_definition(case, EXTREME[name].float(), rel=1e-5, tiny=tiny)


WITH_WEIGHTS = pytest.mark.parametrize(
    "case", [case for case in CASES if any(case.weights)], ids=str
)
LABELS = torch.tensor([[True, False, True]])


def gradient_of_weight(loss: Loss, *arguments: Tensor) -> Tensor:
    (parameter,) = loss.parameters()
    (gradient,) = torch.autograd.grad(loss(*arguments).sum(), parameter)
    return gradient


@WITH_WEIGHTS
def test_the_gradient_of_a_loss_s_own_weights_agrees_with_the_definition(case: Case) -> None:
    logits = random_logits(C + 1, K, seed=8)
    gradient = gradient_of_weight(case.load(), logits.unsqueeze(0), LABELS)
    rows = numbers(logits)
    expected = []
    for c, is_held in enumerate(LABELS[0].tolist()):
        cost = partial(case.cost, rows[c], is_held=is_held)
        expected.append(float(derivative(cost, case.weight(c))))
    if gradient.ndim == 0:
        # One weight for all classes.
        expected = [sum(expected)]
    assert gradient.flatten().tolist() == pytest.approx(expected, rel=1e-10)


@WITH_WEIGHTS
def test_a_bag_without_instances_reaches_no_weight(case: Case) -> None:
    logits = random_logits(C + 1, K, seed=8)
    no_labels = torch.zeros_like(LABELS)
    second_is_empty = torch.tensor([[True] * K, [False] * K])
    both = gradient_of_weight(
        case.load(),
        torch.stack([logits, logits]),
        torch.cat([LABELS, no_labels]),
        second_is_empty,
    )
    assert_close(both, gradient_of_weight(case.load(), logits.unsqueeze(0), LABELS))


def gradient_of_top_k(one_in: int, logits: list[float]) -> list[float]:
    """Return the gradient by the logits of one class, which is in the bag."""
    background = [0.0] * len(logits)
    leaf = torch.tensor([[logits, background]]).requires_grad_()
    loss = per_bag("top-k", one_in=one_in)
    (gradient,) = torch.autograd.grad(loss(leaf, torch.tensor([[True]])).sum(), leaf)
    of_class: list[float] = gradient[0, 0].tolist()
    return of_class


@pytest.mark.parametrize(
    ("one_in", "logits", "expected"),
    [
        pytest.param(2, [0.0, 0.0, -4.0, -5.0], [-1 / 4, -1 / 4, 0.0, 0.0], id="the largest two"),
        pytest.param(1, [3.0, 3.0, -3.0, -3.0], [-1 / 8, -1 / 8, -1 / 8, -1 / 8], id="all four"),
    ],
)
def test_the_k_positions_of_top_k_share_its_gradient(
    one_in: int, logits: list[float], expected: list[float]
) -> None:
    """Where the mean logit is 0, the loss has the slope -1/2, of which each position gets 1/k."""
    assert gradient_of_top_k(one_in, logits) == expected


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        pytest.param([1.0, -1.0, -1.0, -5.0], [-1 / 4, -1 / 8, -1 / 8, 0.0], id="for the second"),
        pytest.param([0.0, 0.0, 0.0, -5.0], [-1 / 6, -1 / 6, -1 / 6, 0.0], id="for both"),
    ],
)
def test_positions_that_tie_for_the_last_of_top_k_share_its_gradient(
    logits: list[float], expected: list[float]
) -> None:
    """Each of the two largest logits has a slope of -1/4, which positions that tie share."""
    assert gradient_of_top_k(2, logits) == pytest.approx(expected)
