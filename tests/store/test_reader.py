from __future__ import annotations

from pathlib import Path

from milbench._utils import locks
from milbench.store.reader import StoreReader
from milbench.store.records import CellRun
from milbench.store.workspace import Workspace
from tests._helpers.other_machine import client

DEVICE = {"milbench.device": "cpu"}
FAR = {"milbench.host": "gpu-box", "milbench.root": "/far"}


def add(root: Path, cell: str, status: str, start: int, **tags: str) -> str:
    """Write the run of a cell with MLflow alone; return its id."""
    store = client(root)
    run = store.create_run("0", start, {"milbench.kind": "cell", "milbench.cell": cell} | tags).info.run_id
    store.update_run(run, status=status)
    return str(run)


def test_the_status_of_a_cell_is_that_of_its_run_and_of_its_lock(root: Path) -> None:
    workspace = Workspace(root)
    add(root, "finished", "FINISHED", 1, **DEVICE)
    failed = add(root, "broken", "FAILED", 1, **DEVICE, **{"milbench.reason": "it broke"})
    add(root, "stopped", "KILLED", 1, **DEVICE)
    add(root, "never started", "KILLED", 1)
    add(root, "dead", "RUNNING", 1, **DEVICE, **FAR)  # a copied workspace: its lock would be here
    add(root, "alive", "RUNNING", 1, **DEVICE)
    add(root, "waiting", "SCHEDULED", 1, **{"mlflow.parentRunId": "launch"})
    add(root, "left", "SCHEDULED", 1, **{"mlflow.parentRunId": "dead launch"})
    with locks.try_lock(workspace.lock("alive")), locks.try_lock(workspace.lock("launch")):
        found = StoreReader(workspace).cell_runs()
    assert {cell: run.status for cell, run in found.items()} == {
        "finished": "done", "broken": "failed", "stopped": "interrupted", "dead": "interrupted", "alive": "running",
        "waiting": "running",
    }  # fmt: skip
    assert found["broken"] == CellRun(failed, "failed", "it broke")
    assert StoreReader(workspace).cell_runs()["alive"].status == "interrupted"


def test_runs_of_other_machines_count_as_alive_in_a_shared_store(root: Path, tmp_path: Path) -> None:
    add(root, "far", "RUNNING", 1, **DEVICE, **FAR)
    store = StoreReader(Workspace(tmp_path / "here").make(), f"sqlite:///{root / 'runs' / 'mlflow.db'}")
    add(root, "near", "RUNNING", 1, **DEVICE, **store.owner)
    assert {cell: run.status for cell, run in store.cell_runs().items()} == {"far": "running", "near": "interrupted"}


def test_a_finished_run_counts_before_newer_ones_and_else_the_newest(root: Path) -> None:
    add(root, "a", "FINISHED", 1, **DEVICE)
    done = add(root, "a", "FINISHED", 2, **DEVICE)
    add(root, "a", "FAILED", 3, **DEVICE)
    add(root, "b", "FAILED", 1, **DEVICE)
    stopped = add(root, "b", "KILLED", 2, **DEVICE)
    runs = StoreReader(Workspace(root)).cell_runs()
    assert (runs["a"].run_id, runs["b"].run_id) == (done, stopped)


def test_a_record_has_everything_of_a_run(root: Path) -> None:
    run = add(root, "a", "RUNNING", 5, **{"mlflow.runName": "exact, seed 0"})
    client(root).log_param(run, "seed", 0)
    client(root).log_metric(run, "train/loss", 0.5, 7, 1)
    client(root).log_metric(run, "train/loss", 0.25, 6, 2)  # another machine's clock
    folder = Workspace(root).artifacts_of(run)
    folder.mkdir(parents=True)
    (folder / "data_digest.txt").write_text("four")
    store = StoreReader(Workspace(root))
    record = store.run(run)
    assert (record.name, record.status, record.start, record.end) == ("exact, seed 0", "RUNNING", 5, None)
    assert record.is_open
    assert (record.params, record.metrics) == ({"seed": "0"}, {"train/loss": 0.25})
    # In the order of writing, whatever the clocks said.
    assert [tuple(value) for value in store.histories([run])[run]["train/loss"]] == [(0.5, 7, 1), (0.25, 6, 2)]
    assert store.artifact_sizes(run) == {"data_digest.txt": 4}
    client(root).set_terminated(run, "KILLED", 9)
    assert (store.run(run).end, store.run(run).is_open) == (9, False)
    assert store.artifact(run, "plan.json") is None
