"""Results by task and variant: samples, what is missing from them, what counts as a variant, and how searches grow."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from milbench.report.figures import charts
from milbench.report.provenance import provenance, results_frame
from milbench.report.study import Study, Variant
from milbench.report.tables import cost_table, findings, main_table, metrics_table, paired_table, rules_table
from tests._helpers.report_data import ONE, TWO, constant, make_results

EXACT = Variant("set", "exact", "")


def test_diverged_values_are_named_and_kept_out_of_the_mean() -> None:
    study = Study(constant({
        ("exact", 0): [(0.1, 0.01)], ("exact", 1): [(0.1, math.nan)], ("exact", 2): [(math.nan, math.inf)],
    }))  # fmt: skip
    sample = study.sample("extended-digits", EXACT)
    assert sample.mean == 0.01
    assert sample.problems == ("seed 1 diverged, its value is nan", "seed 2 diverged, its value is inf")


def test_recipes_are_variants_of_their_own() -> None:
    one, two = make_results(None, TWO, ONE, 2, 3), make_results(None, TWO, {"x": "instance_error"}, 2, 3)
    cells = pd.concat([one.cells.assign(recipe_label="head_init=prior"),
                       two.cells.assign(recipe_label="head_init=paper", task_label="extended-digits")
                       .rename(index=lambda c: f"p{c}")])  # fmt: skip
    history = pd.concat([one.history, two.history.assign(cell="p" + two.history["cell"])])
    study = Study(replace(one, cells=cells, history=history))
    labels = [f"{loss}, head_init={head}" for head in ("prior", "paper") for loss in TWO]
    assert [row.label for row in study.variants] == labels
    assert len(main_table(study).groups[0][1]) == 4


def test_frames_are_searched_no_more_often_for_many_seeds_than_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    # A search that is made for every cell goes through all cells every time: quadratic, hours for thousands of them.
    assert _searches(40, monkeypatch) <= 1.2 * _searches(10, monkeypatch)


def _searches(seeds: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often rows or columns are selected from frames for all tables and charts of a report."""
    results, count = make_results(None, TWO, ONE, seeds, 3), 0
    select = pd.DataFrame.__getitem__

    def counted(frame: pd.DataFrame, key: object) -> object:
        nonlocal count
        count += 1
        return select(frame, key)

    with monkeypatch.context() as patch:
        patch.setattr(pd.DataFrame, "__getitem__", counted)
        study, task = Study(results), "extended-digits"
        for make in (rules_table, metrics_table, paired_table, cost_table, charts.seeds_figure, charts.curves_figure):
            assert make(study, task)
        for about in (main_table, findings, provenance, results_frame):
            about(study)
    return count
