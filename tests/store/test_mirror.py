"""The mirror in MLflow: it shows the cells of a store.

MLflow may keep its data in SQLite or be a server, which may be away, die half way or refuse.
"""

import http.server
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from milbench.store.cell_folder import CellFolder
from milbench.store.folders import Root
from milbench.store.mirror import address
from tests._helpers.command_line import HOSTILE, TINY, Milbench, process
from tests._helpers.mlflow_server import MlflowServer, free_port

pytestmark = [pytest.mark.mirrored, pytest.mark.timeout(240)]
WORDS = ["run", "--loss", f"exact,{HOSTILE}", "--task", TINY, "--seeds", "0-1"]


def runs(root: Path, name: str = "tiny") -> list[Any]:
    """Return the runs of a comparison in MLflow, none if MLflow does not know the comparison."""
    import mlflow

    client = mlflow.MlflowClient(address(Root(root)))
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return []
    return list(client.search_runs([experiment.experiment_id]))


def check_mirrored(root: Path, statuses: dict[str, str]) -> None:
    """Check that MLflow has one run for each cell, with everything in the folder of the cell.

    `statuses` has for each loss the status that its runs should have.
    """
    import mlflow

    store = Root(root)
    plan = store.plan()
    client = mlflow.MlflowClient(address(store))
    mirrored = runs(root, plan.name)
    assert len(mirrored) == len(plan.cells), "one run a cell"
    by_cell = {run.data.tags["milbench.cell"]: run for run in mirrored}
    for cell in plan.cells:
        run = by_cell[cell.id]
        folder = store.cell(cell.id)
        assert run.info.status == statuses[cell.loss.name], run.data.tags
        assert run.info.run_name == plan.label(cell)
        assert run.data.params["recipe.lr"] == str(cell.recipe.lr)
        assert run.data.tags["milbench.machine"]
        (data,) = run.inputs.dataset_inputs
        assert data.dataset.name == "tiny"
        assert_same_values(client, run, folder)
        assert files_of(client, store, run) == {path.name for path in folder.artifacts()}
        if statuses[cell.loss.name] == "FINISHED":
            assert run.data.metrics["cost/step_seconds"] > 0


def assert_same_values(client: Any, run: Any, folder: CellFolder) -> None:
    """Assert that a run has every value of every epoch of a cell, once."""
    by_metric: dict[str, list[tuple[int, float]]] = {}
    for epoch, name, value in folder.history():
        by_metric.setdefault(name, []).append((epoch, value))
    for name, expected in by_metric.items():
        logged = client.get_metric_history(run.info.run_id, name)
        assert sorted((metric.step, metric.value) for metric in logged) == expected


def files_of(client: Any, store: Root, run: Any) -> set[str]:
    """Return the names of the artifacts of a run, on a server or in the root."""
    if address(store).startswith("sqlite:"):
        folder = store.artifacts / run.info.run_id / "artifacts"
        return {path.name for path in folder.iterdir()}
    return {file.path for file in client.list_artifacts(run.info.run_id)}


def clear_connections() -> None:
    """Let MLflow open databases anew: it keeps open connections to them, in private objects."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking._tracking_service import utils

    utils._tracking_store_registry._get_store_with_resolved_uri.cache_clear()
    # Older versions of MLflow have no such map.
    getattr(SqlAlchemyStore, "_engine_map", {}).clear()


STATUSES = {"exact": "FINISHED", "hostile": "FAILED"}
"""The status in MLflow of the cells of each loss."""


@pytest.fixture
def mirrored(milbench: Milbench, root: Path) -> Path:
    """A root with two finished and two failed cells, all of them in MLflow."""
    assert milbench(*WORDS).code == 1
    return root


def test_every_cell_is_in_mlflow(mirrored: Path) -> None:
    check_mirrored(mirrored, STATUSES)


def test_a_folder_that_lost_its_record_gets_no_second_run(
    milbench: Milbench, mirrored: Path
) -> None:
    # The record names the run of a cell. It is missing after a launch was killed before it wrote
    # the record, or after a folder was copied without it.
    record = next(Root(mirrored).cells.glob("*/mlflow.json"))
    record.unlink()
    milbench("sync").done()
    check_mirrored(mirrored, STATUSES)


def test_a_deleted_database_comes_back_with_all_cells(mirrored: Path) -> None:
    (mirrored / "runs/mlflow.db").unlink()
    shutil.rmtree(mirrored / "runs/artifacts")
    # Another process does this, since this one still holds the deleted database open.
    again = process("sync", "--root", str(mirrored))
    out, err = again.communicate(timeout=100)
    assert again.returncode == 0, (out, err)
    assert "MLflow is up to date: tiny (" in out
    clear_connections()
    check_mirrored(mirrored, STATUSES)


def test_a_server_that_died_gets_the_rest_later(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch, mlflow_server: MlflowServer
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server.uri)
    monkeypatch.setattr("milbench.store.mirror.PATIENCE", 3.0)

    def die(*_: object) -> None:
        mlflow_server.kill()
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr("milbench.store.mlflow_runs.Runs._log_end", die)
        ran = milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0-1", "--name", "half")
    assert ran.code == 0, ran
    assert "of 2 cells not in MLflow yet" in ran.out
    assert "milbench sync catches up" in ran.out
    assert "Traceback" not in ran.out + ran.err
    mlflow_server.start()
    milbench("sync").done()
    statuses = [run.info.status for run in runs(root, "half")]
    assert statuses == ["FINISHED", "FINISHED"]
    check_mirrored(root, {"exact": "FINISHED"})


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers every request in the same way."""

    answer: int | str = 403
    """A status code; or "html", a page in place of data; or "silence", a late answer."""

    def do_GET(self) -> None:
        if self.answer == "silence":
            time.sleep(60)
        code = self.answer if isinstance(self.answer, int) else 200
        body = b"<html>no</html>"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 http.server looks for this name

    def log_message(self, *_: object) -> None: ...


class QuietServer(http.server.ThreadingHTTPServer):
    """A server that prints nothing if a client hangs up, as clients do in these tests."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None: ...


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a server that refuses every request; the address has a password."""
    server = QuietServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://user:secret@127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("answer", [401, "html", "silence", "away"])
def test_a_server_that_refuses_costs_one_line_and_no_cell(
    milbench: Milbench,
    root: Path,
    refusing: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: int | str,
) -> None:
    monkeypatch.setattr(Refusing, "answer", answer)
    monkeypatch.setattr("milbench.store.mirror.PATIENCE", 3.0)
    uri = "http://user:secret@127.0.0.1:9" if answer == "away" else refusing
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    ran = milbench("run", "--loss", "exact", "--task", TINY)
    assert ran.code == 0, ran
    (line,) = [line for line in ran.out.splitlines() if "not in MLflow yet" in line]
    assert "1 of 1 cell not in MLflow yet" in line
    assert "secret" not in ran.out + ran.err
    assert "Traceback" not in ran.out + ran.err


def test_an_interrupted_cell_counts_as_killed_until_it_goes_on(
    milbench: Milbench, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("milbench.training.train.evaluate", interrupt)
        assert milbench("run", "--loss", "exact", "--task", TINY).code == 130
    assert [run.info.status for run in runs(root)] == ["KILLED"]
    assert milbench("run", "--loss", "exact", "--task", TINY).code == 0
    check_mirrored(root, {"exact": "FINISHED"})


def test_models_are_logged_where_they_are_asked_for(milbench: Milbench, root: Path) -> None:
    import mlflow

    assert milbench("run", "--loss", "exact", "--task", TINY, "--log-models").code == 0
    (run,) = runs(root)
    folder = root / "runs/artifacts" / run.info.run_id / "artifacts/model"
    model = mlflow.pyfunc.load_model(str(folder))
    predictions = model.predict(model.input_example)
    assert list(predictions.columns)[:2] == ["labels", "probability"]


def test_paths_of_any_characters_hold_a_database(milbench: Milbench, tmp_path: Path) -> None:
    name = "ä b#c?d%20e"
    # In SQLAlchemy 2.0, the oldest supported version, a question mark ends the path.
    if version("sqlalchemy").startswith("2.0."):
        name = name.replace("?d", "")
    root = tmp_path / name
    ran = milbench("run", "--loss", "exact", "--task", TINY, "--root", str(root))
    assert ran.code == 0, ran
    assert "not in MLflow" not in ran.out
    assert (root / "runs/mlflow.db").exists()


@pytest.fixture
def pages(milbench: Milbench, root: Path) -> Iterator[str]:
    """The address of MLflow's own pages, after starting the command that `milbench sync` names."""
    milbench("run", "--loss", "exact", "--task", TINY).done()
    last = milbench("sync").done().splitlines()[-1]
    command = shlex.split(last.removeprefix("next: "))
    assert command[:2] == ["mlflow", "ui"]
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", *command, "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield f"http://127.0.0.1:{port}/api/2.0/mlflow"
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def test_the_pages_of_mlflow_show_a_run_and_its_files(pages: str, root: Path) -> None:
    wait_until_it_answers(f"{pages}/experiments/search?max_results=1")
    (run,) = runs(root)
    list_of_files = f"{pages}/artifacts/list?run_id={run.info.run_id}"
    with urlopen(list_of_files, timeout=60) as answer:
        files = json.loads(answer.read())["files"]
    assert "weights.safetensors" in {file["path"] for file in files}


def wait_until_it_answers(page: str) -> None:
    """Wait until a server answers at an address."""
    while True:
        try:
            urlopen(page, timeout=60).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
