from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests._helpers.command_line import Milbench
from tests._helpers.mlflow_server import free_port
from tests._helpers.other_machine import client


@pytest.fixture
def port() -> int:
    """A port that is free."""
    return free_port()


@pytest.fixture
def ui(root: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """`milbench ui`, started as a separate process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "milbench", "ui", "--port", str(port), "--root", str(root)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield server
    if _session(server.pid):
        os.killpg(server.pid, signal.SIGKILL)
    server.communicate()


def test_the_ui_serves_runs_and_artifacts_and_leaves_no_process_behind(
    root: Path, port: int, ui: subprocess.Popen[str]
) -> None:
    here, anywhere = _run(root, (root / "runs" / "artifacts").as_uri()), _run(root, "mlflow-artifacts:/")
    for run in (here, anywhere):
        folder = root / "runs" / "artifacts" / run / "artifacts"
        folder.mkdir(parents=True)
        (folder / "note.txt").write_text(run)
    assert _get(f"http://127.0.0.1:{port}/health", ui) == "OK"
    for run in (here, anywhere):
        assert _get(f"http://127.0.0.1:{port}/get-artifact?run_uuid={run}&path=note.txt", ui) == run
    assert [p for p in _session(ui.pid) if p.pid != ui.pid] == []  # so that no signal can leave one
    ui.send_signal(signal.SIGTERM)
    out, err = ui.communicate(timeout=60)
    assert f"http://127.0.0.1:{port}" in out
    assert err == "milbench: interrupted\n"
    assert _session(ui.pid) == []


def test_a_port_that_is_taken_is_one_line(milbench: Milbench, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        assert f"--port {port}" in milbench("ui", "--port", str(port)).complaint()


def _run(root: Path, artifacts: str) -> str:
    """Create a run in an experiment of its own whose artifacts are at this location."""
    store = client(root)
    experiment = store.create_experiment(artifacts, artifact_location=artifacts)
    return str(store.create_run(experiment).info.run_id)


def _get(address: str, server: subprocess.Popen[str]) -> str:
    """Return what a server answers, as soon as it does."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return str(answer.read().decode())
        except ConnectionError:
            time.sleep(0.1)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
            time.sleep(0.1)
    pytest.fail(f"the server has ended: {server.communicate()}")


def _session(leader: int) -> list[psutil.Process]:
    """Return the processes of a session."""
    return [p for p in psutil.process_iter() if _session_of(p.pid) == leader and p.status() != psutil.STATUS_ZOMBIE]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1
