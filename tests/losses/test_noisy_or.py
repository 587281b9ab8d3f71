"""Noisy-OR of the softmax against the enumeration of label maps; that of detectors is among the poolings."""

import math
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


def gradient_of(logits: torch.Tensor, labels: list[bool]) -> torch.Tensor:
    """Return the gradient of the loss of one bag, straight from 1 - prod_k (1 - p_{c,k})."""
    p = softmax(logits)
    gradient: list[list[Any]] = [[exactly.mpf(0)] * K for _ in range(C + 1)]
    for c in range(C):
        absent = math.prod((1 - value for value in p[c]), start=exactly.mpf(1))
        by_log_absent = absent / (1 - absent) if labels[c] else exactly.mpf(-1)
        for d in range(C + 1):
            for k in range(K):
                gradient[d][k] -= by_log_absent * p[c][k] / (1 - p[c][k]) * ((c == d) - p[d][k])
    return torch.tensor([[float(g) for g in row] for row in gradient], dtype=torch.float64)


PRECISE = [(bag(seed), 1e-11, 1e-9, 1e-14) for seed in range(2)]
SINGLE = [(logits.float(), 1e-5, 3e-4, 1e-6) for logits in EXTREME.values()]


@pytest.mark.parametrize(("logits", "rel", "gradient_rel", "tiny"), PRECISE + SINGLE)
def test_value_gradient_and_presence_are_those_of_all_label_maps(
    logits: torch.Tensor, rel: float, gradient_rel: float, tiny: float
) -> None:
    loss, maps = per_bag("noisy-or", head="softmax"), LabelMaps(logits)
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    value = loss(leaf, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    log_odds = [maps.log_odds(c) for c in range(C)]
    found = loss.score(logits[None])
    for scores in (found.presence, found.classes):
        assert scores[0].tolist() == pytest.approx(
            [float(odds) for odds in log_odds], rel=rel, abs=10 * tiny
        )
    for i, labels in enumerate(ALL_LABELS.tolist()):
        signed = [odds if held else -odds for odds, held in zip(log_odds, labels, strict=True)]
        expected = sum(exactly.log1p(exactly.exp(-odds)) for odds in signed)
        assert value[i].item() == pytest.approx(float(expected), rel=rel, abs=1e-30)
        assert_close(
            gradient[i].double(), gradient_of(logits, labels), rtol=gradient_rel, atol=tiny
        )


def test_instances_of_detectors_are_given_that_at_most_one_fires() -> None:
    probs = per_bag("noisy-or").score(bag(0).unsqueeze(0)).instances[0]
    p = [[1 / (1 + exactly.exp(-value)) for value in row] for row in numbers(bag(0))]
    for k in range(K):
        only = [p[c][k] * math.prod(1 - p[d][k] for d in range(C) if d != c) for c in range(C)]
        weights = [*only, math.prod(1 - p[d][k] for d in range(C))]
        assert probs[:, k].tolist() == pytest.approx([float(w / sum(weights)) for w in weights])


@pytest.mark.parametrize(("positions", "largest"), [(64, 3e-5), (1024, 5e-4)])
@pytest.mark.parametrize("level", [-10.0, -5.0, 0.0, 5.0, 10.0, 15.0])
def test_the_float32_gradient_of_absent_classes_is_as_stated(
    positions: int, largest: float, level: float
) -> None:
    """The loss of an absent class is a sum of softplus, whose derivative is the sigmoid."""
    logits = (random_logits(4, C + 1, positions, scale=1.0) + level).float().requires_grad_()
    loss = per_bag("noisy-or")(logits, torch.zeros(4, C))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    expected = logits.detach().double().sigmoid()[:, :C]
    error = (gradient[:, :C] - expected).abs().max() / expected.max()
    # The stated numbers are rounded to one digit.
    assert error < 1.2 * largest
