"""Where nearly all label sets are wrong: nothing is ranked by set error, and the label error leads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from milbench.api.contrast import Contrast
from milbench.api.results import Results
from milbench.report.contrasts import contrast_sentences, families
from milbench.report.pairs import findings, pairs_frame, pairs_table
from milbench.report.render import render
from milbench.report.study import Study
from milbench.report.tables import main_table
from tests._helpers.report_data import make_results

TASK = "bags"


def results(sets: dict[str, list[float]], labels: str = "", **fields: Any) -> Results:
    """Return results with these set errors by seed, and label errors of a third of them, less 0.2 for "b"."""
    made = make_results(
        None, dict.fromkeys(sets, 0.1), {TASK: "set_error"}, len(next(iter(sets.values()))), 2, **fields
    )
    rows = []
    for cell, loss, seed in zip(made.cells.index, made.cells["loss_label"], made.cells["seed"], strict=True):
        error = sets[loss][seed]
        rows.append((cell, 2, "test/set_error", error))
        if labels:
            rows.append((cell, 2, f"test/{labels}", error / 3 - 0.2 * (loss == "b")))
    return replace(made, history=pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"]))


ALL_WRONG = {"a": [0.95, 0.96, 0.955, 0.96], "b": [0.99, 0.995, 0.99, 1.0]}
SOME = ALL_WRONG | {"good": [0.2, 0.21, 0.19, 0.2]}


def marks(study: Study) -> dict[str, tuple[bool, str, str]]:
    (_, rows), *_ = main_table(study).groups
    return {row[0].text: (row[1].strong, row[1].mark, row[1].warning) for row in rows}


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("name", ["own_label_error", "label_error"])
def test_with_every_loss_nearly_all_sets_wrong_the_label_error_leads(name: str, tmp_path: Path) -> None:
    found = results(ALL_WRONG, name)
    study = Study(found)
    assert study.primary(TASK) == name
    (sentence,) = [text for _, text in findings(study)]
    assert sentence.startswith("lowest label error")
    assert ": b (13.1" in sentence, "b has the higher set error and the lower label error"
    assert "worse: a" in sentence
    assert "set errors rank nothing here: with every loss nearly all label sets are wrong, 95 % or more" in sentence
    assert marks(study)["b"][0], "bold"
    render(found, tmp_path, gallery="none")
    page = (tmp_path / "report.md").read_text("utf-8")
    assert "leads in their place" in page
    assert ("read it with caution" in page) == (name == "label_error"), "its threshold is that of the set error"


def test_without_label_errors_nothing_is_ranked_and_nothing_is_bold() -> None:
    study = Study(results(ALL_WRONG))
    assert study.primary(TASK) == "set_error"
    (sentence,) = [text for _, text in findings(study)]
    assert "better" not in sentence
    assert "worse" not in sentence
    assert sentence.endswith("nearly all label sets are wrong, 95 % or more, with a, b; set errors do not rank these.")
    assert marks(study)["a"] == (False, "", "nearly all label sets are wrong")
    assert set(pairs_frame(study)["verdict"]) == {"not ranked"}


def test_with_some_losses_right_set_errors_rank_these_before_the_others_and_not_the_others() -> None:
    found = results(SOME, "own_label_error")
    study = Study(replace(found, contrasts=[Contrast("wrong", "b", "a", {}, {TASK: (("b", ""), ("a", ""))})]))
    assert study.primary(TASK) == "set_error"
    frame = {(r["loss"], r["other_loss"]): r["verdict"] for r in pairs_frame(study).to_dict("records")}
    assert frame == {("a", "b"): "not ranked", ("a", "good"): "worse", ("b", "good"): "worse"}
    table = pairs_table(study, TASK)
    assert table is not None
    assert [row[5].text for _, rows in table.groups for row in rows if row[0].text == "a − b"] == [
        "not ranked: nearly all label sets are wrong with both"
    ]
    assert any("95 % or more" in note for note in table.notes)
    assert "with a (label error, own threshold 31." in findings(study)[0][1]
    assert marks(study)["a"][2].startswith("nearly all label sets are wrong; label error, own threshold 31.")
    ((_, sentence),) = contrast_sentences(families(study))
    assert "b beside a is not ranked: nearly all label sets are wrong with both on bags" in sentence


def test_nothing_is_said_of_label_sets_where_no_cell_is_done() -> None:
    found = results(ALL_WRONG, "label_error")
    cells = found.cells.assign(status="missing", run_id="", epochs=0)
    nothing = replace(found, cells=cells, history=found.history.iloc[:0])
    study = Study(nothing)
    assert study.primary(TASK) == "set_error"
    assert not study.is_replaced(TASK)
    assert not any("nearly all" in note for note in main_table(study).notes)


def test_what_counts_as_nearly_all_is_relative_to_guessing_where_that_is_known() -> None:
    errors = {"a": [0.72, 0.74, 0.73], "b": [0.75, 0.74, 0.75]}
    assert Study(results(errors, "own_label_error")).primary(TASK) == "set_error"
    known = Study(results(errors, "own_label_error", chance={TASK: 0.75}))
    assert known.primary(TASK) == "own_label_error", "95 % of 75 % are 71.25 %"
    assert known.chance(TASK) is None, "guessing is known for the set error"
    assert "71.25 % or more" in findings(known)[0][1]
