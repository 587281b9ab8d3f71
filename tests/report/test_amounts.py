"""The error against the number of training bags, and what supervision is worth, in a report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from milbench.api.results import Results
from milbench.report.amounts import series_of, worth_table
from milbench.report.figures.amounts import draw_amounts
from milbench.report.render import render
from milbench.report.study import Study
from tests._helpers.report_data import make_results

AMOUNTS = (100, 200, 400, 800)
SET = (0.40, 0.30, 0.20, 0.10)
POSITION = (0.25, 0.15, 0.05, 0.05)


def results(spread: tuple[float, ...] = (0.0, 0.01, -0.01)) -> Results:
    """Return results of two losses on a task with four numbers of bags; a seed moves both losses alike."""
    labels = {f"sounds bags={amount}": amount for amount in AMOUNTS}
    made = make_results(None, {"exact": 0.1, "position": 0.1}, dict.fromkeys(labels, "set_error"), len(spread), 2)
    cells = made.cells.assign(task="sounds")
    cells.loc[cells["loss"] == "position", "supervision"] = "position"
    params = {str(cell): {"task.train_bags": labels[row["task_label"]]} for cell, row in cells.iterrows()}
    rows = []
    for cell, row in cells.iterrows():
        means = SET if row["loss"] == "exact" else POSITION
        value = means[AMOUNTS.index(labels[row["task_label"]])] + spread[row["seed"]]
        rows += [(cell, epoch, f"{split}/set_error", value) for epoch in (1, 2) for split in ("validation", "test")]
    history = pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"])
    return replace(made, cells=cells, params=params, history=history, amounts={"sounds": "train_bags"}, published=[])


def test_set_labelled_bags_that_replace_bags_with_positions() -> None:
    """Errors of 25 % lie half way between 200 and 400 bags, 15 % between 400 and 800, and 5 % beyond what was tried."""
    study = Study(results())
    (series,) = series_of(study)
    assert (series.name, [*series.tasks]) == ("sounds", [*AMOUNTS])
    table = worth_table(study, series)
    assert table is not None
    ((_, lines),) = table.groups
    assert [line[0].text for line in lines] == [f"position, {amount} bags" for amount in AMOUNTS]
    assert [line[2].text for line in lines] == ["283", "566", ">", ">"]
    assert lines[0][2].detail.endswith("× 2.8")
    assert "[>, >]" in lines[2][2].detail


def test_amounts_are_compared_by_the_planned_metric_where_another_one_leads_on_some_of_them() -> None:
    """With 100 bags nearly all label sets are wrong, and the label error leads there."""
    made = results()
    few = made.cells.index[made.cells["task_label"] == f"sounds bags={AMOUNTS[0]}"]
    history = made.history.copy()
    history.loc[history["cell"].isin(few), "value"] = 0.97
    of_labels = history.assign(metric=history["metric"].str.replace("set_error", "label_error"), value=0.14)
    study = Study(replace(made, history=pd.concat([history, of_labels], ignore_index=True)))
    assert study.primary(f"sounds bags={AMOUNTS[0]}") == "label_error"
    (series,) = series_of(study)
    table = worth_table(study, series)
    assert table is not None
    assert table.columns[1].startswith("set error")
    ((_, lines),) = table.groups
    assert [line[2].text for line in lines] == ["100", "566", ">", ">"], (
        "97 % are those of 100 bags, 15 % lie above 400"
    )
    assert "Set error" in draw_amounts(study, series).title


def test_three_numbers_of_bags_make_a_curve_and_two_do_not() -> None:
    made = results()
    kept = made.cells["task_label"].isin([f"sounds bags={amount}" for amount in AMOUNTS[:2]])
    assert series_of(Study(replace(made, cells=made.cells[kept]))) == []
    assert series_of(Study(replace(made, amounts={}))) == []


def test_tasks_that_differ_in_something_else_are_no_curve() -> None:
    made = results()
    params = {cell: p | {"task.noise": p["task.train_bags"] % 3} for cell, p in made.params.items()}
    assert series_of(Study(replace(made, params=params))) == []


@pytest.mark.usefixtures("blank_figures")
def test_the_pages_show_the_curve_and_the_table(tmp_path: Path) -> None:
    files = {path.name for path in render(results(), tmp_path, gallery="none")}
    assert "amounts-sounds.png" in files
    for name in ("index.html", "report.md"):
        page = (tmp_path / name).read_text("utf-8")
        assert "Set error against the number of training bags: sounds" in page
        assert "What supervision is worth in bags: sounds" in page
