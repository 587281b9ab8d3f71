"""The share of the gap from guessing to the oracle, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from milbench.report.gap import gap_table
from milbench.report.study import Study
from milbench.report.tables import Entry, Table
from tests._helpers.report_data import constant

TASK = "extended-digits"


def lines(table: Table | None) -> list[list[Entry]]:
    assert table is not None
    return [line for _, group in table.groups for line in group]


def oracle(
    rows: dict[str, list[float]], chance: float | None = 0.9, supervision: str = "position", **changes: Any
) -> Study:
    values = {(loss, seed): [(0.1, v)] for loss, errors in rows.items() for seed, v in enumerate(errors)}
    results = constant(values, **changes)
    cells = results.cells.assign(
        supervision=np.where(results.cells["loss"].str.startswith("oracle"), supervision, "set")
    )
    return Study(replace(results, cells=cells, chance={} if chance is None else {TASK: chance}))


def test_the_share_of_the_gap_by_hand() -> None:
    # Oracle 10 %, guessing 90 %: a mean error of 30 % closes 60 of 80 points, 94 % is worse than guessing.
    study = oracle({"good": [0.25, 0.30, 0.35], "bad": [0.94, 0.94, 0.94], "oracle": [0.1] * 3, "oracle-2": [0.2] * 3})
    table = gap_table(study, TASK)
    assert table is not None
    assert [name.partition(" ")[0] for name, _ in table.groups] == ["Set", "Position"], "kinds stay apart"
    good, bad, best, second = lines(table)
    # The oracle does not vary: Student's interval of 65, 60 and 55 points, 60 -+ 4.303 * 5 / sqrt(3), over 80.
    assert (good[2].text, good[2].detail) == ("75", "[59,\u00a091] n=3")
    assert (bad[2].text, bad[2].detail) == ("−5.00", "[−5.00,\u00a0−5.00] n=3")
    assert (best[2].text, best[2].detail) == ("100", "the oracle")
    assert second[2].text == "87.5"
    assert "guessing, one-instance error 90.0 %. 100 %: the oracle, oracle, 10.0 ± 0 %" in table.notes[0]


def test_the_interval_is_wider_where_seeds_split_the_same_data() -> None:
    rows = {"good": [0.25, 0.30, 0.35], "oracle": [0.1] * 3}
    study = oracle(rows)
    shared = Study(replace(study.results, overlaps={str(cell): 1.0 for cell in study.cells.index}))
    plain, wider = (lines(gap_table(one, TASK))[0][2].detail for one in (study, shared))
    # Means vary by 1/3 + 1 in place of 1/3: the interval is twice as wide, 75 -+ 2 * 15.5.
    assert (plain, wider) == ("[59,\u00a091] n=3", "[44,\u00a0106] n=3")


def test_the_gap_goes_by_the_seeds_that_both_have_and_names_how_many() -> None:
    rows = {"good": [0.5, 0.3, 0.3], "oracle": [0.1] * 3}
    study = oracle(rows, statuses={("oracle", TASK, 0): ("failed", "x")})
    good = lines(gap_table(study, TASK))[0][2]
    assert (good.text, good.warning) == ("75.0", "2 of 3 seeds"), "seed 0 has no oracle"
    assert good.detail == "n=2", "two seeds have no interval"


@pytest.mark.parametrize("changes", [{"chance": None}, {"supervision": "order"}, {"chance": 0.05}])
def test_without_both_ends_there_is_no_gap(changes: dict[str, Any]) -> None:
    assert gap_table(oracle({"good": [0.3] * 3, "oracle": [0.1] * 3}, **changes), TASK) is None
