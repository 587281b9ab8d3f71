"""The expected best of k draws, against enumeration and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from milbench.report.expected_best import expected_best, with_band


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_mean_over_all_subsets(n: int) -> None:
    errors = np.random.default_rng(n).random(n)
    expected = [np.mean([min(some) for some in itertools.combinations(errors, k)]) for k in range(1, n + 1)]
    assert expected_best(errors).tolist() == pytest.approx(expected)


def test_unbiased_where_drawing_with_replacement_is_not() -> None:
    """Of uniform errors the expected least of k is 1 / (k + 1)."""
    draws = np.random.default_rng(0).random((4000, 8))
    mean = np.mean([expected_best(row) for row in draws], axis=0)
    truth = 1 / (np.arange(1, 9) + 1)
    assert mean == pytest.approx(truth, abs=0.01)
    ordered, n, k = np.sort(draws, axis=1), 8, 8
    chances = (1 - np.arange(n) / n) ** k - (1 - np.arange(1, n + 1) / n) ** k
    assert float((ordered @ chances).mean()) > truth[-1] + 0.03


def test_the_band_holds_the_curve_and_covers_the_truth_for_small_budgets() -> None:
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(200):
        found = with_band(rng.random(16))
        assert (found.low <= found.mean + 1e-12).all()
        assert (found.mean <= found.high + 1e-12).all()
        covered.append(found.low[1] <= 1 / 3 <= found.high[1])
    assert np.mean(covered) > 0.85  # 95 % in name, with a standard error of 1.5 % here
