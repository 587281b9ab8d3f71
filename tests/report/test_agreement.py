"""The verdict beside a published value: its rules, and how often it is wrong where nothing differs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from milbench.api.published import Published
from milbench.report.agreement import difference, judge, of_one_spread

MARGIN, TRIALS = 0.03, 600


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
    assert judge(interval, seeds, MARGIN)[0] == verdict
    turned = {"better": "worse", "worse": "better"}
    assert judge(interval, seeds, MARGIN, lower_is_better=False)[0] == turned.get(verdict, verdict)
    if verdict == "agrees":
        assert judge(interval, seeds, None)[0] != "agrees"


def verdicts(gap: float, seeds: int, published_runs: int, known: bool, trials: int = TRIALS) -> dict[str, float]:
    """Return how often each verdict is given to normal runs whose mean is `gap` above the published one."""
    rng, found = np.random.default_rng(seeds), []
    for _ in range(trials):
        theirs, ours = rng.normal(0, 1, published_runs), rng.normal(gap, 1, seeds)
        values = tuple(theirs) if known else ()
        published = Published("a", "instance_error", float(theirs.mean()), "A", runs=published_runs, values=values)
        found.append(judge(difference(ours, published)[0].interval, seeds, 2.0)[0])
    names, counts = np.unique(found, return_counts=True)
    return dict(zip(names.tolist(), counts / trials, strict=True))


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


def test_the_interval_for_one_spread_is_that_of_the_pooled_test_without_freedom_from_the_other_runs() -> None:
    values = [3.0, 4.0, 6.0, 7.0]
    found = of_one_spread(values, 4.5, runs=10**12)
    alone = stats.ttest_1samp(values, 4.5)
    assert found.interval == pytest.approx(tuple(b - 4.5 for b in alone.confidence_interval()), abs=1e-5)
    assert found.p == pytest.approx(alone.pvalue, abs=1e-5)
    assert of_one_spread([2.0, 2.0], 2.0, 1).p == 1
    assert of_one_spread([2.0, 2.0], 2.5, 1).p == 0
