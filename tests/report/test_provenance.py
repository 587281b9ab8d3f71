"""The origin of every number, and the published reports against the manifests that pin them."""

from __future__ import annotations

import hashlib
import io
import json
import re

import pandas as pd
import pytest

from milbench.report.provenance import provenance, results_frame
from milbench.report.study import Study
from tests._helpers.command_line import REPOSITORY
from tests._helpers.report_data import ONE, TWO, make_results

REPORTS = REPOSITORY / "reports"
PUBLISHED = re.findall(r"\]\(([^/)]+)/report\.md\)", (REPORTS / "README.md").read_text("utf-8"))


def test_there_are_published_reports() -> None:
    assert "supplementary-a" in PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_file_of_a_published_report_has_the_digest_in_its_manifest(name: str) -> None:
    folder = REPORTS / name
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    del files["manifest.json"]
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["sha256"] == {file: hashlib.sha256(path.read_bytes()).hexdigest() for file, path in files.items()}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_report_has_a_row_a_cell_and_the_columns_of_today(name: str) -> None:
    manifest = json.loads((REPORTS / name / "manifest.json").read_text("utf-8"))
    frame = pd.read_csv(REPORTS / name / "results.csv", index_col="cell", dtype={"run_id": str})
    assert {cell["cell"]: cell["run"] for cell in manifest["cells"]} == frame["run_id"].to_dict()
    assert "supervision" in frame.columns
    assert not [column for column in frame.columns if column == "tier" or "looks" in column]


def test_cells_made_differently_are_pointed_out() -> None:
    results = make_results(None, TWO, ONE, 2, 2)
    assert provenance(Study(results)).warnings == []
    cell = str(results.cells.index[0])
    results.provenance[cell] |= {"device": "cuda:0", "dirty": "yes", "pid": "1"}
    results.cells.loc[cell, "data_digest"] = "sha256:other"
    found = provenance(Study(results))
    assert "Cells differ in device: cpu (3 cells), cuda (1 cell)." in found.warnings
    assert "The code of 1 cell had changes that its revision does not contain." in found.warnings
    assert "Cells of extended-digits were made from different data." in found.warnings
    assert not any("pid" in warning for warning in found.warnings)
    assert "device=cuda:0" in found.lines[0].differs
    assert found.shared["recipe.lr"] == "0.0005"
    assert "device" not in found.shared


def test_what_the_cells_of_a_variant_share_is_said_once_and_the_rest_of_each() -> None:
    results = make_results(None, TWO, ONE, 2, 2)
    first, second = (line.cell for line in provenance(Study(results)).lines[:2])
    for cell in (first, second):
        results.params[cell] |= {"recipe.lr": "0.01"}
    results.provenance[second] |= {"device": "cuda:0"}
    one, other, *rest = provenance(Study(results)).lines
    assert "recipe.lr=0.01" in one.group.split(", ")
    assert one.group == other.group
    assert "recipe.lr=0.01" not in one.differs + other.differs
    assert one.differs == "device=cpu"
    assert other.differs == "device=cuda:0"
    assert all("recipe.lr=0.0005" in line.group.split(", ") for line in rest)


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
