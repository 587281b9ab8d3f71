"""The store on real servers of MLflow."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from milbench.api.outcomes import load_outcomes
from milbench.errors import StoreAwayError
from milbench.store.collect import collect
from milbench.store.reader import StoreReader, _folder_of_copies
from milbench.store.records import MetricValue
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter
from tests._helpers.command_line import TINY, Milbench
from tests._helpers.mlflow_server import MlflowServer
from tests._helpers.sabotage import in_the_second_epoch

GATED = ("--loss", "exact", "--task", TINY, "--seeds", "0,1", "--epochs", "3", "-p")

READ = """
import sys
from pathlib import Path
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace

root, uri, *runs = sys.argv[1:]
store = StoreReader(Workspace(Path(root)), uri)
print([str(store.artifact(run, "text.txt")) + ": " + store.artifact(run, "text.txt").read_text() for run in runs])
"""
"""Reads an artifact of runs twice, with the root, the server's address and the runs as arguments."""


@pytest.fixture(params=["sqlite_server", "postgres_server"])
def server(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowServer:
    """Each of the servers, which the root's store is on."""
    found: MlflowServer = request.getfixturevalue(request.param)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", found.uri)
    return found


def test_a_comparison_on_a_server_is_computed_once_and_reported(
    server: MlflowServer, milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "--loss", "exact,noisy-or", "--task", TINY, "-p", "task.size=4", "--name", "served")
    assert milbench(*words).code == 0
    assert "nothing to run" in milbench(*words).out
    cells = _cells(server, "served")
    assert {(run.info.run_name, run.info.status) for run in cells} == {
        ("exact on tiny, seed 0", "FINISHED"),
        ("noisy-or on tiny, seed 0", "FINISHED"),
    }
    milbench("export", "served", "--out", str(root / "served.zip"))
    assert sum(name.endswith("/model.safetensors") for name in ZipFile(root / "served.zip").namelist()) == 2
    assert not list(_folder_of_copies().rglob("model.safetensors")), "networks of many cells would fill the disk"
    milbench("report", "served")
    page = (root / "reports" / "served" / "index.html").read_text()
    for run in cells:
        assert f"{100 * run.data.metrics['test/instance_error']:.1f}" in page
    monkeypatch.setattr("milbench.store.mlflow_client.PAGE", 1)  # there are more comparisons, launches and cells
    results = collect(StoreReader(Workspace(root)), "served")
    assert set(results.cells.status) == {"done"}
    found = {results.cells.run_id[cell]: load_outcomes(path) for cell, path in results.outcomes.items()}
    for run in cells:
        value = found[run.info.run_id]["instance_error"].value
        assert value == pytest.approx(run.data.metrics["test/instance_error"])


def test_copies_of_a_servers_artifacts_are_gone_when_the_process_ends(
    sqlite_server: MlflowServer, milbench: Milbench, root: Path, tmp_path: Path
) -> None:
    client = MlflowClient(sqlite_server.uri)
    experiment = client.create_experiment("copied")
    runs = [client.create_run(experiment).info.run_id for _ in range(2)]
    for run in runs:
        client.log_text(run, f"of {run}", "text.txt")
    (tmp_path / "temporary").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(root), sqlite_server.uri, *runs],
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        check=True,
    )
    for run in runs:
        assert f"{tmp_path / 'temporary'}" in ran.stdout
        assert f"text.txt: of {run}" in ran.stdout
    assert list((tmp_path / "temporary").iterdir()) == []


def test_none_of_12_cells_of_4_workers_is_lost_or_doubled(server: MlflowServer, milbench: Milbench) -> None:
    words = ("--task", TINY, "-p", "task.batches=1", "--epochs", "1", "--name", "many")
    ran = milbench("run", "--loss", "exact", "--seeds", "0-11", "--jobs", "4", *words)
    assert ran.code == 0, ran
    cells = _cells(server, "many")
    assert sorted(int(run.data.params["seed"]) for run in cells) == list(range(12))
    assert {run.info.status for run in cells} == {"FINISHED"}
    assert len({run.data.tags["milbench.cell"] for run in cells}) == 12
    client = MlflowClient(server.uri)
    for run in cells[::5]:
        assert [m.step for m in client.get_metric_history(run.info.run_id, "test/instance_error")] == [1]
        assert len(client.list_artifacts(run.info.run_id)) == 6
        assert [i.dataset.name for i in run.inputs.dataset_inputs] == ["tiny"]


def test_a_launch_survives_that_its_server_is_killed_and_started_again(
    sqlite_server: MlflowServer, milbench: Milbench, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_server.uri)

    def restart() -> None:
        sqlite_server.kill()
        (tmp_path / "gate").touch()
        while not any((root / "runs" / "spool").glob("*.jsonl")):
            time.sleep(0.02)
        sqlite_server.start()

    with in_the_second_epoch(tmp_path / "gate", restart):
        assert milbench("run", *GATED, f"task.gate={tmp_path / 'gate'}", "--name", "restarted").code == 0
    assert _epochs(sqlite_server, "restarted") == {0: [1, 2, 3], 1: [1, 2, 3]}
    assert list((root / "runs" / "spool").glob("*.jsonl")) == []


def test_what_a_launch_computed_after_its_server_went_away_is_delivered_by_the_next(
    sqlite_server: MlflowServer, milbench: Milbench, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_server.uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MILBENCH_PATIENCE", "0")
    words = ("run", *GATED, f"task.gate={tmp_path / 'gate'}", "--name", "away")
    with in_the_second_epoch(tmp_path / "gate", sqlite_server.kill):
        ended = milbench(*words)
    (line,) = ended.err.splitlines()
    assert ended.code == 1
    assert f"{sqlite_server.uri} does not answer" in line
    assert str(root / "runs" / "spool") in line
    sqlite_server.start()
    assert "1 of 2 cells done, 1 missing" in milbench("status").out
    assert _epochs(sqlite_server, "away") == {0: [1, 2, 3]}
    assert milbench(*words).code == 0
    assert _epochs(sqlite_server, "away") == {0: [1, 2, 3], 1: [1, 2, 3]}


def test_an_import_whose_server_goes_away_is_refused_and_can_be_repeated(
    sqlite_server: MlflowServer, milbench: Milbench, root: Path, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_server.uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    log_file = StoreWriter.log_file

    def killing(store: StoreWriter, run_id: str, path: Path) -> None:
        sqlite_server.kill()
        log_file(store, run_id, path)

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "log_file", killing)
        assert "does not answer" in milbench("import", str(away / "all.zip")).complaint()
    assert not (root / "runs" / "spool").exists()
    sqlite_server.start()
    assert "imported 2 cells of mine" in milbench("import", str(away / "all.zip")).out


def test_what_is_written_while_the_server_is_gone_arrives_once(
    server: MlflowServer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milbench.store.spool.AGAIN", 0.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = StoreWriter(Workspace(root).make())
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(range(256)))
    whole, broken = (store.create("writes", {"kept": "1"}) for _ in range(2))
    for run, when in ((whole, None), (broken, 4)):
        for number, write in enumerate(_writes(store, run, weights)):
            if number == when:
                server.kill()
            write()
    with pytest.raises(StoreAwayError, match=f"{server.uri} does not answer: Connection refused"):
        store.deliver()
    assert store.waiting() == [broken]
    copy = tmp_path / "copy"
    shutil.copytree(root / "runs" / "spool", copy)
    server.start()
    for _ in range(2):  # as if the first delivery was killed before it could remove the file
        shutil.copytree(copy, root / "runs" / "spool", dirs_exist_ok=True)
        assert store.deliver() == []
    assert store.waiting() == []
    assert _content(server, broken) == _content(server, whole)


def test_a_server_that_is_gone_is_one_line(server: MlflowServer, milbench: Milbench) -> None:
    server.kill()
    assert f"{server.uri} does not answer: Connection refused" in milbench("status").complaint()


def _cells(server: MlflowServer, comparison: str) -> list[Run]:
    """Return the runs of the cells of a comparison."""
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name(comparison)
    return list(client.search_runs([experiment.experiment_id], "tags.`milbench.kind` = 'cell'"))


def _epochs(server: MlflowServer, comparison: str) -> dict[int, list[int]]:
    """Return the epochs of every value of a metric, in every run of a cell that is finished, by seed."""
    client = MlflowClient(server.uri)
    return {
        int(run.data.params["seed"]): [
            m.step for m in client.get_metric_history(run.info.run_id, "test/instance_error")
        ]
        for run in _cells(server, comparison)
        if run.info.status == "FINISHED"
    }


def _writes(store: StoreWriter, run: str, weights: Path) -> list[Callable[[], None]]:
    """Return all kinds of writes to a run, in the order in which a cell makes them."""
    values = [("test/error", MetricValue(value, 5 + epoch, epoch)) for epoch, value in enumerate((0.5, 0.25, math.nan))]
    return [
        lambda: store.log_values(run, {"loss": "exact"}),
        lambda: store.log_values(run, {}, values[:1]),
        lambda: store.tag(run, {"note": "ü, 'x'"}),
        lambda: store.log_text(run, "before", "note.txt"),
        lambda: store.log_values(run, {"loss": "exact", "seed": "0"}, values[:2]),  # some of it again
        lambda: store.tag(run, {"note": "after"}),
        lambda: store.log_values(run, {}, values[1:]),
        lambda: store.log_text(run, "after", "note.txt"),
        lambda: store.log_file(run, weights),
        lambda: store.end(run, "FAILED", "no reason", 1_700_000_000_000),
    ]


def _content(server: MlflowServer, run_id: str) -> dict[str, object]:
    """Return what MLflow's own client reads of a run."""
    client = MlflowClient(server.uri)
    run = client.get_run(run_id)
    names = sorted(file.path for file in client.list_artifacts(run_id))
    return {
        "info": (run.info.status, run.info.end_time),
        "params": run.data.params,
        "tags": {k: v for k, v in run.data.tags.items() if k != "mlflow.runName"},
        "history": {
            name: sorted((m.step, m.timestamp, repr(m.value)) for m in client.get_metric_history(run_id, name))
            for name in run.data.metrics
        },
        "artifacts": {name: Path(client.download_artifacts(run_id, name)).read_bytes() for name in names},
    }
