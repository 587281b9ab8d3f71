"""`noisy-or (softmax)` against an enumeration of label maps, and maps of `noisy-or`.

Presence and loss of `noisy-or`, which has independent detectors, are tested in test_poolings.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from tests._helpers.label_maps import (
    ALL_LABELS,
    EXTREME,
    C,
    K,
    LabelMaps,
    bag,
    exactly,
    numbers,
    softmax,
)
from tests._helpers.losses import per_bag, random_logits


def none_of(probs: Sequence[Any]) -> Any:
    """Return the probability that none of independent events occurs."""
    return math.prod((1 - p for p in probs), start=exactly.mpf(1))


def value_of(log_odds: Sequence[Any], labels: list[bool]) -> float:
    """Return the loss of one bag by the log-odds of its classes."""
    cost = exactly.mpf(0)
    for odds, is_held in zip(log_odds, labels, strict=True):
        signed = odds if is_held else -odds
        cost += exactly.log1p(exactly.exp(-signed))
    return float(cost)


def gradient_of(logits: torch.Tensor, labels: list[bool]) -> torch.Tensor:
    """Return the gradient of the loss of one bag, derived from 1 - prod_k (1 - p_{c,k})."""
    p = softmax(logits)
    gradient: list[list[Any]] = [[exactly.mpf(0)] * K for _ in range(C + 1)]
    for c in range(C):
        absent = none_of(p[c])
        # The derivative of the cost by the logarithm of `absent`.
        slope = absent / (1 - absent) if labels[c] else exactly.mpf(-1)
        for k in range(K):
            odds = p[c][k] / (1 - p[c][k])
            for d in range(C + 1):
                is_own = 1 if c == d else 0
                # log(1 - p_{c,k}) falls with z_{d,k} by the odds times (is_own - p_{d,k}).
                gradient[d][k] -= slope * odds * (is_own - p[d][k])
    return torch.tensor([[float(g) for g in row] for row in gradient], dtype=torch.float64)


@dataclass
class Tolerance:
    """How close results must be to the definition."""

    rel: float
    gradient_rel: float
    tiny: float


IN_DOUBLE = Tolerance(rel=1e-11, gradient_rel=1e-9, tiny=1e-14)
IN_FLOAT = Tolerance(rel=1e-5, gradient_rel=3e-4, tiny=1e-6)
BAGS = pytest.mark.parametrize(
    ("logits", "tolerance"),
    [
        *(pytest.param(bag(seed), IN_DOUBLE, id=f"random {seed}") for seed in range(2)),
        *(pytest.param(logits.float(), IN_FLOAT, id=name) for name, logits in EXTREME.items()),
    ],
)


@BAGS
def test_presence_agrees_with_all_label_maps(logits: torch.Tensor, tolerance: Tolerance) -> None:
    maps = LabelMaps(logits)
    expected = [float(maps.log_odds(c)) for c in range(C)]
    found = per_bag("noisy-or", head="softmax").score(logits[None])
    close_to_expected = pytest.approx(expected, rel=tolerance.rel, abs=10 * tolerance.tiny)
    assert found.presence[0].tolist() == close_to_expected
    assert found.classes[0].tolist() == close_to_expected


@BAGS
def test_value_and_gradient_agree_with_all_label_maps(
    logits: torch.Tensor, tolerance: Tolerance
) -> None:
    maps = LabelMaps(logits)
    log_odds = [maps.log_odds(c) for c in range(C)]
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    value = per_bag("noisy-or", head="softmax")(leaf, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    for i, labels in enumerate(ALL_LABELS.tolist()):
        expected = value_of(log_odds, labels)
        assert value[i].item() == pytest.approx(expected, rel=tolerance.rel, abs=1e-30)
        assert_close(
            gradient[i].double(),
            gradient_of(logits, labels),
            rtol=tolerance.gradient_rel,
            atol=tolerance.tiny,
        )


def test_instances_of_detectors_are_given_that_at_most_one_fires() -> None:
    found = per_bag("noisy-or").score(bag(0).unsqueeze(0)).instances[0]
    p = [[1 / (1 + exactly.exp(-value)) for value in row] for row in numbers(bag(0))]
    for k in range(K):
        probs = [p[c][k] for c in range(C)]
        weights = []
        for c in range(C):
            others = probs[:c] + probs[c + 1 :]
            weights.append(probs[c] * none_of(others))
        # The background, which is last, is shown where no detector fires.
        weights.append(none_of(probs))
        expected = [float(weight / sum(weights)) for weight in weights]
        assert found[:, k].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("positions", "largest"), [(64, 3e-5), (1024, 5e-4)])
@pytest.mark.parametrize("level", [-10.0, -5.0, 0.0, 5.0, 10.0, 15.0])
def test_the_float32_gradient_of_absent_classes_is_as_documented(
    positions: int, largest: float, level: float
) -> None:
    """The loss of an absent class is a sum of softplus, whose derivative is the sigmoid."""
    logits = (random_logits(4, C + 1, positions, scale=1.0) + level).float().requires_grad_()
    loss = per_bag("noisy-or")(logits, torch.zeros(4, C))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    expected = logits.detach().double().sigmoid()[:, :C]
    error = (gradient[:, :C] - expected).abs().max() / expected.max()
    # The docstring of the loss states these numbers, rounded to one digit.
    assert error < 1.2 * largest
