"""Published reports: what is kept is what was, and damaged files are one line."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from milbench.contracts.outcomes import Outcomes, load_outcomes, save_outcomes
from milbench.errors import UsageError
from milbench.report.classes import class_tables
from milbench.report.published_reports import FRAME, PLAN, read, save
from milbench.report.study import Study
from milbench.report.values import rows_of
from tests._helpers.report_data import ONE, make_results

STATUSES = {
    ("exact", "extended-digits", 0): ("failed", 'a "quoted", reason'),
    ("noisy-or", "extended-digits", 1): ("missing", ""),
}


def test_a_round_trip_keeps_the_plan_and_the_frame(tmp_path: Path) -> None:
    results = make_results(statuses=STATUSES, notes=["A note."])
    save(results, tmp_path)
    back = read(tmp_path)
    assert back.plan == results.plan
    pd.testing.assert_frame_equal(back.frame, results.frame, check_dtype=False, rtol=1e-7)
    alone = pd.read_csv(tmp_path / FRAME).query(
        "final and metric == 'test/instance_error' and loss == 'max-pooling'"
    )
    expected = list(Study(results).table("extended-digits").loc["max-pooling"])
    assert alone[alone["task"] == "extended-digits"]["value"].tolist() == pytest.approx(expected)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    save(back, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, (
        "the same bytes again"
    )


def test_outcomes_and_counts_of_all_cells_are_one_file_each(tmp_path: Path) -> None:
    results = make_results(tmp_path / "cells", tasks=ONE)
    study = Study(results)
    for row in rows_of(study.cells):
        error = float(study.table("extended-digits")[row.seed][row.variant])
        outcomes = Outcomes(np.full(5, error), np.ones(5), "x")
        stored = dict.fromkeys(("instance_error", "set_error", "unused"), outcomes)
        save_outcomes(results.folders[row.cell] / "outcomes.npz", stored)
        counts = {row.cell: {"cat": [4, 2, 1, 0, 3], "dog": [4, 5, 3, 1, 0]}}
        (results.folders[row.cell] / "classes.json").write_text(json.dumps(counts))
    rows = results.frame[results.frame["metric"] == "test/instance_error"].assign(
        metric="test/no_skill_set_error"
    )
    save(
        replace(results, frame=pd.concat([results.frame, rows], ignore_index=True)),
        tmp_path / "kept",
    )
    assert {name.split("/")[1] for name in load_outcomes(tmp_path / "kept" / "outcomes.npz")} == {
        "instance_error", "set_error",
    }  # fmt: skip
    study = Study(read(tmp_path / "kept"))
    noise, (scores, confusion) = (
        study.noise("extended-digits"),
        class_tables(study, "extended-digits"),
    )
    assert noise is not None
    assert (noise.items == 5).all()
    assert scores.frame["exact"].to_dict() == {"cat": "50.0 / 25.0", "dog": "60.0 / 75.0"}
    assert confusion.frame.to_numpy().tolist() == [["25.0", "75.0"], ["25.0", "75.0"]]


def test_a_name_outside_the_folder_of_reports_is_refused(tmp_path: Path) -> None:
    save(make_results(tasks=ONE), tmp_path)
    text = gzip.decompress((tmp_path / PLAN).read_bytes()).decode()
    edited = text.replace('"name": "demo"', '"name": "../up"')
    assert edited != text
    (tmp_path / PLAN).write_bytes(gzip.compress(edited.encode()))
    with pytest.raises(UsageError, match=r"name: Value error, expected at most 200 letters"):
        read(tmp_path)


def test_missing_and_damaged_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a published report"):
        read(tmp_path)
    save(make_results(tasks=ONE), tmp_path)
    for name in (PLAN, FRAME):
        whole = (tmp_path / name).read_bytes()
        for content in (b"", whole[: len(whole) // 2], b"text"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(UsageError, match=r"\A.+\Z"):  # of one line
                read(tmp_path)
        (tmp_path / name).write_bytes(whole)
