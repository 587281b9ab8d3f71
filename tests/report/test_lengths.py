"""Training of different lengths: what a report compares at each, and when the order changes."""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd
import pytest

from milbench.report.combine import combine
from milbench.report.lengths import (
    Lengths,
    keep_longest,
    last_changes,
    length_lines,
    lengths_of,
    lengths_table,
    verdicts,
)
from milbench.report.sentences import sentences
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.report_data import ONE, make_results, results_by_epoch

TASK = "extended-digits"

A_LEADS = {"a": 0.05, "b": 0.2}
B_LEADS = {"a": 0.04, "b": 0.01}

A_IS_OVERTAKEN = {2: A_LEADS, 8: B_LEADS}
"""Number of epochs -> the error of each loss."""
A_STAYS_AHEAD = {2: A_LEADS, 8: {"a": 0.04, "b": 0.2}}

CHANGES = (
    "On extended-digits the order changes with the length of training, from 2 to 8 epochs: "
    "a leads at 2 and is worse than the best at 8, where b leads."
)
STAYS = (
    "On extended-digits no change of the order is shown from 2 to 8 epochs: "
    "the leader at each of these lengths may be the best at the other one too."
)

STEPS_AN_EPOCH = 100


def at_lengths(errors: Mapping[int, Mapping[str, float]], seeds: int = 3) -> Results:
    """Return results of losses that were trained for several numbers of epochs.

    The results do not say how many steps an epoch has.

    Args:
        errors: number of epochs -> the error of each loss.
        seeds: the number of seeds.
    """
    parts = []
    for epochs, of_losses in errors.items():
        made = make_results(losses=of_losses, tasks=ONE, epochs=epochs, seeds=seeds)
        parts.append(replace(made, frame=made.frame.assign(recipe=f"epochs={epochs}")))
    plan = replace(parts[0].plan, cells=[cell for part in parts for cell in part.plan.cells])
    frame = pd.concat([part.frame for part in parts], ignore_index=True)
    return Results(plan, frame, {})


def with_steps(results: Results) -> Results:
    """Return results that say the number of steps: STEPS_AN_EPOCH in each epoch."""
    frame = results.frame
    # Every cell has one row of this metric, at its last epoch.
    last_rows = frame[frame["metric"] == "cost/step_seconds"]
    steps = STEPS_AN_EPOCH * last_rows["epoch"].astype(float)
    rows = last_rows.assign(metric="cost/steps", value=steps)
    return replace(results, frame=pd.concat([frame, rows], ignore_index=True))


def only_lengths(results: Results) -> Lengths:
    """Return the lengths of training of results with only one task."""
    (found,) = lengths_of(Study(results))
    return found


def mean_after(results: Results, epochs: int, loss: str) -> float:
    """Return from the frame the mean test error of a loss at the end of this many epochs."""
    frame = results.frame
    frame = frame[frame["metric"] == "test/instance_error"]
    frame = frame[frame["recipe"] == f"epochs={epochs}"]
    frame = frame[frame["loss"] == loss]
    return float(frame[frame["epoch"] == epochs]["value"].mean())


def renamed(lengths: Lengths, task: str) -> Lengths:
    """Return lengths whose task has another name."""
    studies = {}
    for length, study in lengths.studies.items():
        frame = study.results.frame.assign(task=task)
        studies[length] = Study(replace(study.results, frame=frame))
    return replace(lengths, task=task, studies=studies)


def on_tasks(results: Results, names: list[str]) -> list[Lengths]:
    """Return the lengths of one task under several names, as if several tasks were alike."""
    lengths = only_lengths(results)
    return [renamed(lengths, name) for name in names]


def test_lengths_are_in_steps_where_these_are_known() -> None:
    lengths = only_lengths(with_steps(at_lengths(A_IS_OVERTAKEN)))
    assert lengths.unit == "steps"
    assert list(lengths.studies) == [2 * STEPS_AN_EPOCH, 8 * STEPS_AN_EPOCH]


def test_lengths_are_in_epochs_where_steps_are_unknown() -> None:
    lengths = only_lengths(at_lengths(A_IS_OVERTAKEN))
    assert lengths.unit == "epochs"
    assert list(lengths.studies) == [2, 8]


def test_one_length_is_no_comparison_of_lengths() -> None:
    assert not lengths_of(Study(make_results(tasks=ONE)))


def test_the_page_has_the_longest_training_alone() -> None:
    results = at_lengths(A_IS_OVERTAKEN)
    study = Study(results)
    of_page = keep_longest(study, lengths_of(study))
    means = of_page.table(TASK).mean(axis=1)
    assert means.index.tolist() == ["a", "b"]
    assert means["b"] == pytest.approx(mean_after(results, 8, "b"))


def test_the_page_has_all_of_one_length() -> None:
    study = Study(make_results(tasks=ONE))
    assert keep_longest(study, []) is study


def test_the_table_begins_with_the_best_after_the_longest_training() -> None:
    table = lengths_table(only_lengths(at_lengths(A_IS_OVERTAKEN)))
    assert list(table.frame.index) == ["b", "a"]


def test_the_table_has_the_means_of_each_length() -> None:
    results = at_lengths(A_IS_OVERTAKEN)
    table = lengths_table(only_lengths(results)).frame
    after_the_longest = str(table.loc["b"].iloc[1])
    mean = float(after_the_longest.partition(" ±")[0])
    assert mean == pytest.approx(100 * mean_after(results, 8, "b"), abs=0.06)


def test_the_table_ticks_losses_among_those_of_their_length() -> None:
    table = lengths_table(only_lengths(at_lengths(A_IS_OVERTAKEN))).frame
    after_two, after_eight = table.loc["a"]
    assert "✓" in str(after_two)
    assert "✓" not in str(after_eight)


@pytest.mark.parametrize(
    ("errors", "line"),
    [
        pytest.param(A_IS_OVERTAKEN, CHANGES, id="the leader is overtaken"),
        pytest.param(A_STAYS_AHEAD, STAYS, id="the leader stays ahead"),
    ],
)
def test_a_sentence_says_whether_the_order_changes(
    errors: dict[int, dict[str, float]], line: str
) -> None:
    assert length_lines(lengths_of(Study(at_lengths(errors)))) == [line]


def test_one_sentence_counts_tasks_where_there_are_many() -> None:
    changed = on_tasks(at_lengths(A_IS_OVERTAKEN), ["t1", "t2"])
    unchanged = on_tasks(at_lengths(A_STAYS_AHEAD), ["t3", "t4"])
    (line,) = length_lines([*changed, *unchanged])
    assert line == (
        "On 2 of 4 tasks the leader after the shortest training is worse than the best after the "
        "longest, or the other way round: t1 and t2."
    )


def test_many_tasks_without_a_change_are_not_named() -> None:
    (line,) = length_lines(on_tasks(at_lengths(A_STAYS_AHEAD), ["t1", "t2", "t3", "t4"]))
    assert line.startswith("On 0 of 4 tasks ")
    assert line.endswith(" or the other way round.")


def test_verdicts_are_of_the_longest_training_and_the_order() -> None:
    study = Study(at_lengths(A_IS_OVERTAKEN))
    lengths = lengths_of(study)
    assert verdicts(study) == [*sentences(lengths[0].longest), CHANGES]


def test_comparisons_that_differ_in_length_alone_are_lengths() -> None:
    short = make_results(losses=A_LEADS, tasks=ONE, epochs=2, name="short")
    long = make_results(losses=B_LEADS, tasks=ONE, epochs=8, name="long")
    lengths = lengths_of(Study(combine([short, long])))
    assert list(lengths_table(lengths[0]).frame.index) == ["b", "a"]
    assert length_lines(lengths) == [CHANGES]


def steady(loss: str, *errors: float) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return errors for `results_by_epoch` that are the same with each of three seeds.

    `errors` are the test errors of the loss after each epoch; on validation bags it is 0.5.
    """
    by_epoch = [(0.5, error) for error in errors]
    return {(loss, seed): by_epoch for seed in range(3)}


def test_one_length_says_how_much_two_losses_still_changed() -> None:
    results = results_by_epoch(steady("a", 0.4, 0.3) | steady("b", 0.5, 0.5))
    (line,) = last_changes(Study(results))
    assert line == (
        "On t the set error changed by −10.00 points with a and by 0.00 with b "
        "from epoch 1 to 2, the last two evaluations."
    )


def test_one_length_says_how_much_the_best_and_others_changed() -> None:
    results = results_by_epoch(
        steady("a", 0.4, 0.3) | steady("b", 0.5, 0.5) | steady("c", 0.4, 0.4, 0.2),
    )
    (line,) = last_changes(Study(results))
    assert line == (
        "On t the set error changed by −20.00 points with c and by −10.00 to 0.00 "
        "with the others between the last two evaluations."
    )


def test_a_loss_without_others_changed_alone() -> None:
    (line,) = last_changes(Study(results_by_epoch(steady("a", 0.4, 0.3))))
    assert line == (
        "On t the set error changed by −10.00 points with a from epoch 1 to 2, "
        "the last two evaluations."
    )


def test_one_evaluation_does_not_show_whether_training_was_long_enough() -> None:
    (line,) = last_changes(Study(results_by_epoch(steady("a", 0.4))))
    assert "evaluated once, at the end" in line


def test_without_values_nothing_is_said_of_changes() -> None:
    missing = {(loss, TASK, seed): ("missing", "") for loss in "ab" for seed in range(3)}
    results = make_results(losses={"a": 0.1, "b": 0.1}, tasks=ONE, statuses=missing)
    assert last_changes(Study(results)) == []
