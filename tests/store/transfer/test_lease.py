from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milbench._utils import locks
from milbench.errors import UsageError
from milbench.store.transfer.lease import import_lease
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import Ran
from tests._helpers.other_machine import client, content, runs_of

Milbench = Callable[..., Ran]


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
    elif before == 1:  # the plan is there, and not one half of a cell
        assert milbench("status").out.count("missing") == 2
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


def test_two_imports_do_not_meet(milbench: Milbench, root: Path, away: Path) -> None:
    with locks.try_lock(Workspace(root).lock("import")):
        assert "another import" in milbench("import", str(away / "all.zip")).complaint()
    assert milbench("import", str(away / "all.zip")).code == 0


def test_imports_of_two_machines_into_one_store_do_not_meet(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = f"sqlite:///{root / 'runs' / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", shared)
    here, words = tmp_path / "here", ("import", str(away / "all.zip"), "--root", str(tmp_path / "here"))
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "gpu-box")
        there = StoreWriter(Workspace(tmp_path / "there").make())
    with import_lease(there, "other"):
        said = milbench(*words).complaint()
        assert f"from {there.workspace.path} on gpu-box" in said
        claim = client(root).search_runs(["0"])[0].info.run_id
        assert f"delete its run {claim}" in said
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
        assert f"delete its run {claim}" in milbench("import", str(away / "all.zip")).complaint()  # where the store is
        monkeypatch.setenv("MLFLOW_TRACKING_URI", shared)
    assert [e.name for e in client(root).search_experiments()] == ["Default"]
    # One that was killed here is no hindrance: the root's lock says that it is over.
    own = StoreWriter(Workspace(here).make())
    mine = client(root).create_experiment("mine", artifact_location=own.workspace.artifacts.as_uri())
    killed = client(root).create_run(mine, tags={"milbench.kind": "import", **own.owner})
    assert "imported 2 cells" in milbench(*words).out
    assert client(root).get_run(killed.info.run_id).info.lifecycle_stage == "deleted"
    assert set(runs_of(root)) == {"launch of mine", "exact on tiny, seed 0", "breaking on tiny, seed 0"}
    with import_lease(there, "other"), pytest.raises(UsageError, match="another import"), import_lease(own, "mine"):
        pytest.fail("both hold a lease")
