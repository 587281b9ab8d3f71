"""Means and bests against published summaries: scipy's tests, closed forms and extremes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from milbench.report.statistics.means import student_interval
from milbench.report.statistics.summaries import best_of, welch


@pytest.mark.parametrize("other", [[2.0, 4.0, 4.5, 7.0], [1.0, 1.1]])
def test_welch_from_a_summary_is_welch_on_the_values(other: list[float]) -> None:
    values = [1.0, 2.0, 2.5]
    found = welch(values, float(np.mean(other)), float(np.std(other, ddof=1)), len(other))
    test = stats.ttest_ind(values, other, equal_var=False)
    assert found.p == pytest.approx(test.pvalue)
    assert found.interval == pytest.approx(tuple(test.confidence_interval()))


def test_welch_against_a_number_is_students_test() -> None:
    values = [1.0, 2.0, 2.5]
    found = welch(values, 1.2)
    assert found.p == pytest.approx(stats.ttest_1samp(values, 1.2).pvalue)
    assert found.interval == pytest.approx(tuple(bound - 1.2 for bound in student_interval(values)))
    assert welch([0.1, 0.1, 0.1], 0.1).p == 1
    assert welch([0.1, 0.1, 0.1], 0.2).p == 0


def test_the_best_of_one_further_draw_is_a_prediction() -> None:
    # A further draw less the mean, over s * sqrt(1 + 1/n), has Student's distribution with n - 1 degrees.
    values = np.array([1.0, 2.0, 4.0, 5.0])
    for best in (-3.0, 2.0, 9.0):
        t = (best - 3) / (values.std(ddof=1) * math.sqrt(1 + 1 / 4))
        assert best_of(values, best, 1).p == pytest.approx(2 * stats.t.sf(abs(t), 3), abs=0.01)
        assert best_of(values, best, 1, lower_is_better=False).p == pytest.approx(2 * stats.t.sf(abs(t), 3), abs=0.01)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_of_many_further_draws_is_an_extreme_of_theirs(sign: int) -> None:
    # With so many values that mean and spread are all but known: P(smallest of 10 <= x) = 1 - sf(x)^10.
    values = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    found = best_of(values, sign * -2.2, 10, lower_is_better=sign == 1)
    below = 1 - stats.norm.sf(-2.2) ** 10
    assert found.p == pytest.approx(2 * below, abs=0.01)
    assert sign * found.difference == pytest.approx(stats.norm.isf(0.5**0.1) + 2.2, abs=0.01)
