"""Published numbers beside ours, and verdicts of agreement and equivalence: by scipy, and how often they are wrong."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from milbench.contracts.published import Published
from milbench.report.figures.overview import overview_figure
from milbench.report.literature import (
    deviations,
    difference,
    literature_tables,
    outcome_lines,
    replications,
)
from milbench.report.marks import agreement, equivalence
from milbench.report.statistics.differences import compare_pair
from milbench.report.study import Study
from tests._helpers.report_data import constant

VALUES = {("exact", seed): [(0.5, 0.010 + 0.0002 * seed), (0.5, 0.020)] for seed in range(5)}


def found(**published: Any) -> Any:
    fact = replace(Published("set_error", 0.0104, "A paper", "exact"), **published)
    return replications(Study(constant(VALUES, info={"published": [fact]})), "t")[0]


def test_ours_is_taken_at_the_epoch_that_the_source_chose() -> None:
    assert found().ours.tolist() == pytest.approx([0.0100, 0.0102, 0.0104, 0.0106, 0.0108])
    assert found(rule="last").ours.tolist() == pytest.approx([0.02] * 5)


@pytest.mark.parametrize(
    ("published", "verdict"),
    [
        ({"margin": 0.002}, "agrees"),
        ({"value": 0.02, "margin": 0.002}, "better"),
        ({"value": 0.001, "margin": 0.002}, "worse"),
        ({}, "open"),
        ({"protocol": {"recipe.epochs": 20}}, "not comparable"),
        ({"data": "other data"}, "not comparable"),
        ({"statistic": "best"}, "not comparable"),
    ],
)
def test_the_verdict(published: dict[str, Any], verdict: str) -> None:
    assert found(**published).verdict == verdict


def test_a_published_mean_is_a_ring_beside_the_seeds() -> None:
    facts = [Published(metric, 0.3, "A", "exact") for metric in ("set_error", "label_error")]
    figure = overview_figure(Study(constant(VALUES, info={"published": facts})))
    assert figure is not None
    (ring,) = (line.get_xydata() for line in figure.axes[0].lines if line.get_marker() == "o")
    assert np.array_equal(ring, [[0.3, 0]])


def test_a_method_that_is_no_loss_here_stands_beside_the_losses() -> None:
    fact = Published("set_error", 0.1, "Ilse 2018", method="mi-Net", note="folds")
    tables = literature_tables(Study(constant(VALUES, info={"published": [fact]})), "t")
    assert tables is not None
    shown, why = tables
    assert [*shown.frame.loc["mi-Net", ["published", "verdict"]]] == ["10.0 [1]", "—"]
    assert why.frame.loc["mi-Net"].iloc[-1] == "folds"
    assert literature_tables(Study(constant(VALUES)), "t") is None


@pytest.mark.parametrize("several", [("bag", "batch"), ["bag", "batch"]])
def test_one_of_several_values_is_enough_and_a_parameter_that_is_not_there_tells_nothing(
    several: object,
) -> None:
    paper = runs(0.1, protocol={"network": "paper"})
    assert deviations(paper, [{"network": "small"}]) == ["network small (published: paper)"]
    listed = runs(0.1, protocol={"loss.divide_by": several, "loss.rule": "sum"})
    assert deviations(listed, [{"loss.divide_by": "bag"}, {"loss.divide_by": "batch"}]) == []
    found = deviations(listed, [{"loss.divide_by": "none"}, {"loss.divide_by": "bag"}])
    assert found == ["divide_by none and bag (published: bag or batch)"]


MARGIN, TRIALS = 0.03, 600


def runs(value: float, **fields: Any) -> Published:
    return Published("nll", value, "A", "a", **fields)


@pytest.mark.parametrize("other", [[2.0, 4.0, 4.5, 7.0], [1.0, 1.1]])
def test_welch_from_a_summary_is_welch_on_the_values(other: list[float]) -> None:
    values = [1.0, 2.0, 2.5]
    found = difference(
        values, runs(float(np.mean(other)), spread=float(np.std(other, ddof=1)), runs=len(other))
    )
    assert found == pytest.approx(
        tuple(stats.ttest_ind(values, other, equal_var=False).confidence_interval())
    )
    assert difference([0.25] * 3, runs(0.5, spread=0.0, runs=3)) == (-0.25, -0.25)


def test_the_interval_for_one_spread_is_that_of_the_pooled_test_without_freedom_from_the_other_runs() -> (
    None
):
    values = [3.0, 4.0, 6.0, 7.0]
    alone = stats.ttest_1samp(values, 4.5).confidence_interval()
    assert difference(values, runs(4.5, runs=10**12)) == pytest.approx(
        tuple(b - 4.5 for b in alone), abs=1e-5
    )
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


def verdicts(gap: float, seeds: int, published_runs: int) -> dict[str, float]:
    """Return how often each verdict is given to normal runs whose mean is `gap` above the published one."""
    rng, found = np.random.default_rng(seeds), []
    for _ in range(TRIALS):
        theirs, ours = rng.normal(0, 1, published_runs), rng.normal(gap, 1, seeds)
        published = runs(float(theirs.mean()), runs=published_runs, values=tuple(theirs))
        found.append(agreement(difference(ours, published), seeds, 2.0))
    names, counts = np.unique(found, return_counts=True)
    return dict(zip(names.tolist(), counts / TRIALS, strict=True))


def test_runs_as_far_away_as_the_margin_are_rarely_said_to_agree() -> None:
    # The interval then lies within the margin if it misses the truth on one side: in 2.5 % of the trials.
    assert verdicts(2.0, 10, 6).get("agrees", 0) <= 0.025 + 4 * (0.025 * 0.975 / TRIALS) ** 0.5
    assert verdicts(0.0, 10, 10)["agrees"] > 0.9, "the rule can say yes"


def shares(truth: float, seeds: int) -> dict[str, float]:
    """How often each verdict falls on a loss whose true difference is `truth`, of pairs with effects of seeds."""
    rng = np.random.default_rng(seeds)
    found: Counter[str] = Counter()
    for _ in range(2000):
        common = 0.05 * rng.normal(size=seeds)
        values = common + 0.008 / 2**0.5 * rng.normal(size=(2, seeds))
        values[0] += truth
        found[equivalence(compare_pair(values, 0, 1), 0.01)] += 1
    return {name: count / 2000 for name, count in found.items()}


@pytest.mark.parametrize("seeds", [3, 8, 16])
def test_losses_that_differ_by_the_margin_are_seldom_equivalent_and_equal_ones_seldom_told_apart(
    seeds: int,
) -> None:
    assert shares(0.01, seeds).get("equivalent", 0) < 0.065
    assert shares(-0.01, seeds).get("equivalent", 0) < 0.065
    assert sum(shares(0.0, seeds).get(name, 0) for name in ("better", "worse")) < 0.065


def test_enough_seeds_settle_it() -> None:
    """Power of the two one-sided tests at equality, and of the test of a difference of two margins."""
    assert shares(0.0, 12)["equivalent"] > 0.9
    assert shares(2 * 0.01, 12)["worse"] > 0.99
    assert shares(-2 * 0.01, 12)["better"] > 0.99


def outcome(*facts: Published) -> list[str]:
    """Return what a command prints of two losses, exact at 1 % and noisy-or at 3 %, beside published values."""
    values: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for loss, error in (("exact", 0.01), ("noisy-or", 0.03)):
        values |= {(loss, seed): [(0.5, error)] for seed in range(3)}
    return outcome_lines(Study(constant(values, info={"published": [*facts]})))


def test_what_came_out_is_told_beside_what_was_published() -> None:
    exact = Published("set_error", 0.0037, "A", "exact", data="other data")
    other = Published("set_error", 0.08, "A", "noisy-or", data="other data")
    first, second, said = outcome(exact, other)
    assert first == "exact: set error 1 % (mean of 3 seeds); published 0.37 %, not comparable"
    assert second == "noisy-or: set error 3 % (mean of 3 seeds); published 8 %, not comparable"
    assert said == (
        "None of these repeats a published number (other data); "
        "the order of the losses is that of the publication."
    )
    assert outcome(replace(exact, value=0.9), other)[-1].endswith("is another one.")


def test_the_best_of_several_runs_is_no_match_for_a_mean() -> None:
    assert outcome(Published("set_error", 0.01, "A", "exact", statistic="best")) == []
