"""The presence of classes against high-precision arithmetic, and against sums over label sets."""

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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("regime", REGIMES)
def test_presence_in_700_digits(regime: str, dtype: torch.dtype) -> None:
    log_probs = regime_log_probs(regime, 3, 40).to(dtype)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    with mpmath.workdps(700):
        for c in range(3):
            absent = mpmath.mpf(1)
            for k in range(40):
                column = [mpmath.exp(mpmath.mpf(x)) for x in log_probs[:, k].double().tolist()]
                absent *= 1 - column[c] / sum(column)
            log_present = float(mpmath.log1p(-absent))
            odds = float(mpmath.log1p(-absent) - mpmath.log(absent))
            scale = max(1.0, abs(log_present))
            assert (
                abs(presence_log_prob(log_probs[None])[0, c].item() - log_present)
                <= tolerance * scale
            )
            assert presence_log_odds(log_probs[None])[0, c].item() == pytest.approx(
                odds, rel=100 * tolerance
            )


def test_presence_of_certain_and_impossible_classes() -> None:
    log_probs = torch.tensor([[[0.0], [-torch.inf], [-torch.inf]]])
    assert presence_log_prob(log_probs).tolist() == [[0.0, -torch.inf]]
    assert presence_log_odds(log_probs).tolist() == [[torch.inf, -torch.inf]]
    assert presence_log_prob(log_probs, torch.tensor([[False]])).tolist() == [
        [-torch.inf, -torch.inf]
    ]


@given(random_bags(max_classes=4, max_positions=10))
def test_presence_is_the_sum_over_the_sets_that_hold_the_class(bag: RandomBag) -> None:
    sets = every_label_set(bag.labels.shape[1])
    value = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets).exp()
    assert torch.allclose(
        presence_log_prob(bag.log_probs)[0].exp(),
        (value.unsqueeze(-1) * sets).sum(dim=0),
        atol=1e-12,
    )


@pytest.mark.parametrize("function", [presence_log_prob, presence_log_odds])
def test_presence_derivatives(function) -> None:  # type: ignore[no-untyped-def]
    z = random_logits(4, 4, 3, scale=1.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: function(z.log_softmax(1)), (z,))
    assert torch.autograd.gradgradcheck(lambda z: function(z.log_softmax(1)), (z,))
