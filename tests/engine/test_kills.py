"""Launches that are killed at any moment: the same command ends where the unbroken run does, bit for bit.

`make test` kills one launch after the other in one store, each at another stage. `make test-kills` kills 25 launches at
random moments, each in a store of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import psutil
import pytest

from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY, process, wait_for

WORDS = ("run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-1", "--epochs", "4", "-p", "task.batches=25",
         "--jobs", "2", "--threads", "1", "--quiet")  # fmt: skip
STAGES = {
    "making the store": "runs/.mlflow.db-*/*",
    "planning": "runs/mlflow.db",
    "training": "runs/checkpoints/*.progress",
    "evaluating": "runs/checkpoints/*.pt",
    "writing artifacts": "runs/artifacts/*/artifacts/model.safetensors",
    "ending": "runs/artifacts/*/artifacts/gallery.npz",
}
"""What is in a root when a stage has begun."""


def run(root: Path) -> float:
    """Run the command to its end; return how many seconds it took."""
    begun = time.monotonic()
    running = process(*WORDS, "--root", str(root))
    out, err = running.communicate(timeout=250)
    assert running.returncode == 0, (out, err)
    return time.monotonic() - begun


def kill_in(root: Path, stage: str, delay: float) -> bool:
    """Start the command and kill all its processes some seconds after a stage has begun.

    Returns:
        Whether it was still going on then.
    """
    before = set(root.glob(STAGES[stage]))
    running = process(*WORDS, "--root", str(root))
    while running.poll() is None and not set(root.glob(STAGES[stage])) - before:
        time.sleep(0.002)
    time.sleep(delay)
    alive = running.poll() is None
    kill(running.pid)
    running.communicate(timeout=60)
    return alive


def kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.killpg(group, signal.SIGKILL)


def numbers(root: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return every value of every epoch, and a digest of the weights of each cell."""
    results = collect(StoreReader(Workspace(root)), "tiny_task")
    assert set(results.cells.status) == {"done"}
    weights = {
        str(cell): hashlib.sha256((Workspace(root).artifacts_of(run_id) / "model.safetensors").read_bytes()).hexdigest()
        for cell, run_id in results.cells.run_id.items()
    }
    return results.history.sort_values(["cell", "metric", "epoch"], ignore_index=True), weights


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, pd.DataFrame, dict[str, str]]:
    """Seconds, values and weights of a launch that nobody kills."""
    root = tmp_path_factory.mktemp("unbroken") / "root"
    seconds = run(root)
    return seconds, *numbers(root)


def is_whole(root: Path, unbroken: tuple[float, pd.DataFrame, dict[str, str]]) -> None:
    """Check that a root has the numbers of the unbroken launch, one run a cell, and nothing that is still open."""
    history, weights = numbers(root)
    pd.testing.assert_frame_equal(history, unbroken[1], check_exact=True)
    assert weights == unbroken[2]
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        of_cells = database.execute("select value from tags where key = 'milbench.cell'").fetchall()
        states = database.execute("select distinct status from runs").fetchall()
    assert set(Counter(of_cells).values()) == {1}, "no run is doubled"
    assert {state for (state,) in states} <= {"FINISHED", "KILLED"}
    left = [p.name for p in (root / "runs" / "checkpoints").iterdir() if p.suffix != ".lock"]
    assert not left, "no checkpoint, no file of progress"


@pytest.mark.timeout(300)
def test_a_launch_killed_at_each_stage_ends_where_the_unbroken_one_does(
    root: Path, unbroken: tuple[float, pd.DataFrame, dict[str, str]]
) -> None:
    # The root has an empty store; tests/store/test_database.py kills a launch that makes one.
    for stage, delay in (("evaluating", 0.0), ("writing artifacts", 0.0)):
        assert kill_in(root, stage, delay), f"the launch had ended before it was killed while {stage}"
    run(root)
    is_whole(root, unbroken)


def test_a_worker_ends_with_its_launcher_though_nobody_ends_it(root: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    words = ("run", "--loss", "exact", "--task", TINY, "--epochs", "3", "-p", f"task.gate={gate}", "--jobs", "1")
    running = process(*words, "--threads", "1", "--root", str(root))
    wait_for(running, tmp_path, "gate.reached")
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        ((worker,),) = database.execute("select value from tags where key = 'milbench.pid'").fetchall()
    assert psutil.pid_exists(int(worker))
    os.kill(running.pid, signal.SIGKILL)
    gate.touch()
    running.communicate(timeout=60)  # it returns when no process holds the streams of the launch any more
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(worker)).status() == psutil.STATUS_ZOMBIE
    again = process(*words, "--threads", "1", "--root", str(root))
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, (out, err)
    assert set(collect(StoreReader(Workspace(root))).cells.status) == {"done"}


@pytest.mark.kills
@pytest.mark.timeout(600)
@pytest.mark.parametrize("trial", range(25))
def test_a_launch_killed_at_a_random_moment(
    tmp_path: Path, unbroken: tuple[float, pd.DataFrame, dict[str, str]], trial: int
) -> None:
    chance = random.Random(trial)
    root = tmp_path / "root"
    if trial % 2:  # most of a short launch is its start: every stage is met twice or more
        kill_in(root, list(STAGES)[trial // 2 % len(STAGES)], chance.uniform(0, 0.3))
    else:
        running = process(*WORDS, "--root", str(root))
        time.sleep(chance.uniform(0, unbroken[0]))
        kill(running.pid)
        running.communicate(timeout=60)
    run(root)
    is_whole(root, unbroken)
