"""Results by task and variant: samples, what is missing from them, what counts as a variant, and how searches grow."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from milbench.api.results import Results
from milbench.report.figures import charts
from milbench.report.pairs import findings, pairs_table
from milbench.report.provenance import provenance, results_frame
from milbench.report.published import comparisons
from milbench.report.study import Study, Variant
from milbench.report.tables import cost_table, main_table, metrics_table, rules_table
from tests._helpers.report_data import ONE, TWO, by_set_error, constant, make_results

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
    labels = [f"{loss} (head_init={head})" for head in ("prior", "paper") for loss in TWO]
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
        for make in (rules_table, metrics_table, pairs_table, cost_table, charts.seeds_figure, charts.curves_figure):
            assert make(study, task)
        for about in (main_table, findings, provenance, results_frame):
            about(study)
    return count


def kept(results: Results, epochs: set[int], interim: bool = False) -> Results:
    """Return results whose networks were evaluated on all bags after these epochs, else on some bags or not at all."""
    trained = [(cell, epoch, "train/loss", 1.0) for cell in results.cells.index for epoch in (1, 2)]
    history = pd.concat([results.history, pd.DataFrame(trained, columns=results.history.columns)], ignore_index=True)
    is_test = history["metric"].str.startswith(("test/", "validation/"))
    dropped = is_test & ~history["epoch"].isin(epochs)
    renamed = history.assign(metric=history["metric"].where(~dropped, "interim/" + history["metric"]))
    return replace(results, history=renamed if interim else history[~dropped])


SEEDS = {("exact", 0): [(0.1, 0.4), (0.3, 0.2)], ("exact", 1): [(0.1, 0.4), (0.3, 0.2)]}


@pytest.mark.parametrize("interim", [False, True])
def test_an_epoch_is_chosen_among_those_with_a_whole_evaluation_and_the_report_says_so(interim: bool) -> None:
    results = replace(by_set_error(constant(SEEDS)), selection="validation")
    whole, few = (Study(kept(results, epochs, interim)) for epochs in ({1, 2}, {2}))
    task = "extended-digits"
    assert whole.sample(task, EXACT).by_seed.tolist() == [0.4, 0.4]  # the best validation is that of epoch 1
    for rule in ("validation", "last", "test"):
        assert few.sample(task, EXACT, rule=rule).by_seed.tolist() == [0.2, 0.2]
    says = "among those that were evaluated on all bags, here 1 of 2"
    for table in (main_table(few), rules_table(few, task)):
        assert any(says in note for note in table.notes)
    for table in (main_table(whole), rules_table(whole, task)):
        assert not any("evaluated on all bags" in note for note in table.notes)


def test_a_published_choice_among_all_epochs_names_that_fewer_were_evaluated_here() -> None:
    published = [{"task": "extended-digits", "loss": "exact", "metric": "instance_error", "value": 0.2, "spread": None,
                  "source": "S", "rule": "test"}]  # fmt: skip
    for epochs, named in (({2}, True), ({1, 2}, False)):
        study = Study(kept(constant(SEEDS, published=published), epochs))
        (one,) = comparisons(study)
        assert any("evaluated on all bags, here 1 of 2" in reason for reason in one.reasons) is named


def test_the_curve_of_interim_evaluations_says_so() -> None:
    results = kept(constant(SEEDS), {2}, interim=True)
    figure = charts.curves_figure(Study(results), "extended-digits")
    assert figure is not None
    panel = figure.axes[0]
    assert "on some bags before the last epoch" in " ".join(panel.get_title().split())  # it may be on two lines
    (drawn,) = (found for found in panel.collections if isinstance(found, LineCollection))
    assert [segment.tolist() for segment in drawn.get_segments()] == [[[1, 40], [2, 20]]] * 2
    whole = charts.curves_figure(Study(constant(SEEDS)), "extended-digits")
    assert whole is not None
    assert "some bags" not in whole.axes[0].get_title()
