"""The check of a cluster's workers, which needs no dask here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from milbench.engine.cluster import check_workers
from milbench.engine.planning import make_plan
from milbench.engine.runner import Launch, sweep
from milbench.engine.spec import make_spec
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY


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
