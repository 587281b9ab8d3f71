"""The tables of a search for settings, from draws made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from milbench.api.plan import SearchRecord
from milbench.report.figures.figure_data import search_facts
from milbench.report.study import Study
from milbench.report.tables import Entry
from milbench.report.tuning import search_tables
from tests._helpers.report_data import make_results

TASK = "synthetic-bags"
METRIC = "validation/set_error"


def searched(draws: dict[int, tuple[dict[str, Any], float | None]], chosen: int) -> Study:
    """Return a study of one loss whose draws, by number from 0, have these settings and errors; None: it failed."""
    made = make_results(None, {"exact": 0.1}, {TASK: "set_error"}, 3, 1)
    rows = [
        {
            "cell": f"draw{number}", "loss": "exact", "loss_label": "exact", "task_label": TASK, "seed": 1000,
            "status": "failed" if error is None else "done", "reason": "", "run_id": f"run{number}",
            "arm": 0, "draw": number, "settings": settings,
        }
        for number, (settings, error) in draws.items()
    ]  # fmt: skip
    errors = [(f"draw{number}", 1, METRIC, error) for number, (_, error) in draws.items() if error is not None]
    history = pd.concat([made.history, pd.DataFrame(errors, columns=["cell", "epoch", "metric", "value"])])
    search = SearchRecord({f"draw{number}": {"arm": 0, "draw": number} for number in draws}, [chosen], METRIC)
    return Study(replace(made, search=search, draws=pd.DataFrame(rows), history=history))


def lines(study: Study, title: str) -> list[list[Entry]]:
    (table,) = (table for table in search_tables(study, TASK) if table.title == title)
    ((_, found),) = table.groups
    return found


def test_a_draw_keeps_its_number_and_its_settings_where_an_equal_one_was_left_out() -> None:
    draws: dict[int, tuple[dict[str, Any], float | None]] = {
        0: ({"recipe.epochs": 2}, 0.5), 1: ({"recipe.epochs": 3}, 0.4), 3: ({"recipe.epochs": 4}, 0.3),
    }  # fmt: skip
    study = searched(draws, chosen=3)
    (chosen,) = lines(study, "Settings that were chosen")
    assert [entry.text for entry in chosen[1:3]] == ["4 of 4", "epochs = 4"]
    assert chosen[4].text == "30.0"
    every = lines(study, "Every draw")
    assert [(line[0].text, line[1].text, line[2].text, line[2].strong) for line in every] == [
        ("1", "epochs = 2", "50.0", False), ("2", "epochs = 3", "40.0", False), ("4", "epochs = 4", "30.0", True),
    ]  # fmt: skip
    frame = search_facts(study, TASK).frame
    assert frame[frame["chosen"]][["draw", "error"]].to_numpy().tolist() == [[4, 0.3]]


def test_as_many_draws_are_named_as_were_asked_for() -> None:
    """Of sixteen draws from three values three are different, and the last ones need not be among them."""
    draws: dict[int, tuple[dict[str, Any], float | None]] = {
        number: ({"recipe.epochs": 2 + number}, 0.5 - number / 10) for number in (0, 1, 3)
    }
    made = searched(draws, chosen=3)
    study = Study(replace(made.results, draws=made.results.draws.assign(asked=16)))
    (chosen,) = lines(study, "Settings that were chosen")
    assert chosen[1].text == "4 of 16"
    (table,) = (table for table in search_tables(study, TASK) if table.title == "Settings that were chosen")
    assert "Every loss had 16 draws from the same space (at most 3 of them different" in table.notes[0]


def test_an_error_of_all_label_sets_is_no_failure() -> None:
    study = searched({0: ({"recipe.lr": 9.0}, 1.0), 1: ({"recipe.lr": 0.1}, 0.2), 2: ({"recipe.lr": 99.0}, None)}, 1)
    errors = search_facts(study, TASK).frame.set_index("draw")["error"]
    assert errors[1] == 1.0
    assert pd.isna(errors[3])
    (table,) = (table for table in search_tables(study, TASK) if table.title == "Settings that were chosen")
    assert [note for note in table.notes if note.startswith("exact: ")] == ["exact: draw 3 failed."]
