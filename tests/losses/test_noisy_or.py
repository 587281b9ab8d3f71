"""Noisy-OR against its definition in many digits, and against the enumeration of its detectors' outcomes."""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests._helpers.label_maps import ALL_LABELS, EXTREME, C, K, LabelMaps, bag, exactly, numbers, softmax
from tests._helpers.losses import per_bag

Head = Literal["sigmoid", "softmax"]
HEADS: tuple[Head, ...] = ("sigmoid", "softmax")


def detectors(logits: Tensor, head: Head) -> list[list[Any]]:
    """Return p[c][k] in many digits."""
    if head == "softmax":
        return softmax(logits)
    return [[1 / (1 + exactly.exp(-value)) for value in row] for row in numbers(logits)]


def absent_prob(p: list[Any]) -> Any:
    return math.prod((1 - value for value in p), start=exactly.mpf(1))


def definition(logits: Tensor, labels: list[bool], head: Head) -> tuple[float, list[list[float]]]:
    """Return the loss of one bag and its gradient, straight from 1 - prod_k (1 - p_{c,k})."""
    p = detectors(logits, head)
    value = exactly.mpf(0)
    gradient = [[exactly.mpf(0)] * K for _ in range(C + 1)]
    for c in range(C):
        absent = absent_prob(p[c])
        value -= exactly.log(1 - absent if labels[c] else absent)
        by_log_absent = absent / (1 - absent) if labels[c] else exactly.mpf(-1)
        for d, k in itertools.product(range(C + 1), range(K)):
            if head == "sigmoid":
                by_logit = -p[c][k] if c == d else 0  # of log(1 - p)
            else:
                by_logit = -p[c][k] / (1 - p[c][k]) * ((c == d) - p[d][k])
            gradient[d][k] += by_log_absent * by_logit
    return float(value), [[float(g) for g in row] for row in gradient]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("seed", range(2))
def test_value_and_gradient_are_those_of_the_definition(seed: int, head: Head) -> None:
    logits = bag(seed).repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    value = per_bag("noisy-or", head=head)(logits, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    for i, labels in enumerate(ALL_LABELS.tolist()):
        expected, expected_gradient = definition(bag(seed), labels, head)
        assert value[i].item() == pytest.approx(expected, rel=1e-12)
        assert_close(gradient[i], torch.tensor(expected_gradient, dtype=torch.float64), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", EXTREME)
def test_extreme_logits_in_float32(name: str, head: Head) -> None:
    """Detectors keep the relative accuracy of gradients down to 1e-30; the softmax adds those of opposed classes."""
    logits = EXTREME[name].float()
    leaf = logits.repeat(len(ALL_LABELS), 1, 1).requires_grad_()
    value = per_bag("noisy-or", head=head)(leaf, ALL_LABELS)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    for i, labels in enumerate(ALL_LABELS.tolist()):
        expected, expected_gradient = definition(logits, labels, head)
        assert value[i].item() == pytest.approx(expected, rel=1e-5, abs=1e-30)
        assert_close(
            gradient[i], torch.tensor(expected_gradient).float(), rtol=3e-4, atol=1e-30 if head == "sigmoid" else 1e-6
        )


@pytest.mark.parametrize("seed", range(2))
def test_sigmoid_presence_is_the_probability_that_any_detector_fires(seed: int) -> None:
    presence = per_bag("noisy-or").presence_scores(bag(seed).unsqueeze(0))[0]
    p = detectors(bag(seed), "sigmoid")
    for c in range(C):
        fires = sum(
            math.prod(p[c][k] if on else 1 - p[c][k] for k, on in enumerate(pattern))
            for pattern in itertools.product([False, True], repeat=K)
            if any(pattern)
        )
        assert float(presence[c].sigmoid()) == pytest.approx(float(fires), rel=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_softmax_presence_is_the_marginal_over_all_label_maps(seed: int) -> None:
    maps = LabelMaps(bag(seed))
    presence = per_bag("noisy-or", head="softmax").presence_scores(bag(seed).unsqueeze(0))[0]
    assert presence.tolist() == pytest.approx([float(maps.log_odds(c)) for c in range(C)], rel=1e-11)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", EXTREME)
def test_presence_and_scores_do_not_saturate(name: str, head: Head) -> None:
    logits = EXTREME[name].float()
    absent = [absent_prob(row) for row in detectors(logits, head)[:C]]
    expected = [float(exactly.log(1 - a) - exactly.log(a)) for a in absent]
    loss = per_bag("noisy-or", head=head)
    assert loss.presence_scores(logits.unsqueeze(0))[0].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert loss.class_scores(logits.unsqueeze(0))[0].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_instance_probs_of_detectors_are_given_that_at_most_one_fires() -> None:
    probs = per_bag("noisy-or").instance_probs(bag(0).unsqueeze(0))[0]
    p = detectors(bag(0), "sigmoid")
    for k in range(K):
        only = [p[c][k] * math.prod(1 - p[d][k] for d in range(C) if d != c) for c in range(C)]
        weights = [*only, math.prod(1 - p[d][k] for d in range(C))]
        assert probs[:, k].tolist() == pytest.approx([float(w / sum(weights)) for w in weights])
