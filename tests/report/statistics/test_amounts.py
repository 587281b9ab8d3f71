from __future__ import annotations

import math

import numpy as np
import pytest

from milbench.report.statistics.amounts import equivalent_amount

AMOUNTS = np.array([100, 200, 400, 800, 1600, 3200])


def test_where_two_lines_meet_by_hand() -> None:
    """Errors of 40 % and 20 % at 100 and 400 bags: 25 % lies three quarters of the way, at 100 * 4 ** 0.75 bags."""
    curve = [[0.4, 0.2], [0.42, 0.22], [0.38, 0.18]]
    found = equivalent_amount([100, 400], curve, [0.25, 0.27, 0.23])
    assert found.amount == pytest.approx(100 * 4**0.75, rel=2e-3)
    assert found.interval == pytest.approx((found.amount, found.amount), rel=2e-3)  # seed by seed the same difference
    mirrored = equivalent_amount([100, 400], 1 - np.array(curve), [0.75, 0.73, 0.77], lower_is_better=False)
    assert mirrored.amount == pytest.approx(found.amount, rel=2e-3)


def test_what_lies_outside_is_open() -> None:
    curve = np.array([[0.5, 0.4], [0.52, 0.41], [0.48, 0.4]])
    never = equivalent_amount([100, 400], curve, [0.1, 0.12, 0.1])
    assert never.amount == math.inf
    assert never.interval == (math.inf, math.inf), "more than 400, where the two are told apart"
    always = equivalent_amount([100, 400], curve, [0.9, 0.92, 0.9])
    assert always.amount == 0
    assert always.interval == (0, 0)


@pytest.mark.parametrize(("seeds", "overlap"), [(3, 0.0), (5, 0.0), (5, 0.2)])
def test_the_interval_covers_the_true_amount(seeds: int, overlap: float) -> None:
    """Normal errors whose means fall along a line in the logarithm; seeds that share data share errors of their own."""
    rng = np.random.default_rng(seeds)
    mean = 0.5 - 0.1 * np.log2(AMOUNTS / 100)
    truth = 100 * 2**2.3
    hits, runs = 0, 1500
    for _ in range(runs):
        luck = rng.normal(scale=0.03, size=(seeds, 1))  # of a seed, in curve and target alike
        curve = mean + luck + rng.normal(scale=0.03, size=(seeds, len(AMOUNTS)))
        # Sharing adds to the mean difference what its spread over seeds does not show: overlap times their variance.
        spread = 0.03 * math.sqrt(1 + 0.3**2 + 0.7**2)  # at 2.3 doublings the curve mixes two of its points
        shared = rng.normal(scale=spread * math.sqrt(overlap))
        target = 0.5 - 0.23 + luck[:, 0] + rng.normal(scale=0.03, size=seeds) + shared
        low, high = equivalent_amount(AMOUNTS, curve, target, overlap=overlap).interval
        hits += low <= truth <= high
    assert hits / runs == pytest.approx(0.95, abs=0.02)
