"""Verdicts by pass marks and margins, which are stated in advance.

A pass mark is a bound on a metric; losses that differ by less than a margin are equivalent.
Verdicts on simulated losses, whose truth is known, are seldom wrong.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from milbench.experiment.cell import Cell
from milbench.experiment.questions import Mark
from milbench.report.marks import (
    VERDICTS,
    agreement,
    equivalence,
    equivalence_frame,
    equivalence_sentences,
    marks_frame,
    passing,
)
from milbench.report.statistics.differences import compare_pair, student_interval
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.report_data import ONE, make_results, with_cells

TASK = "extended-digits"
BOUND = 0.05


@pytest.mark.parametrize(
    ("values", "at_most", "verdict"),
    [
        pytest.param([0.020, 0.021, 0.022], True, "pass", id="all below"),
        pytest.param([0.02, 0.03, 0.09], True, "open", id="on both sides"),
        pytest.param([0.2, 0.21, 0.2], True, "fail", id="all above"),
        pytest.param([0.2, 0.21, 0.2], False, "pass", id="all above a lower bound"),
        pytest.param([0.020, 0.021, 0.022], False, "fail", id="all below a lower bound"),
    ],
)
def test_a_mark_is_passed_by_the_interval_of_the_mean(
    values: list[float], at_most: bool, verdict: str
) -> None:
    interval = student_interval(pd.Series(values))
    assert passing(interval, BOUND, at_most=at_most, complete=True) == verdict


def test_an_interval_that_touches_the_bound_passes() -> None:
    assert passing((0.01, BOUND), BOUND, at_most=True, complete=True) == "pass"
    assert passing((BOUND, 0.09), BOUND, at_most=False, complete=True) == "pass"


def test_a_mark_without_values_is_open() -> None:
    interval = student_interval(pd.Series(dtype=float))
    assert passing(interval, BOUND, at_most=True, complete=False) == "open"


def test_nothing_passes_where_a_planned_seed_has_no_value() -> None:
    interval = student_interval(pd.Series([0.020, 0.021, 0.022]))
    assert passing(interval, BOUND, at_most=True, complete=False) == "open"


def test_a_mark_fails_though_a_planned_seed_has_no_value() -> None:
    interval = student_interval(pd.Series([0.2, 0.21, 0.2]))
    assert passing(interval, BOUND, at_most=True, complete=False) == "fail"


EASY = Mark("easy", TASK, at_most={"instance_error": BOUND})
LEAST_AUROC = 0.9
SURE = Mark("sure", TASK, at_least={"auroc": LEAST_AUROC})


def judged_by(*marks: Mark) -> pd.DataFrame:
    """Return the verdicts of pass marks on four losses, by the name of the mark and the loss."""
    study = Study(make_results(tasks=ONE, info={"marks": [*marks]}))
    return marks_frame(study).set_index(["test", "variant"])


def test_marks_are_a_row_for_each_test_and_loss() -> None:
    frame = judged_by(EASY, SURE)
    assert list(frame.index) == [
        ("easy", "exact"),
        ("easy", "max-pooling"),
        ("easy", "noisy-or"),
        ("easy", "one-vs-rest"),
        ("sure", "exact"),
        ("sure", "max-pooling"),
        ("sure", "noisy-or"),
        ("sure", "one-vs-rest"),
    ]


def test_marks_are_passed_by_the_losses_within_their_bounds() -> None:
    verdicts = judged_by(EASY, SURE)["verdict"]
    assert verdicts["easy", "exact"] == "pass"
    assert verdicts["easy", "max-pooling"] == "fail"
    assert verdicts["sure", "exact"] == "pass"


def test_the_distance_from_an_upper_bound_is_positive_above_it() -> None:
    frame = judged_by(EASY)
    distance = frame["distance"]["easy", "max-pooling"]
    assert distance == pytest.approx(frame["mean"]["easy", "max-pooling"] - BOUND)
    assert distance > 0


def test_the_distance_from_a_lower_bound_is_negative_above_it() -> None:
    frame = judged_by(SURE)
    distance = frame["distance"]["sure", "exact"]
    assert distance == pytest.approx(LEAST_AUROC - frame["mean"]["sure", "exact"])
    assert distance < 0


def test_half_of_the_interval_stands_beside_the_distance() -> None:
    study = Study(make_results(tasks=ONE, info={"marks": [EASY]}))
    values = study.table(TASK).loc["exact"]
    expected = stats.t.ppf(0.975, len(values) - 1) * values.sem()
    halves = marks_frame(study).set_index("variant")["half"]
    assert halves["exact"] == pytest.approx(expected)


def test_without_marks_nothing_is_judged() -> None:
    assert marks_frame(Study(make_results(tasks=ONE))).empty


CROSSED: dict[str, dict[str, Any]] = {
    "classes=3 noise=0.0": {"classes": 3, "noise": 0.0},
    "classes=3 noise=0.5": {"classes": 3, "noise": 0.5},
    "classes=9 noise=0.0": {"classes": 9, "noise": 0.0},
    "classes=9 noise=0.5": {"classes": 9, "noise": 0.5},
}
"""Label -> parameters of one task, with two numbers of classes and two amounts of noise."""


def crossed(**losses: float) -> Results:
    """Return results on the tasks of CROSSED, with a margin of one point.

    `losses` are names of losses and their errors.
    """
    results = make_results(
        losses=losses,
        tasks=dict.fromkeys(CROSSED, "set_error"),
        margin={"set_error": 0.01},
        params=CROSSED,
    )
    return with_cells(results, on_one_task)


def on_one_task(cell: Cell) -> Cell:
    """Return a cell whose task has the name "bags", and the parameters that it had."""
    return replace(cell, task=replace(cell.task, name="bags"))


def test_tasks_that_cross_parameters_are_rows_and_columns() -> None:
    frame = equivalence_frame(Study(crossed(good=0.1, bad=0.3)))
    rows_and_columns = list(zip(frame["row"], frame["column"], strict=True))
    assert rows_and_columns == [
        ("classes=3", "noise=0.0"),
        ("classes=3", "noise=0.5"),
        ("classes=9", "noise=0.0"),
        ("classes=9", "noise=0.5"),
    ]


def test_the_first_loss_is_judged_against_each_other_one() -> None:
    frame = equivalence_frame(Study(crossed(good=0.1, bad=0.3, worst=0.6)))
    assert set(frame["first"]) == {"good"}
    assert list(frame["other"].unique()) == ["bad", "worst"]
    assert set(frame["verdict"]) == {"better"}


def test_a_difference_has_half_of_students_interval() -> None:
    study = Study(crossed(good=0.1, bad=0.3))
    task = study.tasks[0]
    values = study.table(task)
    low, high = stats.ttest_rel(values.loc["good"], values.loc["bad"]).confidence_interval()
    first = equivalence_frame(study).iloc[0]
    assert first["difference"] == pytest.approx((low + high) / 2)
    assert first["half"] == pytest.approx((high - low) / 2)


def test_a_sentence_counts_the_verdicts_of_two_losses() -> None:
    assert equivalence_sentences(Study(crossed(good=0.1, bad=0.3))) == [
        "Of 4 tasks good is better on 4 against bad (set error, margin 1 point)."
    ]


def test_without_a_margin_no_loss_is_equivalent() -> None:
    results = crossed(good=0.1, bad=0.3)
    spec = results.plan.spec.model_copy(update={"margin": {}})
    study = Study(replace(results, plan=replace(results.plan, spec=spec)))
    assert equivalence_frame(study).empty


def test_tasks_that_are_not_one_task_are_not_crossed() -> None:
    study = Study(make_results(margin={"instance_error": 0.01}))
    assert equivalence_frame(study).empty
    assert equivalence_sentences(study) == []


MARGIN = 0.03


@pytest.mark.parametrize(
    ("interval", "seeds", "verdict"),
    [
        pytest.param((-0.02, 0.02), 5, "agrees", id="within the margin"),
        pytest.param((-0.02, 0.02), 4, "open", id="four seeds"),
        pytest.param((-0.02, 0.031), 10, "open", id="beyond the margin above"),
        pytest.param((-0.031, 0.02), 10, "open", id="beyond the margin below"),
        pytest.param((0.01, 0.02), 5, "agrees", id="a small difference"),
        pytest.param((0.01, 0.02), 4, "worse", id="a small difference, four seeds"),
        pytest.param((0.01, 0.04), 5, "worse", id="above"),
        pytest.param((-0.04, -0.01), 3, "better", id="below"),
        pytest.param((-0.4, -0.1), 2, "open", id="below, two seeds"),
    ],
)
class TestAgreement:
    """The verdict by the interval of a difference: our value minus the published one."""

    def test_of_errors(self, interval: tuple[float, float], seeds: int, verdict: str) -> None:
        assert agreement(interval, seeds, MARGIN) == verdict

    def test_of_scores(self, interval: tuple[float, float], seeds: int, verdict: str) -> None:
        turned = {"better": "worse", "worse": "better"}
        found = agreement(interval, seeds, MARGIN, lower_is_better=False)
        assert found == turned.get(verdict, verdict)

    def test_nothing_agrees_without_a_margin(
        self, interval: tuple[float, float], seeds: int, verdict: str
    ) -> None:
        assert agreement(interval, seeds, None) != "agrees"


COMPARISONS = 2000
"""The number of simulated comparisons from which a share of verdicts is counted."""
SPREAD_OF_DIFFERENCE = 0.008
"""The standard deviation between seeds of the difference of two losses."""


def shares_of_verdicts(truth: float, seeds: int) -> dict[str, float]:
    """Return how often two losses get each verdict, by a margin of 0.01.

    `truth` is the true difference of their errors. A seed moves both losses alike, and each of them
    a little by itself.
    """
    rng = np.random.default_rng(seeds)
    # The variance of a difference is the sum of the variances of both losses.
    spread_of_one = SPREAD_OF_DIFFERENCE / 2**0.5
    counts: Counter[str] = Counter()
    for _ in range(COMPARISONS):
        common = 0.05 * rng.normal(size=seeds)
        values = common + spread_of_one * rng.normal(size=(2, seeds))
        values[0] += truth
        counts[equivalence(compare_pair(values, 0, 1), 0.01)] += 1
    return {verdict: counts[verdict] / COMPARISONS for verdict in VERDICTS}


SEEDS = pytest.mark.parametrize("seeds", [3, 8, 16])


@SEEDS
@pytest.mark.parametrize("truth", [0.01, -0.01])
def test_losses_that_differ_by_the_margin_are_seldom_equivalent(seeds: int, truth: float) -> None:
    """At most 5 % are promised; the standard error of the share is half a point."""
    assert shares_of_verdicts(truth, seeds)["equivalent"] < 0.065


@SEEDS
def test_equal_losses_are_seldom_told_apart(seeds: int) -> None:
    """At most 5 % are promised; the standard error of the share is half a point."""
    found = shares_of_verdicts(0.0, seeds)
    assert found["better"] + found["worse"] < 0.065


@pytest.mark.parametrize(
    ("truth", "verdict", "power"),
    [
        pytest.param(0.0, "equivalent", 0.9, id="equal"),
        pytest.param(0.02, "worse", 0.99, id="two margins above"),
        pytest.param(-0.02, "better", 0.99, id="two margins below"),
    ],
)
def test_enough_seeds_give_the_right_verdict(truth: float, verdict: str, power: float) -> None:
    assert shares_of_verdicts(truth, 12)[verdict] > power
