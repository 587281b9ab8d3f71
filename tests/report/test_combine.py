"""One report on several comparisons: what counts once, and what is named after its comparison."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milbench.experiment.cell import Cell
from milbench.report.combine import combine
from milbench.report.study import Study
from milbench.store.results import Results
from tests._helpers.report_data import make_results, with_cells

TASK = "birds"


def comparison(name: str, **changes: Any) -> Results:
    """Return a comparison of two losses on one task."""
    fields: dict[str, Any] = {
        "losses": {"exact": 0.1, "noisy-or": 0.2},
        "tasks": {TASK: "set_error"},
    }
    return make_results(name=name, **fields | changes)


def on_other_data(cell: Cell) -> Cell:
    """Return a cell whose task has other data."""
    return replace(cell, task=replace(cell.task, data="other data"))


def tasks_of(*parts: Results) -> list[str]:
    """Return the names of the tasks of combined comparisons."""
    return Study(combine(parts)).tasks


def variants_of(*parts: Results) -> list[str]:
    """Return the names of the variants (losses with their settings) of combined comparisons."""
    return list(Study(combine(parts)).supervision)


def test_a_cell_of_two_comparisons_counts_once() -> None:
    first = comparison("first")
    both = combine([first, comparison("second")])
    assert len(both.frame) == len(first.frame)
    assert len(both.plan.cells) == len(first.plan.cells)


def test_losses_of_two_comparisons_stand_side_by_side() -> None:
    other = comparison("other", losses={"max-pooling": 0.3})
    assert variants_of(comparison("first"), other) == ["exact", "noisy-or", "max-pooling"]


def test_a_task_with_other_parameters_is_named_after_its_comparison() -> None:
    larger = comparison("large", params={TASK: {"size": 9}})
    assert tasks_of(comparison("small"), larger) == ["birds (small)", "birds (large)"]


def test_a_task_with_other_data_is_named_after_its_comparison() -> None:
    newer = with_cells(comparison("new"), on_other_data)
    assert tasks_of(comparison("old"), newer) == ["birds (old)", "birds (new)"]


def test_a_task_of_several_comparisons_is_named_after_the_first() -> None:
    larger = comparison("large", params={TASK: {"size": 9}})
    again = comparison("again", losses={"max-pooling": 0.3})
    assert tasks_of(comparison("small"), larger, again) == ["birds (small)", "birds (large)"]


def test_a_loss_with_another_recipe_is_named_after_its_comparison() -> None:
    longer = comparison("long", epochs=8)
    assert variants_of(comparison("short"), longer) == [
        "exact (short)",
        "noisy-or (short)",
        "exact (long)",
        "noisy-or (long)",
    ]


def test_a_recipe_with_a_name_keeps_it_beside_its_comparison() -> None:
    short = comparison("short", losses={"exact": 0.1})
    short = replace(short, frame=short.frame.assign(recipe="lr=0.1"))
    long = comparison("long", losses={"exact": 0.1}, epochs=8)
    long = replace(long, frame=long.frame.assign(recipe="lr=0.1"))
    assert variants_of(short, long) == ["exact (lr=0.1, short)", "exact (lr=0.1, long)"]


def test_draws_of_a_search_are_left_out() -> None:
    first = comparison("first")
    searched = comparison("searched", losses={"max-pooling": 0.3})
    searched = replace(searched, frame=searched.frame.assign(draw=0).astype({"draw": "Int64"}))
    assert variants_of(first, searched) == ["exact", "noisy-or"]


def test_the_name_and_the_title_name_both_comparisons() -> None:
    plan = combine([comparison("first"), comparison("second")]).plan
    assert plan.name == "first+second"
    assert plan.spec.title == "first beside second"


def test_the_margin_is_that_of_the_first_comparison() -> None:
    first = comparison("first", margin={"set_error": 0.01})
    second = comparison("second", margin={"set_error": 0.5})
    assert combine([first, second]).plan.spec.margin == {"set_error": 0.01}


def test_contrasts_are_left_out() -> None:
    """Contrasts name variants, and a combined report may give variants other names."""
    contrast = {"name": "c", "first": "exact", "second": "noisy-or"}
    first = comparison("first", contrasts=[contrast])
    assert combine([first, comparison("second")]).plan.spec.contrasts == []


def test_notes_say_which_comparison_they_are_of() -> None:
    first = comparison("first", notes=["It is a trial."])
    second = comparison("second", notes=["It is none."])
    rule, *notes = combine([first, second]).plan.notes
    assert rule.endswith("Metric, epoch and margin are those of first.")
    assert notes == ["first: It is a trial.", "second: It is none."]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Results, Results]:
    """Two comparisons whose cells have folders."""
    first = comparison("first", folder=tmp_path / "first")
    return first, comparison("second", folder=tmp_path / "second", epochs=8)


def test_cells_keep_their_folders(folders: tuple[Results, Results]) -> None:
    first, second = folders
    assert combine(folders).folders == {**first.folders, **second.folders}


def test_parts_keep_their_own_folders(folders: tuple[Results, Results]) -> None:
    first, _ = folders
    before = dict(first.folders)
    combine(folders)
    assert first.folders == before
