"""How long training was: what is compared at each length, and when the order changes."""

from dataclasses import replace

import pandas as pd
import pytest

from milbench.report.combine import combine
from milbench.report.lengths import last_changes, length_lines, lengths_of, lengths_table, longest
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.report_data import ONE, constant, make_results

TASK = "extended-digits"


def at_lengths(errors: dict[int, dict[str, float]], steps: bool = False, seeds: int = 3) -> Results:
    """Return results of losses after several numbers of epochs, of a hundred steps each."""
    parts = [
        make_results(losses=each, tasks=ONE, epochs=epochs, seeds=seeds)
        for epochs, each in errors.items()
    ]
    frames = [
        part.frame.assign(recipe=f"epochs={epochs}")
        for part, epochs in zip(parts, errors, strict=True)
    ]
    if steps:
        seconds = [frame[frame["metric"] == "cost/step_seconds"] for frame in frames]
        frames += [
            own.assign(metric="cost/steps", value=100.0 * own["epoch"].astype(int))
            for own in seconds
        ]
    cells = [cell for part in parts for cell in part.plan.cells]
    return Results(replace(parts[0].plan, cells=cells), pd.concat(frames, ignore_index=True), {})


def test_losses_are_compared_with_those_of_their_length_and_the_page_has_the_longest() -> None:
    results = at_lengths({2: {"a": 0.05, "b": 0.2}, 8: {"a": 0.04, "b": 0.01}}, steps=True)
    (found,) = lengths_of(study := Study(results))
    assert (found.unit, list(found.studies)) == ("steps", [200, 800])
    assert longest(study, [found]).table(TASK).index.tolist() == ["a", "b"]
    table = lengths_table(found).frame
    assert list(table.index) == ["b", "a"], "the best after the longest training first"
    rows = results.frame[
        (results.frame["metric"] == "test/instance_error") & (results.frame["recipe"] == "epochs=8")
    ]
    mean = 100 * rows[(rows["epoch"] == 8) & (rows["loss"] == "b")]["value"].mean()
    assert float(table.loc["b"].iloc[1].split(" ±")[0]) == pytest.approx(mean, abs=0.06)
    assert ["✓" in str(text) for text in table.loc["a"]] == [True, False]


CHANGED = "the order changes with the length of training, from 2 to 8 epochs: a leads at 2 and is worse than the best"
SAME = (
    "no loss that leads at the one length is worse than the best at the other, from 2 to 8 epochs"
)


@pytest.mark.parametrize(("b", "said"), [(0.01, f"{CHANGED} at 8, where b leads"), (0.2, SAME)])
def test_a_sentence_says_whether_the_order_changes(b: float, said: str) -> None:
    results = at_lengths({2: {"a": 0.05, "b": 0.2}, 8: {"a": 0.04, "b": b}})
    assert length_lines(lengths_of(Study(results))) == [f"On extended-digits {said}."]


def test_comparisons_that_differ_in_length_alone_are_lengths_of_the_same_losses() -> None:
    late = {2: 0.2, 8: 0.01}
    parts = [
        make_results(losses={"a": 0.05, "b": b}, tasks=ONE, epochs=n, name=f"x{n}")
        for n, b in late.items()
    ]
    lengths = lengths_of(Study(combine(parts)))
    assert list(lengths_table(lengths[0]).frame.index) == ["b", "a"]
    assert length_lines(lengths) == [f"On extended-digits {CHANGED} at 8, where b leads."]


def test_one_length_says_how_much_the_last_evaluations_changed() -> None:
    errors = {("a", k): [(0.5, 0.4), (0.5, 0.3)] for k in range(3)} | {
        ("b", k): [(0.5, 0.5)] * 2 for k in range(3)
    }
    (line,) = last_changes(Study(constant(errors)))
    assert "changed by −10.00 points with a and by 0.00 with b from epoch 1 to 2" in line.replace(
        "+0.00", "0.00"
    )
    errors |= {("c", k): [(0.5, 0.4), (0.5, 0.4), (0.5, 0.2)] for k in range(3)}
    (line,) = last_changes(Study(constant(errors)))
    assert (
        "by −20.00 points with c and by −10.00 to 0.00 with the others between the last two evaluations"
        in line
    )
    (once,) = last_changes(Study(constant({("a", 0): [(0.5, 0.4)]})))
    assert "evaluated once" in once
    assert not lengths_of(Study(make_results(tasks=ONE)))
