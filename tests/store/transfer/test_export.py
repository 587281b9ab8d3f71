from __future__ import annotations

import math
import shutil
import sqlite3
import zipfile
from pathlib import Path

from mlflow import MlflowClient

from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.other_machine import BREAKING, content, runs_of


def test_leaving_weights_and_pictures_out(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    def kinds(path: Path) -> set[str]:
        return {Path(name).name for name in zipfile.ZipFile(path).namelist()}

    small = tmp_path / "new" / "small.zip"
    assert milbench("export", "--root", str(away), "--out", str(small), "--no-weights", "--no-gallery").code == 0
    assert kinds(away / "all.zip") - kinds(small) == {"gallery.npz", "model.safetensors"}
    assert milbench("import", str(small)).code == 0
    results = collect(StoreReader(Workspace(root)))
    assert set(results.cells.status) == {"done", "failed"}
    assert not results.galleries
    # The whole export adds what the small one had left out, and a part of a file is none.
    said = milbench("import", str(away / "all.zip")).out
    assert "imported 2 cells of mine (2 already here); what was here had lacked gallery.npz of 1, model" in said
    there, here = (runs_of(where)["exact on tiny, seed 0"] for where in (away, root))
    assert content(root, here) == content(away, there)
    weights = root / "runs" / "artifacts" / here.info.run_id / "artifacts" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert "had lacked model.safetensors of 1;" in milbench("import", str(away / "all.zip")).out
    assert content(root, here) == content(away, there)
    assert "nothing to import" in milbench("import", str(small)).out


def test_a_launch_that_goes_on_is_over_in_its_copy(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    shutil.copytree(away, busy)
    with sqlite3.connect(busy / "runs" / "mlflow.db") as database:
        database.execute("update runs set status = 'RUNNING', end_time = null where name != 'exact on tiny, seed 0'")
    said = milbench("export", "--out", str(tmp_path / "part.zip"), "--root", str(busy)).out
    assert "2 cells of mine (1 done, 1 left out)" in said
    assert "1 done)" in milbench("import", str(tmp_path / "part.zip")).out
    assert {run.info.status for run in runs_of(root).values()} == {"FINISHED", "KILLED"}
    # What has ended there in the meantime comes with the next export.
    assert "(1 already here, 1 failed)" in milbench("import", str(away / "all.zip")).out


def test_infinite_values_come_back_infinite_from_store_and_export(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path
) -> None:
    """MLflow has no infinity: a loss that diverged would have a finite mean."""
    there = tmp_path / "there"
    shutil.copytree(away, there)
    run = runs_of(there)["exact on tiny, seed 0"].info.run_id
    client = MlflowClient(f"sqlite:///{there / 'runs' / 'mlflow.db'}")
    client.log_metric(run, "test/high", math.inf, step=1)
    client.log_metric(run, "test/low", -math.inf, step=1)
    client.log_metric(run, "test/none", math.nan, step=1)
    assert milbench("export", "--out", str(tmp_path / "odd.zip"), "--root", str(there)).code == 0
    assert milbench("import", str(tmp_path / "odd.zip")).code == 0
    for place in (there, root):
        history = collect(StoreReader(Workspace(place))).history.set_index("metric")["value"]
        assert (history["test/high"], history["test/low"]) == (math.inf, -math.inf)
        assert math.isnan(history["test/none"])


def test_what_cannot_be_exported_is_one_line(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "x.zip"))
    assert "nothing was run yet" in milbench("export", *out).complaint()
    assert "did you mean 'mine'" in milbench("export", "mien", *out, "--root", str(away)).complaint()
    assert "--out" in milbench("export", "mine", "--root", str(away)).complaint()
    for folder in (str(tmp_path), ""):
        assert "it is a folder" in milbench("export", "--out", folder, "--root", str(away)).complaint()
    assert "File name too long" in milbench("export", "--out", "x" * 300, "--root", str(away)).complaint()
    milbench("run", "--loss", BREAKING, "--task", TINY)
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        database.execute("update runs set status = 'KILLED'")
    assert "no cell of tiny_task is done or failed" in milbench("export", *out).complaint()
    assert not (tmp_path / "x.zip").exists()
