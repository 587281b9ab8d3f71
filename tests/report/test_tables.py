"""What the tables, the figures and the list of runs say, by hand."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from milbench.report.figures import charts, published_lines
from milbench.report.provenance import provenance, results_frame, status_counts, unfinished
from milbench.report.render import latex_table, render
from milbench.report.study import Study, Variant
from milbench.report.tables import (
    Entry,
    Table,
    cost_table,
    findings,
    main_table,
    metrics_table,
    paired_table,
    rules_table,
)
from tests._helpers.report_data import LOSSES, ONE, TWO, constant, make_results

EXACT = Variant("set", "exact", "")


def text_of(table: Table) -> str:
    lines = [" | ".join(f"{e.text} {e.mark} {e.detail} {e.warning}" for e in row) for _, g in table.groups for row in g]
    return "\n".join([*lines, *table.notes])


def entries(table: Table) -> dict[str, list[Entry]]:
    return {row[0].text: row[1:] for _, group in table.groups for row in group}


def test_the_main_table_by_hand() -> None:
    # Epochs chosen on validation: 2, 1, 2. Test errors there: 1 %, 2 %, 3 %.
    study = Study(constant({
        ("exact", 0): [(0.5, 0.001), (0.1, 0.01)],
        ("exact", 1): [(0.2, 0.02), (0.3, 0.001)],
        ("exact", 2): [(0.3, 0.001), (0.1, 0.03)],
    }))  # fmt: skip
    entry = entries(main_table(study))["exact"][0]
    assert entry.text == "2.0 ± 1.0"
    assert entry.detail == "[1.0,\u00a03.0] n=3"
    assert entry.strong
    last, chosen, best = entries(rules_table(study, "extended-digits"))["exact"]
    assert last.text == "1.4 ± 1.5"
    assert chosen.text == "2.0 ± 1.0"
    assert best.text == "0.10 ± 0"


def test_failed_and_missing_cells_are_named_in_their_row() -> None:
    statuses = {("max-pooling", "extended-digits", 1): ("failed", "ValueError: boom"),
                ("exact", "extended-digits", 0): ("missing", ""), ("exact", "extended-digits", 1): ("missing", ""),
                ("exact", "extended-digits", 2): ("missing", "")}  # fmt: skip
    study = Study(make_results(None, TWO, ONE, 3, 3, statuses=statuses))
    table = entries(main_table(study))
    assert table["max-pooling"][0].warning == "2 of 3 seeds; seed 1 failed: ValueError: boom"
    assert table["exact"][0].text == "—"
    assert table["exact"][0].warning == "0 of 3 seeds; seeds 0-2 missing"
    assert status_counts(study) == {"done": 2, "failed": 1, "missing": 3}
    assert [line.partition(" (run")[0] for line in unfinished(study)] == [
        "exact on extended-digits, seeds 0-2: missing",
        "max-pooling on extended-digits, seed 1: failed: ValueError: boom",
    ]
    assert findings(study)[0][1].endswith("no result: exact.")


def test_diverged_values_are_named_and_kept_out_of_the_mean() -> None:
    study = Study(constant({
        ("exact", 0): [(0.1, 0.01)], ("exact", 1): [(0.1, math.nan)], ("exact", 2): [(math.nan, math.inf)],
    }))  # fmt: skip
    sample = study.sample("extended-digits", EXACT)
    assert sample.mean == 0.01
    assert sample.problems == ("seed 1 diverged, its value is nan", "seed 2 diverged, its value is inf")


def test_one_seed_has_no_interval_and_no_test_and_says_so() -> None:
    study = Study(make_results(None, LOSSES, ONE, 1, 3))
    entry = entries(main_table(study))["exact"][0]
    assert "±" not in entry.text
    assert entry.detail == "n=1"
    assert "One seed (n=1): no interval and no test" in text_of(main_table(study))
    paired = paired_table(study, "extended-digits")
    assert paired is not None
    assert {e.text for e in entries(paired)["max-pooling − exact"][2:6]} == {"—"}
    assert "One common seed: no interval and no test." in paired.notes
    assert "worse" not in findings(study)[0][1], "no rank from one seed"


def test_five_seeds_say_what_they_cannot_reach() -> None:
    paired = paired_table(Study(make_results(None, TWO, ONE, 5, 3)), "extended-digits")
    assert paired is not None
    assert (
        "5 seeds cannot reach below p = 0.0625 (two-sided exact Wilcoxon), however large the difference."
        in paired.notes
    )
    row = entries(paired)["max-pooling − exact"]
    assert row[0].text == "5"
    assert row[4].text == "0.0625"
    assert row[6].text == "worse"


def test_ties_are_marked_and_bold_is_the_best() -> None:
    values = {("a", s): [(0.1, 0.010 + 0.001 * s)] for s in range(3)}
    values |= {("b", s): [(0.1, 0.013 - 0.001 * s)] for s in range(3)}
    values |= {("c", s): [(0.1, 0.100 + 0.001 * s)] for s in range(3)}
    table = entries(main_table(Study(constant(values))))
    assert [(table[n][0].strong, table[n][0].mark) for n in "abc"] == [(True, ""), (False, "≈"), (False, "")]


def test_pairs_are_made_on_common_seeds() -> None:
    statuses = {("max-pooling", "extended-digits", 0): ("interrupted", "")}
    paired = paired_table(Study(make_results(None, TWO, ONE, 4, 3, statuses=statuses)), "extended-digits")
    assert paired is not None
    assert entries(paired)["max-pooling − exact"][0].text == "3"


def test_without_validation_the_last_epoch_counts_and_the_report_says_so() -> None:
    study = Study(make_results(None, TWO, ONE, 2, 3, validation=False))
    assert study.rule("extended-digits") == "last"
    assert "at the last epoch, since not every finished cell has a validation metric" in text_of(main_table(study))
    table = rules_table(study, "extended-digits")
    assert table.columns == ["loss", "last epoch", "best on test (the paper's rule)"]
    assert "Comparisons here go by the last epoch." in table.notes[0]


def test_tasks_have_their_own_primary_metric_and_a_hole_where_nothing_was_planned() -> None:
    results = make_results(None, TWO, {"a": "instance_error", "b": "auroc"}, 3, 3)
    cells = results.cells
    study = Study(replace(results, cells=cells[~((cells["task"] == "b") & (cells["loss"] == "max-pooling"))]))
    table = main_table(study)
    assert table.columns == ["loss", "a: one-instance error (%) ↓", "b: AUROC ↑"]
    assert entries(table)["max-pooling"][1].text == "not planned"
    assert float(entries(table)["exact"][1].text.split()[0]) > 0.9
    assert "highest AUROC: exact" in findings(study)[1][1]
    others = metrics_table(study, "a")
    assert others is not None
    assert others.columns[1:] == ["set error (%) ↓", "average precision ↑", "AUROC ↑", "hit rate (%) ↑"]


def test_kinds_of_supervision_are_apart_and_each_has_its_best() -> None:
    results = make_results(None, {**TWO, "oracle": 0.001}, ONE, 3, 3)
    cells = results.cells.assign(supervision=np.where(results.cells["loss"] == "oracle", "position", "set"))
    study = Study(replace(results, cells=cells))
    table = main_table(study)
    assert [name.partition(" ")[0] for name, _ in table.groups] == ["Set", "Position"]
    assert entries(table)["exact"][0].strong
    assert entries(table)["oracle"][0].strong
    assert [where for where, _ in findings(study)] == [
        "extended-digits, set supervision",
        "extended-digits, position supervision",
    ]
    assert r"\multicolumn{2}{l}" in latex_table(table)


def test_recipes_are_rows_of_their_own() -> None:
    one, two = make_results(None, TWO, ONE, 2, 3), make_results(None, TWO, {"x": "instance_error"}, 2, 3)
    cells = pd.concat([one.cells.assign(recipe_label="head_init=prior"),
                       two.cells.assign(recipe_label="head_init=paper", task_label="extended-digits")
                       .rename(index=lambda c: f"p{c}")])  # fmt: skip
    history = pd.concat([one.history, two.history.assign(cell="p" + two.history["cell"])])
    study = Study(replace(one, cells=cells, history=history))
    labels = [f"{loss}, head_init={head}" for head in ("prior", "paper") for loss in TWO]
    assert [row.label for row in study.variants] == labels
    assert len(main_table(study).groups[0][1]) == 4


def test_latex_is_balanced() -> None:
    text = latex_table(main_table(Study(make_results(None, TWO, ONE, 3, 3))))
    assert text.count(r"\begin") == text.count(r"\end") == 1
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in body} == {1}
    assert r"\textbf{" in text
    assert r"$\pm$" in text


def test_published_values_are_matched_by_task_loss_and_metric() -> None:
    study = Study(make_results(None, TWO, epochs=2))
    found = published_lines.of_losses(study, "extended-digits")
    assert {row.loss: facts[0].value for row, facts in found.items()} == {"exact": 0.004, "max-pooling": 0.08}
    assert published_lines.of_losses(study, "synthetic-bags") == {}
    assert "exact 0.4 % (Li 2018, Supplementary A)" in published_lines.caption_of_lines(study, "extended-digits")
    none = Study(make_results(None, TWO, epochs=2, published=[]))
    assert published_lines.caption_of_lines(none, "extended-digits") == ""


def test_a_published_value_is_drawn_where_it_is() -> None:
    figure = charts.seeds_figure(Study(make_results(None, TWO, ONE, 3, 2)), "extended-digits")
    assert figure is not None
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert sorted(float(np.asarray(line.get_xdata())[0]) for line in dashed) == pytest.approx([0.4, 8.0])


@pytest.mark.parametrize("label", ["exact", "exact, clip_norm=0.001, at length"])
def test_a_legend_is_no_wider_than_its_figure(label: str) -> None:
    losses = {f"{label} {n}": 0.1 for n in range(5)}
    figure = charts.curves_figure(Study(make_results(losses=losses, tasks=ONE)), "extended-digits")
    assert figure is not None
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    box = figure.legends[0].get_window_extent(canvas.get_renderer())  # type: ignore[no-untyped-call]
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert {" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()} == set(losses)


def test_methods_that_are_no_losses_here_are_lines_with_a_legend() -> None:
    results = make_results(None, TWO, ONE, 3, 2)
    other = {"task": "extended-digits", "loss": "", "metric": "instance_error"}
    theirs = [
        other | {"value": value, "source": f"{name} 2014", "method": name, "data": "SVHN, "}
        for name, value in (("Goodfellow", 0.04), ("Ba", 0.039))
    ]
    study = Study(replace(results, published=[*theirs, theirs[0] | {"metric": "set_error"}, *results.published]))
    assert {row.loss for row in published_lines.of_losses(study, "extended-digits")} == {
        "exact",
        "max-pooling",
    }
    caption = published_lines.caption_of_lines(study, "extended-digits")
    assert caption.endswith("no losses here: Ba 3.9 % (Ba 2014); Goodfellow 4 % (Goodfellow 2014).")
    for make in (charts.seeds_figure, charts.curves_figure):
        figure = make(study, "extended-digits")
        assert figure is not None
        axes = figure.axes[0]
        lines = {line.get_label(): line for line in axes.lines}
        for name, value in (("Ba, 3.9 %", 3.9), ("Goodfellow, 4 %", 4.0)):
            data = lines[name].get_xdata() if make is charts.seeds_figure else lines[name].get_ydata()
            assert list(np.asarray(data)) == [value, value]
        assert {text.get_text() for text in figure.legends[0].get_texts()} >= {"Ba, 3.9 %", "Goodfellow, 4 %"}


def test_costs_are_medians_in_human_units_and_absent_ones_leave_no_table(tmp_path: Path) -> None:
    results = make_results(None, {"exact": 0.1}, ONE, 3, 2)
    results.costs.loc[:, "loss_seconds"] = [0.001, 0.002, 0.9]
    results.costs.loc[:, "step_seconds"] = [0.01, 0.01, 0.01]
    table = cost_table(Study(results), "extended-digits")
    assert table is not None
    assert entries(table)["exact"][0] == Entry("2.00 ms", "20% of a step")
    nothing = replace(results, costs=results.costs * math.nan)
    assert cost_table(Study(nothing), "extended-digits") is None
    render(nothing, tmp_path / "out")
    assert not list((tmp_path / "out/figures").glob("costs*"))


def test_cells_made_differently_are_pointed_out() -> None:
    results = make_results(None, TWO, ONE, 2, 2)
    assert provenance(Study(results)).warnings == []
    cell = str(results.cells.index[0])
    results.provenance[cell] |= {"device": "cuda:0", "dirty": "yes", "pid": "1"}
    results.cells.loc[cell, "data_digest"] = "sha256:other"
    found = provenance(Study(results))
    assert "Cells differ in device: cpu (3 cells), cuda:0 (1 cell)." in found.warnings
    assert "The code of 1 cell had changes that its revision does not contain." in found.warnings
    assert "Cells of extended-digits were made from different data." in found.warnings
    assert not any("pid" in warning for warning in found.warnings)
    assert "device=cuda:0" in found.lines[0].differs
    assert found.shared["recipe.lr"] == "0.0005"
    assert "device" not in found.shared


def test_every_value_stands_beside_its_run() -> None:
    results = make_results(None, TWO, ONE, 3, 4)
    study = Study(results)
    for line in provenance(study).lines:
        assert results.cells.loc[line.cell, "run_id"] == line.run_id
        row = next(row for row in study.variants if row.label == line.label)
        value = study.sample(line.task, row).by_seed[line.seed]
        assert float(line.value) == pytest.approx(100 * value, abs=0.06)


def test_the_results_frame_survives_a_round_trip_with_whole_epochs() -> None:
    statuses = {("exact", "extended-digits", 0): ("failed", "x")}
    frame = results_frame(Study(make_results(None, TWO, ONE, 2, 3, statuses=statuses)))
    text = frame.to_csv()
    assert ",3," in text
    read = pd.read_csv(io.StringIO(text), index_col="cell")
    assert read.loc[frame.index[1], "last/epoch"] == 3
