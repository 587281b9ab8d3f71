"""Intervals and verdicts beside a published value: scipy's tests, closed forms, and how often they are wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from milbench.api.published import Published
from milbench.report.literature import difference
from milbench.report.statistics.verdicts import agreement

MARGIN, TRIALS = 0.03, 600


def runs(value: float, **fields: Any) -> Published:
    return Published("a", "instance_error", value, "A", **fields)


@pytest.mark.parametrize("other", [[2.0, 4.0, 4.5, 7.0], [1.0, 1.1]])
def test_welch_from_a_summary_is_welch_on_the_values(other: list[float]) -> None:
    values = [1.0, 2.0, 2.5]
    found = difference(values, runs(float(np.mean(other)), spread=float(np.std(other, ddof=1)), runs=len(other)))
    assert found == pytest.approx(tuple(stats.ttest_ind(values, other, equal_var=False).confidence_interval()))
    assert difference([0.25] * 3, runs(0.5, spread=0.0, runs=3)) == (-0.25, -0.25)


def test_the_best_of_one_further_draw_is_a_prediction() -> None:
    # A further draw less the mean, over s * sqrt(1 + 1/n), has Student's distribution with n - 1 degrees.
    values = np.array([1.0, 2.0, 4.0, 5.0])
    half = stats.t.ppf(0.975, 3) * values.std(ddof=1) * math.sqrt(1 + 1 / 4)
    for lower in (True, False):
        found = difference(values, runs(2.0, statistic="best", runs=1), lower)
        assert found == pytest.approx((1 - half, 1 + half), rel=0.03)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_of_many_further_draws_is_an_extreme_of_theirs(sign: int) -> None:
    # With so many values that mean and spread are all but known: P(smallest of 10 > x) = sf(x)^10.
    values = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    found = difference(values, runs(sign * -2.2, statistic="best", runs=10), lower_is_better=sign == 1)
    bounds = [stats.norm.isf(share**0.1) + 2.2 for share in (0.975, 0.025)]
    assert sorted(sign * bound for bound in found) == pytest.approx(bounds, abs=0.03)


def test_the_interval_for_one_spread_is_that_of_the_pooled_test_without_freedom_from_the_other_runs() -> None:
    values = [3.0, 4.0, 6.0, 7.0]
    alone = stats.ttest_1samp(values, 4.5).confidence_interval()
    assert difference(values, runs(4.5, runs=10**12)) == pytest.approx(tuple(b - 4.5 for b in alone), abs=1e-5)
    assert difference([2.0, 2.0], runs(2.5)) == (-0.5, -0.5)


@pytest.mark.parametrize(
    ("interval", "seeds", "verdict"),
    [
        ((-0.02, 0.02), 5, "agrees"),
        ((-0.02, 0.02), 4, "open"),
        ((-0.02, 0.031), 10, "open"),
        ((-0.031, 0.02), 10, "open"),
        ((0.01, 0.02), 5, "agrees"),  # a difference, but a small one
        ((0.01, 0.02), 4, "worse"),
        ((0.01, 0.04), 5, "worse"),
        ((-0.04, -0.01), 3, "better"),
        ((-0.4, -0.1), 2, "open"),
    ],
)
def test_the_verdict_follows_from_the_interval_and_the_number_of_seeds(
    interval: tuple[float, float], seeds: int, verdict: str
) -> None:
    assert agreement(interval, seeds, MARGIN) == verdict
    turned = {"better": "worse", "worse": "better"}
    assert agreement(interval, seeds, MARGIN, lower_is_better=False) == turned.get(verdict, verdict)
    if verdict == "agrees":
        assert agreement(interval, seeds, None) != "agrees"


def verdicts(gap: float, seeds: int, published_runs: int, known: bool) -> dict[str, float]:
    """Return how often each verdict is given to normal runs whose mean is `gap` above the published one."""
    rng, found = np.random.default_rng(seeds), []
    for _ in range(TRIALS):
        theirs, ours = rng.normal(0, 1, published_runs), rng.normal(gap, 1, seeds)
        values = tuple(theirs) if known else ()
        published = runs(float(theirs.mean()), runs=published_runs, values=values)
        found.append(agreement(difference(ours, published), seeds, 2.0))
    names, counts = np.unique(found, return_counts=True)
    return dict(zip(names.tolist(), counts / TRIALS, strict=True))


@pytest.mark.parametrize(
    ("seeds", "published_runs", "known"), [(3, 5, True), (5, 3, True), (5, 1, False), (10, 6, False)]
)
def test_runs_of_the_published_distribution_are_called_different_in_one_of_twenty_cases_at_most(
    seeds: int, published_runs: int, known: bool
) -> None:
    found = verdicts(0.0, seeds, published_runs, known)
    # 5 %, and four standard errors of TRIALS; fewer where differences within the margin count as agreement.
    assert found.get("better", 0) + found.get("worse", 0) <= 0.05 + 4 * (0.05 * 0.95 / TRIALS) ** 0.5
    assert seeds >= 5 or "agrees" not in found


def test_runs_as_far_away_as_the_margin_are_rarely_said_to_agree() -> None:
    # The interval then lies within the margin if it misses the truth on one side: in 2.5 % of the trials.
    assert verdicts(2.0, 10, 6, known=True).get("agrees", 0) <= 0.025 + 4 * (0.025 * 0.975 / TRIALS) ** 0.5
    assert verdicts(0.0, 10, 10, known=True)["agrees"] > 0.9, "the rule can say yes"
