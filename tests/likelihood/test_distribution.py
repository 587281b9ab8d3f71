"""The probabilities of all label sets against those of each on its own, and against 80 digits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from milbench.likelihood import (
    bag_log_prob,
    label_set_distribution,
)
from tests._helpers.likelihood_reference import PreciseBag
from tests._helpers.likelihood_regimes import regime_log_probs
from tests._helpers.likelihood_strategies import RandomBag, random_bags


@given(random_bags(max_classes=6, max_positions=20))
def test_distribution_is_every_set_on_its_own(bag: RandomBag) -> None:
    classes = bag.labels.shape[1]
    table = label_set_distribution(bag.log_probs)[0]
    sets = torch.arange(2**classes).unsqueeze(-1) >> torch.arange(classes) & 1
    expected = bag_log_prob(bag.log_probs.expand(len(sets), -1, -1), sets.bool())
    assert ((table == expected) | ((table - expected).abs() <= 1e-12 * expected.abs().clamp(min=1))).all()


@pytest.mark.parametrize("regime", ["background+24", "all-tiny", "crowded", "nearly-absent"])
def test_distribution_keeps_the_digits_of_rare_sets(regime: str) -> None:
    log_probs = regime_log_probs(regime, 5, 30)
    table = label_set_distribution(log_probs[None])[0]
    for index in (0, 1, 6, 21, 31):
        truth = float(PreciseBag(log_probs, [c for c in range(5) if index >> c & 1]).log_prob())
        assert table[index].item() == pytest.approx(truth, rel=1e-12, abs=1e-12)


def test_distribution_of_sixteen_classes_sums_to_one() -> None:
    log_probs = torch.randn(1, 17, 20, dtype=torch.float64).log_softmax(1)
    table = label_set_distribution(log_probs)
    assert table.shape == (1, 2**16)
    assert abs(torch.logsumexp(table, dim=1).item()) < 1e-12
