"""The reports that are published with the project, against the manifests that pin them."""

from __future__ import annotations

import hashlib
import json
import re

import pandas as pd
import pytest

from tests._helpers.command_line import REPOSITORY

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
