"""`milbench report`, `status` and `list`."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace

from tests._helpers.command_line import PLUGINS, TINY, Milbench

BASE = ("run", "--loss", "exact", "--task", TINY)


def test_lists(milbench: Milbench) -> None:
    losses = milbench("list", "losses")
    assert losses.code == 0
    for name in ("exact", "max-pooling", "one-vs-rest", "noisy-or", "normalization=bag"):
        assert name in losses.out
    tasks = milbench("list", "tasks")
    assert tasks.code == 0
    for name in ("extended-digits", "extended-mnist", "synthetic-bags"):
        assert name in tasks.out
    specs = milbench("list", "specs")
    assert specs.code == 0
    assert "demo" in specs.out
    milbench(*BASE, "--name", "mine")
    runs = milbench("list", "runs")
    assert runs.code == 0
    assert "mine" in runs.out


def test_a_run_and_its_report(milbench: Milbench, root: Path) -> None:
    name = "n" * 200  # the longest that is accepted
    assert milbench("run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-1", "--name", name).code == 0
    assert milbench("report").code == 0
    folder = root / "reports" / name
    page = (folder / "index.html").read_text()
    csv = (folder / "results.csv").read_text()
    for run_id in collect(StoreReader(Workspace(root)), name).cells.run_id:
        assert run_id in page
        assert run_id in csv
    assert "noisy-or" in (folder / "report.md").read_text()


def test_the_runs_beside_a_report_are_all_that_another_store_needs(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    milbench(*BASE, "--seeds", "0-1", "--name", "mine")
    folder, there = root / "reports" / "mine", tmp_path / "there"
    assert milbench("report").code == 0
    assert not (folder / "runs.zip").exists()
    assert milbench("report", "--runs", "--gallery", "none").code == 0
    with zipfile.ZipFile(folder / "runs.zip") as archive:
        assert {Path(name).name for name in archive.namelist()} & {"gallery.npz", "model.safetensors"} == set()
        said = json.loads(archive.read("manifest.json"))
    tags = [(name, tag) for run in [*said["launches"], *said["cells"]] for name, tag in run["tags"].items()]
    assert {name for name, tag in tags if str(root) in tag} <= {"milbench.command"}, "no path but what the user typed"
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["sha256"]["runs.zip"] == hashlib.sha256((folder / "runs.zip").read_bytes()).hexdigest()
    for page in ("index.html", "report.md"):
        assert "--loss mine.py" in (folder / page).read_text("utf-8")
    assert milbench("import", str(folder / "runs.zip"), "--root", str(there)).code == 0
    assert milbench("report", "--root", str(there)).code == 0
    here, elsewhere = (pd.read_csv(place / "reports/mine/results.csv") for place in (root, there))
    pd.testing.assert_frame_equal(here.filter(like="test/"), elsewhere.filter(like="test/"))
    further = milbench(
        "run", "--loss", f"exact,{PLUGINS / 'third_party_loss.py'}", "--task", TINY, "--seeds", "0-1", "--name", "mine",
        "--root", str(there), "--dry-run",
    )  # fmt: skip
    assert "4 cells, 2 to run" in further.out, "those of the other loss alone"
    assert milbench("report").code == 0
    assert not (folder / "runs.zip").exists(), "the runs of an earlier report do not stay beside a later one"


def test_a_report_without_runs_to_put_beside_it_is_refused(milbench: Milbench, root: Path) -> None:
    milbench(*BASE, "--name", "mine")
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        database.execute("update runs set status = 'KILLED' where name like 'exact%'")
    assert "no cell of mine is done or failed" in milbench("report", "--runs").complaint()
    assert not (root / "reports" / "mine").exists()


def test_the_report_is_rendered_without_torch(milbench: Milbench, root: Path) -> None:
    milbench(*BASE)
    code = f"""
import sys
sys.argv = ["milbench", "report", "--root", {str(root)!r}]
from milbench.cli.main import main
try:
    main()
except SystemExit as stop:
    print("code", stop.code)
print("torch", "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("code 0\ntorch False\n")
