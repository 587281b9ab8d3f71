from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from milbench._utils import locks
from milbench.api.outcomes import load_outcomes
from milbench.engine.trainer import STOP_INTERVAL
from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import TINY, Milbench, process, wait_for
from tests._helpers.other_machine import WORDS, content, runs_of


def test_everything_of_a_run_arrives(milbench: Milbench, root: Path, away: Path) -> None:
    ran = milbench("import", str(away / "all.zip"))
    assert (ran.code, ran.out) == (0, "imported 2 cells of mine (1 done, 1 failed); next: milbench report mine\n")
    there, here = runs_of(away), runs_of(root)
    assert set(here) == set(there) == {"launch of mine", "exact on tiny, seed 0", "breaking on tiny, seed 0"}
    digest = hashlib.sha256((away / "all.zip").read_bytes()).hexdigest()
    for name, origin in there.items():
        copy = here[name]
        assert content(root, copy) == content(away, origin)
        assert copy.info.run_id != origin.info.run_id
        own = {"milbench.origin_run": origin.info.run_id, "milbench.imported_from": f"sha256:{digest}"}
        parent = {"mlflow.parentRunId": here["launch of mine"].info.run_id} if "launch" not in name else {}
        moment = {"milbench.imported": copy.data.tags["milbench.imported"]}
        elsewhere = {"milbench.root": ""}  # the folder of another machine's store is left out
        assert copy.data.tags == {**origin.data.tags, **own, **parent, **moment, **elsewhere}
    assert here["exact on tiny, seed 0"].data.tags["milbench.host"] == "gpu-box"
    artifacts = content(root, here["exact on tiny, seed 0"])["artifacts"]
    kept = {"data_digest.txt", "gallery.npz", "model.safetensors", "decoder.json", "outcomes.npz", "task.json"}
    assert set(artifacts) == kept
    assert json.loads(artifacts["decoder.json"])["format"] == "tiny/1"
    results = collect(StoreReader(Workspace(root)))
    (cell,) = results.outcomes
    values = results.history.query("cell == @cell and metric == 'test/instance_error'").value
    assert load_outcomes(results.outcomes[cell])["instance_error"].value == pytest.approx(values.iloc[-1])


def test_an_imported_comparison_is_like_any_other(milbench: Milbench, root: Path, away: Path) -> None:
    milbench("import", str(away / "all.zip"))
    status = milbench("status", "mine")
    assert "1 of 2 cells done" in status.out
    assert "RuntimeError: the loss | broke" in status.out
    assert milbench("report", "mine").code == 0
    folder = root / "reports" / "mine"
    origin = runs_of(away)["exact on tiny, seed 0"]
    where = f"imported: run {origin.info.run_id} on gpu-box, {origin.data.tags['milbench.device_name']}"
    assert where in (folder / "index.html").read_text()
    assert f"{runs_of(root)['exact on tiny, seed 0'].info.run_id} ({where}) |" in (folder / "report.md").read_text()
    assert "No gallery" not in (folder / "report.md").read_text()
    assert "nothing to run, but 1 cells are not done" in milbench(*WORDS).out
    again = milbench(*WORDS, "--rerun", "failed")
    assert "2 cells, 1 to run" in again.out
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        failed = database.execute("select count(*) from runs where name like 'breaking%' and status = 'FAILED'")
        assert failed.fetchone() == (2,)


def test_launches_here_and_from_elsewhere_add_up(milbench: Milbench, root: Path, away: Path) -> None:
    milbench("run", "--loss", "noisy-or", "--task", TINY, "--name", "mine")
    milbench("import", str(away / "all.zip"))
    results = collect(StoreReader(Workspace(root)))  # of the comparison launched last, which is the launch here
    assert dict(results.cells.set_index("loss").status) == {"exact": "done", "breaking": "failed", "noisy-or": "done"}
    assert {tags.get("host") for tags in results.provenance.values()} == {"gpu-box", platform.node()}


def test_the_same_again_changes_nothing(milbench: Milbench, root: Path, away: Path, tmp_path: Path) -> None:
    milbench("import", str(away / "all.zip"))
    before = dump(root)
    again = milbench("import", str(away / "all.zip"))
    assert (again.code, again.out) == (0, "nothing to import: 2 cells of mine (2 already here)\n")
    assert dump(root) == before
    # A run is known by where it was made, through however many hands its copies went.
    assert milbench("export", "--out", str(tmp_path / "second-hand.zip")).code == 0
    home = tmp_path / "home"
    shutil.copytree(away, home)
    assert "2 already here" in milbench("import", str(tmp_path / "second-hand.zip"), "--root", str(home)).out


def dump(root: Path) -> list[str]:
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        return list(database.iterdump())


def test_a_cell_that_is_done_here_already_is_a_clash(milbench: Milbench, root: Path, away: Path) -> None:
    assert milbench(*WORDS).code == 1
    before = dump(root)
    said = milbench("import", str(away / "all.zip")).complaint()
    there, here = (runs_of(where)["exact on tiny, seed 0"].info.run_id for where in (away, root))
    assert "1 of its cells were done here by other runs, the first exact on tiny, seed 0" in said
    assert f"run {there} there, {here} here" in said
    assert dump(root) == before


@pytest.mark.parametrize(("method", "before"), [("log_file", 4), ("tag", 0), ("tag", 1), ("tag", 2)])
def test_an_import_that_was_killed_is_made_whole(
    milbench: Milbench, root: Path, away: Path, monkeypatch: pytest.MonkeyPatch, method: str, before: int
) -> None:
    calls = iter(range(100))
    real = getattr(StoreWriter, method)

    def dies(*words: Any) -> Any:
        if next(calls) >= before:
            raise KeyboardInterrupt
        return real(*words)

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, method, dies)
        assert milbench("import", str(away / "all.zip")).code == 130
    if method == "log_file" or before == 0:
        assert "nothing was run yet" in milbench("status").complaint()
    elif before == 1:  # the plan is published, and no part of a cell
        assert "0 of 2 cells done, 2 missing" in milbench("status").out
    assert milbench("import", str(away / "all.zip")).code == 0
    there, here = runs_of(away), runs_of(root)
    assert {name: content(root, run) for name, run in here.items()} == {
        name: content(away, run) for name, run in there.items()
    }
    assert {run.data.tags.get("mlflow.parentRunId") for run in here.values()} == {
        None,
        here["launch of mine"].info.run_id,
    }
    folders = {path.name for path in (root / "runs" / "artifacts").iterdir()}
    assert folders == {run.info.run_id for run in here.values()}


def test_of_two_imports_at_a_time_the_second_is_refused(milbench: Milbench, root: Path, away: Path) -> None:
    with locks.try_lock(Workspace(root).lock("import")):
        assert "another import" in milbench("import", str(away / "all.zip")).complaint()
    assert milbench("import", str(away / "all.zip")).code == 0


def test_a_cell_that_was_stopped_halfway_goes_on_elsewhere(milbench: Milbench, root: Path, tmp_path: Path) -> None:
    gate, exported = tmp_path / "gate", tmp_path / "half.zip"
    words = ("run", "--loss", "exact", "--task", TINY, "--epochs", "3", "-p", f"task.gate={gate}", "--in-process")
    running = process(*words, "--threads", "1", "--root", str(root))
    wait_for(running, tmp_path, "gate.reached")
    os.killpg(running.pid, signal.SIGTERM)
    wait_for(running, root / "runs" / "checkpoints", "*.stop")
    time.sleep(STOP_INTERVAL)
    gate.touch()
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert "is done or failed" in milbench("export", "--out", str(exported)).complaint()
    assert "(1 interrupted)" in milbench("export", "--out", str(exported), "--unfinished").out
    there, unbroken = tmp_path / "there", tmp_path / "unbroken"
    assert "imported 1 cell of tiny_task (1 interrupted)" in milbench("import", str(exported), "--root", str(there)).out
    for place in (there, unbroken):
        assert milbench(*words, "--threads", "1", "--root", str(place)).code == 0
        assert "(1 already here)" in milbench("import", str(exported), "--root", str(place)).out
    found, whole = (collect(StoreReader(Workspace(place))) for place in (there, unbroken))
    ((cell, tags),) = found.provenance.items()
    assert "in epoch 3 after step" in tags["resumed"]
    key = ["metric", "epoch", "value"]
    assert found.history[key].sort_values(key).values.tolist() == whole.history[key].sort_values(key).values.tolist()
    weights = [
        (place / "runs" / "artifacts" / one.cells.run_id[cell] / "artifacts" / "model.safetensors").read_bytes()
        for place, one in ((there, found), (unbroken, whole))
    ]
    assert load(weights[0]).keys() == load(weights[1]).keys()
    assert all(torch.equal(value, load(weights[1])[name]) for name, value in load(weights[0]).items())
