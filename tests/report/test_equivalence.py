"""Verdicts of equivalence, by their error rates under a known truth."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from milbench.report.statistics.differences import compare_pair
from milbench.report.statistics.verdicts import equivalence

MARGIN, SPREAD, DRAWS = 0.01, 0.008, 2000


def shares(truth: float, seeds: int) -> dict[str, float]:
    """How often each verdict falls on a loss whose true difference is `truth`, of pairs with effects of seeds."""
    rng = np.random.default_rng(seeds)
    found: Counter[str] = Counter()
    for _ in range(DRAWS):
        common = 0.05 * rng.normal(size=seeds)
        values = common + SPREAD / 2**0.5 * rng.normal(size=(2, seeds))
        values[0] += truth
        found[equivalence(compare_pair(values, 0, 1), MARGIN)] += 1
    return {name: count / DRAWS for name, count in found.items()}


@pytest.mark.parametrize("seeds", [3, 8, 16])
def test_losses_that_differ_by_the_margin_are_seldom_equivalent_and_equal_ones_seldom_told_apart(seeds: int) -> None:
    assert shares(MARGIN, seeds).get("equivalent", 0) < 0.065
    assert shares(-MARGIN, seeds).get("equivalent", 0) < 0.065
    assert sum(shares(0.0, seeds).get(name, 0) for name in ("better", "worse")) < 0.065


def test_enough_seeds_settle_it() -> None:
    """Power of the two one-sided tests at equality, and of the test of a difference of two margins."""
    assert shares(0.0, 12)["equivalent"] > 0.9
    assert shares(2 * MARGIN, 12)["worse"] > 0.99
    assert shares(-2 * MARGIN, 12)["better"] > 0.99
