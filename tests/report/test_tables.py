"""The tables of a report, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench.api.outcomes import Outcomes, save_outcomes
from milbench.report.pairs import findings
from milbench.report.provenance import status_counts, unfinished
from milbench.report.render import latex_table, render
from milbench.report.study import Study
from milbench.report.tables import (
    Entry,
    Table,
    cost_table,
    main_table,
    metrics_table,
    rules_table,
)
from tests._helpers.report_data import LOSSES, ONE, TWO, by_set_error, constant, make_results


def text_of(table: Table) -> str:
    lines = [" | ".join(f"{e.text} {e.mark} {e.detail} {e.warning}" for e in row) for _, g in table.groups for row in g]
    return "\n".join([*lines, *table.notes])


def entries(table: Table) -> dict[str, list[Entry]]:
    return {row[0].text: row[1:] for _, group in table.groups for row in group}


def test_the_main_table_by_hand() -> None:
    # Epochs chosen on validation: 2, 1, 2. Test errors there: 1 %, 2 %, 3 %.
    results = by_set_error(constant({
        ("exact", 0): [(0.5, 0.001), (0.1, 0.01)],
        ("exact", 1): [(0.2, 0.02), (0.3, 0.001)],
        ("exact", 2): [(0.3, 0.001), (0.1, 0.03)],
    }))  # fmt: skip
    chosen_on_validation = Study(replace(results, selection="validation"))
    entry = entries(main_table(chosen_on_validation))["exact"][0]
    assert entry.text == "2.0 ± 1.0"
    assert entry.detail == "[−0.5,\u00a04.5] n=3", "2 -+ 4.303 / sqrt(3)"
    assert entry.strong
    study = Study(results)
    assert entries(main_table(study))["exact"][0].text == "1.4 ± 1.5", "the last epoch, unless the spec says otherwise"
    for one, rule in ((study, "last epoch"), (chosen_on_validation, "chosen on validation")):
        table = rules_table(one, "extended-digits")
        assert [e.text for e in entries(table)["exact"]] == ["1.4 ± 1.5", "2.0 ± 1.0", "0.10 ± 0"]
        assert f"Losses are compared by: {rule}." in table.notes
        assert any("Best on test: chosen with the test bags" in note for note in table.notes)


def test_two_seeds_have_no_interval() -> None:
    entry = entries(main_table(Study(make_results(None, TWO, ONE, 2, 3))))["exact"][0]
    assert entry.detail.startswith("n=2, ")
    assert "±" in entry.text


def test_one_seed_has_an_interval_over_the_items_that_it_counts(tmp_path: Path) -> None:
    results = constant({("exact", 0): [(0.2, 0.08)]})
    assert entries(main_table(Study(results)))["exact"][0].detail == "n=1"
    (cell,) = map(str, results.cells.index)
    path = tmp_path / "outcomes.npz"
    wrong = np.r_[np.ones(80), np.zeros(920)]
    # By hand, with z = 1.959964: (0.08 + z^2 / 2000 -+ z sqrt(0.08 * 0.92 / 1000 + z^2 / 4e6)) / (1 + z^2 / 1000).
    for sums, weights, detail in (
        (wrong, np.ones(1000), "[6.47,\u00a09.85] over items, n=1"),
        (wrong * 2, np.full(1000, 2), "n=1"),  # items that count twice are no draws of a coin
        (np.full(1000, 0.08), np.ones(1000), "n=1"),
        (np.r_[np.ones(90), np.zeros(910)], np.ones(1000), "n=1"),  # of another epoch
    ):
        save_outcomes(path, {"instance_error": Outcomes(sums, weights, "3f2c")})
        found = Study(replace(results, outcomes={cell: path}))
        assert entries(main_table(found))["exact"][0].detail == detail
    assert "over items is Wilson's" in text_of(main_table(found))


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


def test_one_seed_has_no_interval_and_no_verdict_and_says_so() -> None:
    study = Study(make_results(None, LOSSES, ONE, 1, 3))
    entry = entries(main_table(study))["exact"][0]
    assert "±" not in entry.text
    assert entry.detail.startswith("n=1, ")
    assert "One seed (n=1): no interval over seeds and no verdict" in text_of(main_table(study))


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_the_main_table_says_what_tf32_is_where_a_recipe_has_it(precision: str) -> None:
    results = make_results(None, LOSSES, ONE, 1, 3)
    params = {cell: {**known, "recipe.precision": precision} for cell, known in results.params.items()}
    notes = main_table(Study(replace(results, params=params))).notes
    assert any(note.startswith("precision=tf32: ") for note in notes) == (precision == "tf32")


def test_the_main_table_names_the_parameters_that_no_name_of_a_loss_shows() -> None:
    results = make_results(None, {"exact": 0.01, "noisy-or": 0.01, "top-k k=2": 0.02, "top-k k=5": 0.02}, ONE, 1, 3)
    own: dict[str, dict[str, Any]] = {"exact": {}, "noisy-or": {"loss.head": "softmax"}}
    own |= {f"top-k k={k}": {"loss.k": k, "loss.share": None} for k in (2, 5)}
    labels = results.cells["loss_label"].astype(str)
    params = {str(cell): {**results.params[str(cell)], **own[label]} for cell, label in labels.items()}
    said = main_table(Study(replace(results, params=params))).notes[-1]
    assert said.endswith("its name leaves out: noisy-or head=softmax; top-k share=none.")
    assert not any("leaves out" in note for note in main_table(Study(results)).notes)


def test_without_validation_the_last_epoch_counts_and_the_report_says_so() -> None:
    study = Study(make_results(None, TWO, ONE, 2, 3, validation=False, selection="validation"))
    assert study.rule("extended-digits") == "last"
    assert "at the last epoch, since not every finished cell has a validation set error" in text_of(main_table(study))
    table = rules_table(study, "extended-digits")
    assert table.columns == ["loss", "last epoch", "best on test (the rule of the paper's program)"]
    assert "Losses are compared by: last epoch." in table.notes


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


def test_latex_is_balanced() -> None:
    text = latex_table(main_table(Study(make_results(None, TWO, ONE, 3, 3))))
    assert text.count(r"\begin") == text.count(r"\end") == 1
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in body} == {1}
    assert r"\textbf{" in text
    assert r"$\pm$" in text


@pytest.mark.usefixtures("blank_figures")
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


@pytest.mark.parametrize(
    ("busy", "median", "spread", "marked"),
    [
        (0.1, 0.0012, 0.0003, False),
        (0.3, 0.0012, 0.0003, True),
        (0.1, 0.0016, 0.0003, True),
        (0.1, 0.0012, 0.0006, True),
        (math.nan, 0.0012, 0.0003, False),
    ],
)
def test_the_least_and_the_spread_of_durations_stand_beside_them_with_a_mark_where_the_machine_was_busy(
    busy: float, median: float, spread: float, marked: bool
) -> None:
    """One of three seeds was measured on a machine that others used, or at least a quarter of its calls were slow."""
    results = make_results(None, {"exact": 0.1}, ONE, 3, 2)
    columns: dict[str, Any] = {
        "step_seconds": 0.01, "loss_seconds": [0.0012, median, 0.0012], "loss_seconds_min": [0.0011, 0.001, 0.0011],
        "loss_seconds_spread": [0.0001, 0.0002, spread], "busy": [0.0, busy, 0.0],
    }  # fmt: skip
    table = cost_table(Study(replace(results, costs=results.costs.assign(**columns))), "extended-digits")
    assert table is not None
    loss, step = entries(table)["exact"][:2]
    assert loss == Entry("1.20 ms", "least 1.00 ms, spread 200 µs, 12% of a step", mark="†" if marked else "")
    assert step == Entry("10.0 ms"), "as in a run of an earlier version, which has no least step"
    assert any(note.startswith("†: the machine was busy") for note in table.notes) == marked


def test_clipped_steps_are_in_the_table_of_costs() -> None:
    results = make_results(None, {"exact": 0.1}, ONE, 3, 2)
    shares = zip(results.cells.index, [(0.5, 0.1), (0.2, 0.0), (0.0, 0.0)], strict=True)
    rows = [(cell, epoch, "train/clipped", v) for cell, pair in shares for epoch, v in enumerate(pair, start=1)]
    history = pd.concat([results.history, pd.DataFrame(rows, columns=results.history.columns)])
    table = cost_table(Study(replace(results, history=history)), "extended-digits")
    assert table is not None
    assert table.columns[-1] == "steps shortened"
    assert table.groups[0][1][0][-1].text == "10.0 %", "seeds have 30, 10 and 0 % of their steps"
    plain = cost_table(Study(results), "extended-digits")
    assert plain is not None
    assert "steps shortened" not in plain.columns
