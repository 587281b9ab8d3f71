"""The first sentences of a report, for results made by hand whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from milbench.report.answer import answer
from milbench.report.at_chance import all_at_chance
from milbench.report.study import Study
from milbench.report.tables import main_table
from tests._helpers.report_data import make_results

TASKS = {"t1": "instance_error", "t2": "instance_error"}
NEAR = {"a": 0.100, "b": 0.101, "c": 0.8}
"""Two losses that cannot be told apart, and one that is far worse; seeds vary by about 10 % of each."""


def study(losses: dict[str, float], tasks: dict[str, str] | None = None, seeds: int = 6, **fields: Any) -> Study:
    return Study(make_results(None, losses, tasks or {"t1": "instance_error"}, seeds, 2, **fields))


def test_one_task_names_the_best_and_what_cannot_be_told_from_it() -> None:
    which, avoid, sure = answer(study(NEAR))
    assert which.startswith(("Use a or b: a has the best", "Use b or a: b has the best"))
    assert "cannot be told from it" in which
    assert "c by +" in avoid
    assert "6 seeds a loss" in sure
    assert "a less b" in sure
    assert "points" in sure


def test_one_that_is_better_than_all_others_is_named_alone() -> None:
    which, *_ = answer(study({"a": 0.01, "b": 0.3, "c": 0.8}))
    assert which.startswith("Use a: ")
    assert which.endswith("better than every other loss beyond noise.")


def test_nothing_told_apart_is_any() -> None:
    which, avoid, _ = answer(study({"a": 0.100, "b": 0.101}))
    assert which.startswith("Any: ")
    assert avoid == "No loss is worse than another one beyond noise."


def test_several_tasks_count_where_a_loss_may_be_the_best() -> None:
    which, avoid, sure = answer(study(NEAR, TASKS))
    assert which == "Use a or b: on all 2 tasks no loss is better than these beyond noise."
    assert avoid == "Worse than another loss beyond noise: c on 2 of 2 tasks."
    assert "within a task" in sure


def test_losses_that_are_best_on_different_tasks_depend_on_the_task() -> None:
    results = make_results(None, {"a": 0.01, "b": 0.8}, TASKS, 6, 2)
    cells = results.cells
    of_t2 = cells["task_label"] == "t2"
    cells.loc[of_t2, "loss_label"] = cells.loc[of_t2, "loss_label"].map({"a": "b", "b": "a"})
    which, avoid, _ = answer(Study(results))
    assert which.startswith("It depends on the task")
    assert "a on 1 of 2, b on 1 of 2" in which
    assert "a on 1 of 2 tasks, b on 1 of 2 tasks" in avoid


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_give_no_verdict(seeds: int) -> None:
    which, observed, *_ = answer(study(NEAR, seeds=seeds))
    assert which.startswith("It cannot be told: a verdict needs 3 seeds")
    assert "observed" in observed


def test_guessing_is_no_result() -> None:
    found = study({"a": 0.9, "b": 0.905, "c": 0.895}, chance={"t1": 0.9})
    assert all_at_chance(found, "t1")
    assert "no loss can be told from guessing" in answer(found)[0]
    table = main_table(found)
    assert not [row for _, rows in table.groups for row in rows if row[1].strong]
    assert any("guessing" in note for note in table.notes)
    better = study({"a": 0.2, "b": 0.905}, chance={"t1": 0.9})
    assert not all_at_chance(better, "t1")
    assert [row[1].strong for _, rows in main_table(better).groups for row in rows] == [True, False]


def test_losses_that_guess_are_rarely_taken_for_better() -> None:
    """One side of a 95 % interval is 2.5 %: of losses that only guess, no more are told from guessing."""
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(300):
        results = make_results(None, {"a": 0.5}, {"t1": "instance_error"}, 4, 1, chance={"t1": 0.5})
        test = results.history["metric"] == "test/instance_error"
        results.history.loc[test, "value"] = rng.normal(0.5, 0.02, int(test.sum()))
        told += not all_at_chance(Study(results), "t1")
    assert told <= 300 * 0.025 + 3 * np.sqrt(300 * 0.025 * 0.975)


def test_nothing_done_and_one_loss_alone() -> None:
    nothing = {(loss, "t1", seed): ("missing", "") for loss in "ab" for seed in range(3)}
    assert answer(study({"a": 0.1, "b": 0.2}, seeds=3, statuses=nothing)) == [
        "No cell is done, so there is no answer yet."
    ]
    assert "one loss alone, a" in answer(study({"a": 0.1}))[0]


def test_other_supervision_is_no_competitor() -> None:
    results = make_results(None, NEAR, TASKS, 6, 2)
    results.cells.loc[results.cells["loss_label"] == "c", "supervision"] = "position"
    which, *_ = answer(Study(results))
    assert which.startswith("Set supervision: ")
    assert "c" not in which.partition(": ")[2].split(":")[0]
