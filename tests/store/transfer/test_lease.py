from __future__ import annotations

from pathlib import Path

import pytest

from milbench.errors import UsageError
from milbench.store.transfer.lease import import_lease
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import Milbench
from tests._helpers.other_machine import client, runs_of


def test_of_two_machines_that_import_into_one_store_the_second_is_refused(
    milbench: Milbench, root: Path, away: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = f"sqlite:///{root / 'runs' / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", shared)
    here, words = tmp_path / "here", ("import", str(away / "all.zip"), "--root", str(tmp_path / "here"))
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "gpu-box")
        there = StoreWriter(Workspace(tmp_path / "there").make())
    with import_lease(there, "other"):
        message = milbench(*words).complaint()
        assert f"from {there.workspace.path} on gpu-box" in message
        lease = client(root).search_runs(["0"])[0].info.run_id
        assert f"delete its run {lease}" in message
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
        assert (
            f"delete its run {lease}" in milbench("import", str(away / "all.zip")).complaint()
        )  # the workspace of the store
        monkeypatch.setenv("MLFLOW_TRACKING_URI", shared)
    assert [e.name for e in client(root).search_experiments()] == ["Default"]
    # The lease of an import that was killed here does not count: the lock of this workspace is free.
    own = StoreWriter(Workspace(here).make())
    mine = client(root).create_experiment("mine", artifact_location=own.workspace.artifacts.as_uri())
    killed = client(root).create_run(mine, tags={"milbench.kind": "import", **own.owner})
    assert "imported 2 cells" in milbench(*words).out
    assert client(root).get_run(killed.info.run_id).info.lifecycle_stage == "deleted"
    assert set(runs_of(root)) == {"launch of mine", "exact on tiny, seed 0", "breaking on tiny, seed 0"}
    with import_lease(there, "other"), pytest.raises(UsageError, match="another import"), import_lease(own, "mine"):
        pytest.fail("both hold a lease")
