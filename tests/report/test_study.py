"""The values by which losses are compared: the epoch that counts, summaries and missing cells."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from milbench.contracts.outcomes import Outcomes, save_outcomes
from milbench.contracts.published import Rule
from milbench.contracts.supervision import Supervision
from milbench.report.epochs import select_epochs
from milbench.report.study import Study
from milbench.report.values import failures
from tests._helpers.report_data import ONE, make_results, results_by_epoch, results_by_seed

CURVES = {("a", 0): [(0.3, 0.4), (0.1, 0.5)], ("a", 1): [(0.2, 0.6), (0.3, 0.1)]}
"""Loss and seed -> the errors on (validation, test) bags after each of two epochs."""


def counted(wrong: int) -> Outcomes:
    """Return the outcomes of ten test bags, of which the first `wrong` are wrong."""
    return Outcomes(np.arange(10) < wrong, np.ones(10), "x")


def test_the_rule_of_the_plan_needs_validation_values_of_all_cells() -> None:
    results = results_by_epoch(CURVES, selection="validation")
    assert Study(results).rule("t") == "validation"
    is_second_seed = results.frame["seed"] == 1
    is_validation = results.frame["metric"].str.startswith("validation")
    without = results.frame[~(is_second_seed & is_validation)]
    assert Study(replace(results, frame=without)).rule("t") == "last"


def test_a_summary_has_students_interval_and_every_planned_seed() -> None:
    values = [0.30, 0.35, 0.40]
    found = Study(results_by_seed({"a": values, "b": [math.nan]})).summary("t")
    expected = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert [found["low"]["a"], found["high"]["a"]] == pytest.approx(expected)
    assert found.loc["b", "seeds"] == 0
    assert not found.loc["b", "contender"], "a loss without a value is no contender"


def test_larger_values_lead_where_the_metric_says_so() -> None:
    study = Study(make_results(tasks={"t": "auroc"}))
    assert next(iter(study.summary("t").index)) == "exact", (
        "its error is the smallest, and its AUROC the largest"
    )
    assert study.summary("t")["mean"].is_monotonic_decreasing


def test_losses_are_compared_with_losses_of_the_same_supervision() -> None:
    supervision: dict[str, Supervision] = {"one-vs-rest": "position", "max-pooling": "position"}
    summary = Study(make_results(tasks=ONE, supervision=supervision)).summary("extended-digits")
    assert summary["contender"].to_dict() == {
        "exact": True,
        "noisy-or": True,
        "one-vs-rest": True,
        "max-pooling": False,
    }


def test_one_seed_names_no_contender_and_has_the_interval_of_its_test_items(tmp_path: Path) -> None:
    results = results_by_seed({"a": [0.1], "b": [0.9]})
    cell = results.frame.loc[results.frame["loss"] == "a", "cell"].iloc[0]
    save_outcomes(tmp_path / "outcomes.npz", {"set_error": counted(1)})
    found = Study(replace(results, folders={cell: tmp_path})).summary("t")
    assert not found["contender"].any()
    wilson = stats.binomtest(1, 10).proportion_ci(method="wilson")
    assert [found["low"]["a"], found["high"]["a"]] == pytest.approx([wilson.low, wilson.high])
    assert math.isnan(found["low"]["b"])


def test_outcomes_count_only_where_they_have_the_mean_of_the_chosen_epoch(tmp_path: Path) -> None:
    results = results_by_seed({"a": [0.1, 0.1, 0.1], "b": [0.1, 0.1, 0.1]})
    folders = {}
    for number, cell in enumerate(results.frame["cell"].unique()):
        folders[cell] = tmp_path / str(number)
        folders[cell].mkdir()
        # One of ten is wrong, as the set error of 0.1 says.
        save_outcomes(folders[cell] / "outcomes.npz", {"set_error": counted(1)})
    results = replace(results, folders=folders)
    assert Study(results).noise("t") is not None
    any_folder = next(iter(folders.values()))
    save_outcomes(any_folder / "outcomes.npz", {"set_error": counted(2)})
    assert Study(results).noise("t") is None


def test_draws_of_a_search_are_not_in_the_table() -> None:
    results = make_results(tasks=ONE)
    draws = results.frame.assign(draw=0, cell="d" + results.frame["cell"].str[1:], recipe="draw 1")
    both = replace(results, frame=pd.concat([draws.astype({"draw": "Int64"}), results.frame]))
    pd.testing.assert_frame_equal(
        Study(both).table("extended-digits"), Study(results).table("extended-digits")
    )


def test_what_is_not_done_is_told_with_its_reason() -> None:
    failed = ("failed", "FloatingPointError: not finite")
    statuses = {
        ("exact", "extended-digits", 0): failed,
        ("exact", "extended-digits", 2): failed,
        ("noisy-or", "extended-digits", 1): ("missing", ""),
    }
    study = Study(make_results(tasks=ONE, statuses=statuses))
    assert list(failures(study)) == [
        "failed: exact on extended-digits, seed 0, 2 (FloatingPointError: not finite)",
        "missing: noisy-or on extended-digits, seed 1",
    ]
    assert study.summary("extended-digits")["seeds"]["exact"] == 1
    assert study.summary("extended-digits")["planned"]["exact"] == 3


def history(cell: str = "one", **columns: list[float]) -> pd.DataFrame:
    """Return the values of a cell after each epoch, from 1 on.

    A keyword names a metric: `test_error` stands for test/error.
    """
    rows = []
    for name, values in columns.items():
        metric = name.replace("_", "/", 1)
        for epoch, value in enumerate(values, start=1):
            rows.append((cell, epoch, metric, value))
    return pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"])


def select_epoch(
    past: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True
) -> int | None:
    """Return the epoch that a rule chooses for the cell "one", None if it chooses none."""
    return select_epochs(past, rule, metric, lower_is_better).get("one")


@pytest.mark.parametrize(
    ("rule", "lower_is_better", "epoch"),
    [
        pytest.param("last", True, 4, id="the last one"),
        pytest.param("validation", True, 3, id="the later of two equals on validation"),
        pytest.param("validation", False, 3, id="a set error is to be small"),
        pytest.param("test", True, 3, id="the smallest on test"),
        pytest.param("test", False, 1, id="the largest on test"),
    ],
)
def test_each_rule_chooses_its_epoch(rule: Rule, lower_is_better: bool, epoch: int) -> None:
    past = history(
        test_error=[0.5, 0.2, 0.1, 0.3],
        validation_set_error=[0.4, 0.2, 0.2, 0.3],
        validation_error=[0.0] * 4,
    )
    assert select_epoch(past, rule, "error", lower_is_better) == epoch


@pytest.mark.parametrize(
    ("rule", "lower_is_better", "epoch"),
    [
        pytest.param("last", True, 3, id="the last one, finite or not"),
        pytest.param("validation", True, None, id="none is finite on validation"),
        pytest.param("test", True, 2, id="the smallest finite one on test"),
        pytest.param("test", False, 1, id="the largest finite one on test"),
    ],
)
def test_epochs_that_are_not_finite_are_passed_over(
    rule: Rule, lower_is_better: bool, epoch: int | None
) -> None:
    past = history(
        test_error=[0.5, 0.4, math.nan], validation_set_error=[math.nan, math.inf, math.nan]
    )
    assert select_epoch(past, rule, "error", lower_is_better) == epoch


def test_minus_infinity_is_passed_over_on_validation() -> None:
    past = history(test_error=[0.5, 0.4], validation_set_error=[-math.inf, 0.1])
    assert select_epoch(past, "validation", "error") == 2


def test_the_epoch_of_a_cell_does_not_depend_on_other_cells() -> None:
    falls = history("falls", test_error=[0.5, 0.2, 0.3], validation_set_error=[0.4, 0.1, 0.2])
    flat = history("flat", test_error=[0.9, 0.1, 0.8], validation_set_error=[0.3, 0.3, 0.3])
    unknown = [math.nan, math.nan]
    unjudged = history("unjudged", test_error=[0.1, 0.2], validation_set_error=unknown)
    untested = history("untested", validation_set_error=[0.1, 0.2])
    # The rows are shuffled: their order may not matter.
    several = pd.concat([falls, flat, unjudged, untested]).sample(frac=1, random_state=0)
    assert dict(select_epochs(several, "last", "error")) == {"falls": 3, "flat": 3, "unjudged": 2}
    assert dict(select_epochs(several, "validation", "error")) == {"falls": 2, "flat": 3}
    assert dict(select_epochs(several, "test", "error")) == {"falls": 2, "flat": 2, "unjudged": 1}
