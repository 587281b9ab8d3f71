"""The presence of classes against high-precision arithmetic, and against sums over label sets."""

from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import given

from milbench.likelihood import bag_log_prob, presence_log_odds, presence_log_prob
from tests._helpers.likelihood_reference import (
    REGIMES,
    RandomBag,
    every_label_set,
    random_bags,
    regime_log_probs,
)
from tests._helpers.losses import random_logits


def precise_presence(log_probs: torch.Tensor, c: int) -> tuple[float, float]:
    """Return log Prb(class c is in the bag) and its log-odds, computed with 700 digits.

    `log_probs` are those of one bag, (C+1, K).
    """
    with mpmath.workdps(700):
        absent = mpmath.mpf(1)
        for column in log_probs.double().T.tolist():
            probs = [mpmath.exp(mpmath.mpf(value)) for value in column]
            absent *= 1 - probs[c] / sum(probs)
        log_present = mpmath.log1p(-absent)
        return float(log_present), float(log_present - mpmath.log(absent))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 1e-5)],
    ids=["float64", "float32"],
)
@pytest.mark.parametrize("regime", REGIMES)
def test_presence_agrees_with_700_digits(regime: str, dtype: torch.dtype, tolerance: float) -> None:
    log_probs = regime_log_probs(regime, 3, 40).to(dtype)
    log_present = presence_log_prob(log_probs[None])[0].tolist()
    log_odds = presence_log_odds(log_probs[None])[0].tolist()
    for c in range(3):
        expected, expected_odds = precise_presence(log_probs, c)
        assert abs(log_present[c] - expected) <= tolerance * max(1.0, abs(expected))
        assert log_odds[c] == pytest.approx(expected_odds, rel=100 * tolerance)


CERTAIN = torch.tensor([[[0.0], [-torch.inf], [-torch.inf]]])
"""A bag of one position, which shows class 0 for certain."""


def test_presence_of_certain_and_impossible_classes() -> None:
    assert presence_log_prob(CERTAIN).tolist() == [[0.0, -torch.inf]]


def test_log_odds_of_certain_and_impossible_classes() -> None:
    assert presence_log_odds(CERTAIN).tolist() == [[torch.inf, -torch.inf]]


def test_nothing_is_present_in_a_bag_of_padding() -> None:
    padding = torch.tensor([[False]])
    assert presence_log_prob(CERTAIN, padding).tolist() == [[-torch.inf, -torch.inf]]


@given(random_bags(max_classes=4, max_positions=10))
def test_presence_is_a_sum_over_label_sets(bag: RandomBag) -> None:
    sets = every_label_set(bag.labels.shape[1])
    probs = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets).exp()
    # For each class, the sum of the probabilities of the sets that have it.
    expected = (probs.unsqueeze(1) * sets).sum(dim=0)
    assert torch.allclose(presence_log_prob(bag.log_probs)[0].exp(), expected, atol=1e-12)


Function = Callable[[torch.Tensor], torch.Tensor]
BOTH_FUNCTIONS = pytest.mark.parametrize("function", [presence_log_prob, presence_log_odds])


@BOTH_FUNCTIONS
def test_first_derivatives_agree_with_differences(function: Function) -> None:
    logits = random_logits(4, 4, 3, scale=1.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: function(z.log_softmax(1)), (logits,))


@BOTH_FUNCTIONS
def test_second_derivatives_agree_with_differences(function: Function) -> None:
    logits = random_logits(4, 4, 3, scale=1.0).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: function(z.log_softmax(1)), (logits,))
