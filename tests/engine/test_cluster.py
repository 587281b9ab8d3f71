"""Cells on dask clusters, whose scheduler and workers are processes of their own, as in real life."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from milbench.engine.cluster import connected
from milbench.errors import UsageError
from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import PLUGINS, TINY, Milbench, process
from tests._helpers.forked import Forked

pytest.importorskip("distributed")
BREAKING = str(PLUGINS / "breaking_loss.py")


def start(module: str, *words: str, hidden: Path | None = None) -> Forked:
    """Start a scheduler or a worker; a hidden folder looks empty to it."""
    return Forked(_dask, module, [*words, "--no-dashboard"], hidden)


def _dask(module: str, words: list[str], hidden: Path | None) -> None:
    if hidden is not None:
        new_mount_namespace = 0x00020000
        assert ctypes.CDLL(None).unshare(new_mount_namespace) == 0
        for mount in (["--make-rprivate", "/"], ["-t", "tmpfs", "none", str(hidden)]):
            subprocess.run(["mount", *mount], check=True)
    import_module(f"distributed.cli.{module}").main(words)


def start_worker(folder: Path, hidden: Path | None = None) -> Forked:
    place = ["--scheduler-file", str(folder / "scheduler.json"), "--local-directory", str(folder)]
    return start("dask_worker", "--nthreads", "1", "--no-nanny", *place, hidden=hidden)


@contextmanager
def scheduler(folder: Path) -> Iterator[str]:
    """Start a scheduler for the block and yield its address."""
    file = folder / "scheduler.json"
    with start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)) as running:
        try:
            while not file.exists():
                assert running.poll() is None
                time.sleep(0.05)
            yield json.loads(file.read_text())["address"]
        finally:
            running.kill()


@pytest.mark.timeout(240)
def test_cells_run_on_the_workers_and_those_of_a_killed_worker_elsewhere(root: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with scheduler(tmp_path) as address, start_worker(tmp_path) as one, start_worker(tmp_path) as other:
        try:
            running = process(
                "run", "--loss", f"exact,noisy-or,{BREAKING}", "--task", TINY, "--seeds", "0-1", "--epochs", "3",
                "-p", f"task.gate={gate}", "--threads", "1", "--root", str(root), "--cluster", address,
            )  # fmt: skip
            while not Path(f"{gate}.reached").exists():
                assert running.poll() is None, running.communicate()
                time.sleep(0.05)
            victim = next(iter(pids(root).values()))
            assert victim in (one.pid, other.pid), "the cell runs in a worker of the cluster, in no other process"
            os.kill(victim, signal.SIGKILL)
            gate.touch()
            out, err = running.communicate(timeout=150)
        finally:
            one.kill()
            other.kill()
    assert running.returncode == 1, (out, err)
    survivor = {one.pid, other.pid} - {victim}
    assert set(pids(root).values()) == survivor, "the killed worker's cell was computed again, in the same run"
    cells = collect(StoreReader(Workspace(root))).cells
    assert cells.groupby("loss").status.agg(list).to_dict() == {
        "exact": ["done"] * 2, "noisy-or": ["done"] * 2, "breaking": ["failed"] * 2}  # fmt: skip
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        assert database.execute("select count(*) from tags where key = 'milbench.cell'").fetchone() == (6,)


def pids(root: Path) -> dict[str, int]:
    """Return which process computes each run of a cell, from the database itself."""
    with sqlite3.connect(root / "runs" / "mlflow.db") as database:
        rows = database.execute("select run_uuid, value from tags where key = 'milbench.pid'").fetchall()
    return {run: int(pid) for run, pid in rows}


@pytest.mark.kills
def test_a_scheduler_that_ends_is_one_line_and_the_cells_go_on_here(
    milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    words = ("run", "--loss", "exact", "--task", TINY, "--epochs", "12", "-p", "task.batches=60", "--threads", "1")
    with scheduler(tmp_path) as address, start_worker(tmp_path) as worker:
        try:
            running = process(*words, "--root", str(root), "--cluster", address)
            while not pids(root):
                assert running.poll() is None, running.communicate()
                time.sleep(0.05)
        finally:
            worker.kill()
    out, err = running.communicate(timeout=100)
    assert running.returncode == 1, (out, err)
    assert "the cluster was lost: 0 of 1 cells done; the same command continues" in out, err
    assert "Traceback" not in out + err, err
    assert milbench(*words).code == 0


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0 or not shutil.which("mount"), reason="needs root, mount")
def test_a_worker_that_does_not_see_the_store_says_so_before_anything_is_computed(root: Path, tmp_path: Path) -> None:
    with scheduler(tmp_path) as address, start_worker(tmp_path, hidden=root) as worker:
        try:
            with connected(address) as client:
                client.wait_for_workers(1, timeout=60)
            running = process("run", "--loss", "exact", "--task", TINY, "--root", str(root), "--cluster", address)
            out, err = running.communicate(timeout=120)
        finally:
            worker.kill()
    assert running.returncode == 2, (out, err)
    assert f"it does not see the folder {root} of the launcher" in err
    assert pids(root) == {}


@pytest.mark.timeout(240)
def test_a_cluster_of_this_machine(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")  # it need not import again
    words = ("run", "--loss", "exact", "--task", TINY, "--seeds", "0-1", "--threads", "1", "--root", str(root))
    running = process(*words, "--cluster", "local:1")
    out, err = running.communicate(timeout=200)
    assert running.returncode == 0, (out, err)
    assert "2 of 2 cells done" in out
    assert "Traceback" not in err
    assert running.pid not in pids(root).values()


@pytest.mark.parametrize("number", ["local:", "local:0", "local:two", "local:99999"])
def test_a_cluster_of_no_such_size_is_refused(milbench: Milbench, number: str) -> None:
    assert "expected local:N" in milbench("run", "--loss", "exact", "--task", TINY, "--cluster", number).complaint()


def test_no_scheduler_at_the_address(milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milbench.engine.cluster.ANSWER", 1.0)
    said = milbench("run", "--loss", "exact", "--task", TINY, "--cluster", "tcp://127.0.0.1:9").complaint()
    assert "no dask scheduler answers at tcp://127.0.0.1:9" in said
    with pytest.raises(UsageError, match="nothing was run yet"):
        StoreReader(Workspace(root)).launches()
