"""A real MLflow server on this machine, on SQLite or PostgreSQL, which tests can kill and start again."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class MlflowServer:
    """The web application that `mlflow server` starts, in one process, on a port that it keeps."""

    def __init__(self, database: str, folder: Path) -> None:
        self.database, self.folder = database, folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers from its database, whose tables it makes if there are none."""
        call = f"_serve({self.database!r}, {str(self.folder)!r}, {self.port})"
        code = f"from tests._helpers.mlflow_server import _serve; {call}"
        self._process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
        while self._process.poll() is None:
            try:
                with urlopen(f"{self.uri}/api/2.0/mlflow/experiments/search?max_results=1", timeout=120):
                    return
            except HTTPError:
                break
            except OSError:
                time.sleep(0.05)
        raise RuntimeError((self.folder / "server.log").read_text())

    def ensure_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _serve(database: str, place: str, port: int) -> None:
    import uvicorn
    from mlflow.server import constants

    _end_with_parent()
    folder = Path(place)
    with (folder / "server.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    options = {
        constants.BACKEND_STORE_URI_ENV_VAR: database,
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: (folder / "artifacts").as_uri(),
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
    }
    os.environ.update(options)
    uvicorn.run("mlflow.server.fastapi_app:app", port=port)


@contextmanager
def mlflow_server(database: str, folder: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(database, folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def initdb() -> str | None:
    """Return the program of PostgreSQL that makes databases, also where it is not in PATH; None: not installed."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: float(path.parts[4]), default=None)
    return shutil.which("initdb") or (str(newest) if newest else None)


@contextmanager
def postgres() -> Iterator[str]:
    """Run an empty PostgreSQL database while the block lasts; yield its address.

    PostgreSQL refuses to be run by root: "nobody" runs it then, in a folder that this user can reach.
    """
    make = initdb()
    assert make is not None
    user: dict[str, Any] = {}
    folder, port = Path(tempfile.mkdtemp(prefix="milbench-postgres-")), free_port()
    if os.geteuid() == 0:
        user = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
        shutil.chown(folder, user["user"], user["group"])
    data, log = str(folder / "data"), folder / "postgres.log"
    try:
        words = [make, "--pgdata", data, "--username", "tests", "--auth", "trust", "--no-sync", "--encoding", "UTF8"]
        subprocess.run(words, cwd=folder, check=True, capture_output=True, **user)
        program = str(Path(make).resolve().with_name("postgres"))
        words = [program, "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", str(folder), "-c", "fsync=off"]
        with log.open("wb") as output:
            server = subprocess.Popen(
                words, cwd=folder, stdout=output, stderr=output, preexec_fn=_end_with_parent, **user
            )
        try:
            _wait_for_postgres(server, port, log)
            yield f"postgresql+psycopg2://tests@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # it ends at once, with its children
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_postgres(server: subprocess.Popen[Any], port: int, log: Path) -> None:
    import psycopg2

    while True:
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user="tests", dbname="postgres").close()
        except psycopg2.OperationalError:
            if server.poll() is not None:
                raise RuntimeError(log.read_text()) from None
            time.sleep(0.05)
        else:
            return


def _end_with_parent() -> None:
    """Let Linux end this process when its parent ends, so that tests that are killed leave no server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG
