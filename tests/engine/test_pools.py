"""What joblib does to worker processes, and what of it a user sees."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from milbench.engine.planning import make_plan
from milbench.engine.pools import WorkerProcess, check_workers
from milbench.engine.runner import Launch, sweep
from milbench.engine.spec import make_spec
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY

_kept: list[bytearray] = []


def keep(megabytes: int) -> int:
    """Keep memory that was written to, longer than joblib takes to look at it."""
    _kept.append(bytearray(os.urandom(1)) * (megabytes * 1_000_000))
    time.sleep(1.2)
    return os.getpid()


def test_a_process_that_keeps_the_data_of_a_task_is_replaced_without_a_word() -> None:
    worker = WorkerProcess()
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            pids = {worker._call(None, keep, megabytes) for megabytes in (1, 600, 1)}
        assert len(pids) > 1, "joblib has replaced none: is the filter of its warning still needed?"
        assert not seen
    finally:
        worker.kill()


def test_a_launch_that_sweeps_the_store_leaves_one_alone_that_waits_for_workers(root: Path) -> None:
    workspace = Workspace(root).make()
    plan = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [TINY]}), None)

    class Client:
        def wait_for_workers(self, number: int, timeout: float) -> None:
            sweep(workspace, Launch(plan, {}))  # another launch begins meanwhile

        def run(self, check: Callable[..., str], *arguments: str, on_error: str) -> dict[str, str]:
            return {"worker": check(*arguments)}

    check_workers(Client(), workspace, StoreReader(workspace).uri)
    assert list(workspace.checkpoints.glob("*seen-by*")) == []
