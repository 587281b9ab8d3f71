"""Published reports: what is kept is what was, and damaged files are one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from milbench.api.outcomes import Outcomes, save_outcomes
from milbench.errors import UsageError
from milbench.report.published import FRAME, PLAN, keep, read
from milbench.report.render import render
from milbench.report.study import Study, rows_of
from tests._helpers.report_data import ONE, make_results

STATUSES = {
    ("exact", "extended-digits", 0): ("failed", 'a "quoted", reason'),
    ("noisy-or", "extended-digits", 1): ("missing", ""),
}


def test_a_round_trip_keeps_the_plan_and_the_frame(tmp_path: Path) -> None:
    results = make_results(statuses=STATUSES, notes=["A note."])
    keep(results, tmp_path)
    back = read(tmp_path)
    assert back.plan == results.plan
    pd.testing.assert_frame_equal(back.frame, results.frame, check_dtype=False, rtol=1e-7)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    keep(back, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, "the same bytes again"


def test_outcomes_of_all_cells_are_one_file(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    study = Study(results)
    for row in rows_of(study.cells):
        error = float(study.table("extended-digits")[row.seed][row.variant])
        outcomes = Outcomes(np.full(5, error), np.ones(5), "x")
        save_outcomes(results.folders[row.cell] / "outcomes.npz", {"instance_error": outcomes})
    keep(results, tmp_path / "kept")
    back = Study(read(tmp_path / "kept"))
    noise = back.noise("extended-digits")
    assert noise is not None
    assert (noise.items == 5).all()


def test_a_gallery_that_was_drawn_stays_when_the_page_is_made_again(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    out = tmp_path / "report"
    render(results, out)
    keep(results, out)
    drawn = (out / "pictures/gallery-extended-digits.png").read_bytes()
    page = render(read(out), out).read_text("utf-8")
    assert "What each loss finds where" in page
    assert (out / "pictures/gallery-extended-digits.png").read_bytes() == drawn


def test_missing_and_damaged_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a published report"):
        read(tmp_path)
    keep(make_results(tasks=ONE), tmp_path)
    for name in (PLAN, FRAME):
        whole = (tmp_path / name).read_bytes()
        for content in (b"", whole[: len(whole) // 2], b"text"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(UsageError) as caught:
                read(tmp_path)
            assert "\n" not in str(caught.value)
        (tmp_path / name).write_bytes(whole)
