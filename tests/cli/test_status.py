from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient

from milbench._utils import locks
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.store.progress import Progress
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import PLUGINS, TINY, Milbench, process
from tests._helpers.mlflow_server import MlflowServer

BREAKING = str(PLUGINS / "breaking_loss.py")


def test_cells_that_wait_are_told_from_those_that_run_with_epoch_and_time_left(milbench: Milbench, root: Path) -> None:
    plan = make_plan(make_spec({"name": "mine", "losses": ["exact"], "tasks": [TINY], "seeds": "0-2"}), None)
    workspace, (first, second, _) = Workspace(root), plan.cells
    workspace.make()
    store = StoreWriter(workspace)
    launch = store.launch(plan, "milbench run")
    for cell in (first, second):
        store.start_cell("mine", cell, launch, {"milbench.device": "cpu"})
    Progress(20, 3, 5, 10, 0.1, begun=time.time() - 82).write(workspace.progress(first.id))  # 2.5 epochs in 82 s
    with locks.try_lock(workspace.lock(launch)), locks.try_lock(workspace.lock(first.id)):
        ran = milbench("status")
    assert ran.code == 1
    rows = [[part.strip() for part in line.split("│")[4:-1]] for line in ran.out.splitlines() if "│ tiny" in line]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("0", "running", "epoch 3 of 20, about 10 minutes left"), ("1", "queued", ""), ("2", "queued", "")]  # fmt: skip
    assert "0 of 3 cells done, 1 running, 2 queued" in ran.out
    after = milbench("status").out  # the launch was killed
    assert "0 of 3 cells done, 2 interrupted, 1 missing" in after


def test_the_traceback_of_a_failed_cell_is_named(milbench: Milbench, root: Path) -> None:
    assert milbench("run", "--loss", BREAKING, "--task", TINY).code == 1
    ran = milbench("status")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("where it failed: ")]
    assert "breaking_loss.py" in Path(line.removeprefix("where it failed: ")).read_text()
    assert "(breaking_loss.py:31)" in ran.out


def test_watching_ends_with_the_launch(root: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    words = ["--loss", "exact", "--task", TINY, "--epochs", "3", "-p", f"task.gate={gate}", "--threads", "1"]
    running = process("run", *words, "--in-process", "--root", str(root))
    try:
        while not Path(f"{gate}.reached").exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        watching = process("status", "--watch", "--root", str(root))
        time.sleep(1)
        assert watching.poll() is None, watching.communicate()
        gate.touch()
        out, err = watching.communicate(timeout=120)
        assert watching.returncode == 0, (out, err)
        assert "1 of 1 cells done" in out
        assert running.wait(timeout=30) == 0, "the cell had ended when watching did"
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def test_the_traceback_of_a_cell_on_a_server_is_named_by_its_run(
    sqlite_server: MlflowServer, milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_server.uri)
    assert milbench("run", "--loss", BREAKING, "--task", TINY, "--name", "broken").code == 1
    (line,) = [one for one in milbench("status", "broken").out.splitlines() if one.startswith("where it failed: ")]
    found = re.fullmatch(r"where it failed: (\S+) of run (\w+) on (\S+)", line)
    assert found
    assert found[3] == sqlite_server.uri
    text = Path(MlflowClient(found[3]).download_artifacts(found[2], found[1], str(root))).read_text()
    assert "breaking_loss.py" in text
