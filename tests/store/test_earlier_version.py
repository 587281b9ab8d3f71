from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from milbench.api.results import Results
from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers import earlier_version as earlier
from tests._helpers.command_line import Milbench
from tests._helpers.other_machine import client

RESCORED = "test/transcription_error_rescored"


def is_the_earlier_comparison(results: Results) -> None:
    assert list(results.cells.index) == [earlier.CELL_ID]
    cell = results.cells.iloc[0]
    assert (cell.supervision, cell.status, cell.task, cell.seed) == ("set", "done", "house-numbers", 3)
    history = results.history.set_index("metric")
    assert set(history.index) == {"test/transcription_error", RESCORED}
    assert [tuple(row) for row in history.loc[RESCORED, ["epoch", "value"]].to_numpy()] == [(1, 0.5), (2, 0.25)]


def test_a_store_of_an_earlier_version_is_read(milbench: Milbench, root: Path) -> None:
    earlier.fill(root)
    is_the_earlier_comparison(collect(StoreReader(Workspace(root))))
    assert "1 of 1 cells done" in milbench("status", "old").out
    assert milbench("report", "old").code == 0


def test_a_run_that_went_on_under_the_new_name_is_one_history(root: Path) -> None:
    run = earlier.fill(root)
    client(root).log_metric(run, RESCORED, 0.125, 3000, 3)
    store = StoreReader(Workspace(root))
    history = store.histories([run])[run]
    assert [(v.epoch, v.value) for v in history[RESCORED]] == [(1, 0.5), (2, 0.25), (3, 0.125)]
    assert store.run(run).metrics == {"test/transcription_error": 0.5, RESCORED: 0.125}
    assert [(v.epoch, v.value) for v in history["test/transcription_error"]] == [(1, 0.75), (2, 0.5)]


def test_what_an_earlier_version_stored_is_exported_in_the_words_of_today(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    earlier.fill(root)
    assert milbench("export", "old", "--out", str(tmp_path / "x.zip")).code == 0
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["format"] == 2
    (run,) = manifest["cells"]
    assert run["cell"]["supervision"] == "set"
    assert run["metrics"][RESCORED] == [list(value) for value in earlier.METRICS["test/transcription_error_looks"]]


def write_format_1(path: Path, **changes: Any) -> None:
    """Write an export as format 1 had it, changes: what to replace in its cell."""
    plan = json.dumps(earlier.PLAN).encode()
    common = {"status": "FINISHED", "start": 500, "end": 3000, "params": {}}
    launch = {
        "run_id": "a" * 32, **common, "tags": earlier.LAUNCH_TAGS, "metrics": {},
        "artifacts": {"plan.json": hashlib.sha256(plan).hexdigest()},
    }  # fmt: skip
    cell = {
        "run_id": "b" * 32, **common, "tags": earlier.CELL_TAGS | {"mlflow.parentRunId": "a" * 32},
        "metrics": earlier.METRICS, "artifacts": {}, "cell": earlier.CELL | changes, "launch": "a" * 32,
    }  # fmt: skip
    manifest = {"format": 1, "milbench": "0.1.0", "name": "old", "launches": [launch], "cells": [cell]}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{'a' * 32}/plan.json", plan)
        archive.writestr("manifest.json", json.dumps(manifest))


def test_an_export_of_format_1_is_imported(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    write_format_1(tmp_path / "old.zip")
    assert milbench("import", str(tmp_path / "old.zip")).out.startswith("imported 1 cell of old (1 done)")
    is_the_earlier_comparison(collect(StoreReader(Workspace(root))))
    assert milbench("import", str(tmp_path / "old.zip")).out == "nothing to import: 1 cell of old (1 already here)\n"


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"seed": 4}, "was recorded under other cell ids"), ({"tier": 3}, "cells.0.cell.supervision in its manifest")],
)
def test_a_damaged_export_of_format_1_is_refused(
    milbench: Milbench, root: Path, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    write_format_1(tmp_path / "old.zip", **changes)
    assert says in milbench("import", str(tmp_path / "old.zip")).complaint()
    assert client(root).search_runs([e.experiment_id for e in client(root).search_experiments()]) == []
