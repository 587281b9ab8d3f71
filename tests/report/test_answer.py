"""The first sentences of a report, for results made by hand whose answer is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from milbench.api.folds import Folds
from milbench.report.answer import answer
from milbench.report.at_chance import all_at_chance
from milbench.report.pairs import findings
from milbench.report.study import Study
from milbench.report.tables import main_table
from tests._helpers.report_data import make_results

TASKS = {"t1": "instance_error", "t2": "instance_error"}
NEAR = {"a": 0.100, "b": 0.101, "c": 0.8}
"""Two losses that cannot be told apart, and one that is far worse; seeds vary by about 10 % of each."""


def study(losses: dict[str, float], tasks: dict[str, str] | None = None, seeds: int = 6, **fields: Any) -> Study:
    return Study(make_results(None, losses, tasks or {"t1": "instance_error"}, seeds, 2, **fields))


def test_one_task_names_the_best_mean_and_what_is_not_shown_to_be_worse() -> None:
    which, avoid, sure = answer(study(NEAR))
    best, _, rest = which.partition(" has the best mean one-instance error, ")
    other = {"a": "b", "b": "a"}[best]
    assert f"; not shown to be worse: {other} (" in rest
    assert "c" not in rest.partition(":")[2]
    assert avoid.startswith(f"Shown to be worse than another loss: c (minus {best}: +")
    assert sure.startswith("How sure: 6 seeds a loss; of two losses that no other one is shown to beat, ")
    assert "a minus b: " in sure
    assert " percentage points" in sure


def test_one_that_is_better_than_all_others_is_named_alone() -> None:
    which, *_ = answer(study({"a": 0.01, "b": 0.3, "c": 0.8}))
    assert which.startswith("Use a: it is shown to be better than every other loss by one-instance error, ")


def test_nothing_told_apart_is_open() -> None:
    which, avoid, _ = answer(study({"a": 0.100, "b": 0.101}))
    assert which.startswith("The choice is open: ")
    assert avoid == "No loss is shown to be worse than another one."


def test_several_tasks_name_the_losses_that_none_beats_anywhere() -> None:
    found = study(NEAR, TASKS)
    which, avoid, _ = answer(found)
    best = []
    for task in TASKS:
        means = {v.label: found.sample(task, v).mean for v in found.variants_of(task)}
        best.append(min(means, key=lambda label: means[label]))
    assert which == (
        "By one-instance error, no loss is shown to be better than a or b on any of 2 tasks; "
        f"best means: {best[0]} on t1 and {best[1]} on t2."
    )
    assert avoid == "Shown to be worse than another loss: c on 2 of 2 tasks."


def test_the_best_means_of_many_tasks_are_counted() -> None:
    which, *_ = answer(study(NEAR, {f"t{i}": "instance_error" for i in range(6)}))
    counts = [int(n) for n in re.findall(r"(?:a|b) on (\d) of 6", which.partition("best means: ")[2])]
    assert sum(counts) == 6


def test_losses_that_are_best_on_different_tasks_depend_on_the_task() -> None:
    results = make_results(None, {"a": 0.01, "b": 0.8}, TASKS, 6, 2)
    cells = results.cells
    of_t2 = cells["task_label"] == "t2"
    cells.loc[of_t2, "loss_label"] = cells.loc[of_t2, "loss_label"].map({"a": "b", "b": "a"})
    which, avoid, _ = answer(Study(results))
    assert which.startswith("It depends on the task: by one-instance error, no loss holds its own on all 2 tasks")
    assert "a (not shown to be worse on 1 of 2) and b (not shown to be worse on 1 of 2)" in which
    assert "a on 1 of 2 tasks and b on 1 of 2 tasks" in avoid


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_give_no_verdict(seeds: int) -> None:
    which, observed, *_ = answer(study(NEAR, seeds=seeds))
    assert which.startswith("It cannot be told: a verdict needs 3 seeds")
    assert observed.startswith("Merely observed on t1: ")


def test_a_loss_that_lost_one_seed_is_still_the_best() -> None:
    """Of ten seeds one failed: the loss with all ten has the mean that is compared first, and is far worse."""
    found = study({"a": 0.01, "b": 0.3}, seeds=10, statuses={("a", "t1", 4): ("failed", "out of memory")})
    which, avoid, _ = answer(found)
    assert which.startswith("Use a: ")
    assert "b (minus a: +" in avoid
    ((_, sentence),) = findings(found)
    assert sentence.startswith("lowest one-instance error of the losses with 10 seeds: b (")
    fields = [row[1].detail for _, rows in main_table(found).groups for row in rows]
    assert [field.rpartition(", ")[2] for field in fields] == [
        "better on common seeds",
        "best mean of the losses with 10 seeds",
    ]
    two = study({"a": 0.01, "b": 0.3}, TASKS, 10, statuses={("a", "t1", 4): ("failed", "out of memory")})
    assert "best means: a on t1 and a on t2" in answer(two)[0]


def test_a_loss_that_failed_is_not_recommended_and_is_named() -> None:
    lost = {("a", "t1", seed): ("failed", "not finite") for seed in range(5)}
    which, avoid, _ = answer(study({"a": 0.01, "b": 0.1, "c": 0.8}, statuses=lost))
    assert which.startswith("Use b: it is shown to be better than every loss that it can be compared with")
    assert "too few results to compare: a on t1" in avoid


def test_set_errors_that_rank_nothing_name_no_winner() -> None:
    found = study({"a": 0.970, "b": 0.985, "c": 0.999}, {"t1": "set_error"})
    sentences = answer(found)
    assert sentences
    assert not [told for told in sentences if "Use" in told or "shown to be better than every" in told]


def test_tasks_without_a_verdict_are_not_counted_and_are_named() -> None:
    """On t2 only one seed is done, on t3 none: what is said holds for t1 alone."""
    tasks = dict.fromkeys(("t1", "t2", "t3"), "instance_error")
    lost = {(loss, "t2", seed): ("missing", "") for loss in NEAR for seed in range(1, 6)}
    lost |= {(loss, "t3", seed): ("missing", "") for loss in NEAR for seed in range(6)}
    which, avoid, _ = answer(study(NEAR, tasks, statuses=lost))
    assert " on t1, " in which
    assert "no verdict on t2 and t3" in avoid


def test_folds_are_called_folds() -> None:
    results = make_results(None, NEAR, TASKS, 6, 2)
    found = Study(replace(results, folds=dict.fromkeys(map(str, results.cells.index), Folds(3, 2))))
    assert "6 folds a loss" in answer(found)[2]


def test_guessing_is_no_result() -> None:
    found = study({"a": 0.9, "b": 0.905, "c": 0.895}, chance={"t1": 0.9})
    assert all_at_chance(found, "t1", "set")
    assert answer(found)[0] == "No loss can be told from guessing on any task."
    table = main_table(found)
    assert not [row for _, rows in table.groups for row in rows if row[1].strong]
    assert any("guessing" in note for note in table.notes)
    better = study({"a": 0.2, "b": 0.905}, chance={"t1": 0.9})
    assert not all_at_chance(better, "t1", "set")
    assert [row[1].strong for _, rows in main_table(better).groups for row in rows] == [True, False]


def test_losses_that_guess_are_rarely_taken_for_better() -> None:
    """One side of a 95 % interval is 2.5 %: of losses that only guess, no more are told from guessing."""
    rng = np.random.default_rng(0)
    told = 0
    results = make_results(None, {"a": 0.5}, {"t1": "instance_error"}, 4, 1, chance={"t1": 0.5})
    test = results.history["metric"] == "test/instance_error"
    for _ in range(300):
        results.history.loc[test, "value"] = rng.normal(0.5, 0.02, int(test.sum()))
        told += not all_at_chance(Study(results), "t1", "set")
    assert told <= 300 * 0.025 + 3 * np.sqrt(300 * 0.025 * 0.975)


def test_a_task_that_is_guessed_beside_one_with_a_single_loss_is_no_failure() -> None:
    lost = {("b", "t2", seed): ("failed", "not finite") for seed in range(6)}
    found = study({"a": 0.9, "b": 0.905}, TASKS, statuses=lost, chance={"t1": 0.9})
    assert answer(found)[0] == (
        "There is nothing to choose between: only one loss has results on each task; no loss can be told from guessing "
        "on t1."
    )


def test_two_losses_that_get_nearly_all_sets_wrong_do_not_speak_for_a_third() -> None:
    found = study({"a": 0.97, "b": 0.985, "c": 0.2}, {"t1": "set_error"}, seeds=1)
    assert answer(found)[0] == (
        "It cannot be told: a verdict needs 3 seeds that two losses have in common, and there is 1."
    )


def test_nothing_done_and_one_loss_alone() -> None:
    nothing = {(loss, "t1", seed): ("missing", "") for loss in "ab" for seed in range(3)}
    assert answer(study({"a": 0.1, "b": 0.2}, seeds=3, statuses=nothing)) == [
        "No cell is done, so there is no answer yet."
    ]
    assert "only one loss has results" in answer(study({"a": 0.1}))[0]


def test_other_supervision_is_no_competitor() -> None:
    results = make_results(None, NEAR, TASKS, 6, 2)
    results.cells.loc[results.cells["loss_label"] == "c", "supervision"] = "position"
    which, avoid, _ = answer(Study(results))
    assert which == (
        "Set supervision. The choice is open: by one-instance error, no loss is shown to be better than another one on "
        "any of 2 tasks."
    )
    assert "c" not in avoid.partition(":")[2]


def test_guessing_is_judged_for_each_supervision() -> None:
    results = make_results(None, {"a": 0.9, "b": 0.905, "c": 0.01}, {"t1": "instance_error"}, 6, 2, chance={"t1": 0.9})
    results.cells.loc[results.cells["loss_label"] == "c", "supervision"] = "position"
    found = Study(results)
    assert all_at_chance(found, "t1", "set")
    assert not all_at_chance(found, "t1", "position")
    assert answer(found)[0] == "Set supervision. No loss can be told from guessing on any task."
