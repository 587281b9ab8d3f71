"""A real MLflow server on this machine, which tests can kill and start again."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen


def free_port() -> int:
    """Return a port that no process listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class MlflowServer:
    """The web application of `mlflow server` in one process; its port stays when it restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers from its database.

        If the database has no tables, the server makes them first.
        """
        call = f"_serve({str(self.folder)!r}, {self.port})"
        code = f"from tests._helpers.mlflow_server import _serve; {call}"
        repository = Path(__file__).parents[2]
        self._process = subprocess.Popen([sys.executable, "-c", code], cwd=repository)
        query = f"{self.uri}/api/2.0/mlflow/experiments/search?max_results=1"
        while self._process.poll() is None:
            try:
                urlopen(query, timeout=120).close()
            except HTTPError:
                # It answers with an error: it will not get better.
                break
            except OSError:
                # The server does not listen yet.
                time.sleep(0.05)
            else:
                return
        raise RuntimeError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _serve(folder_name: str, port: int) -> None:
    """Serve MLflow from a folder, in the process that `start` begins."""
    import uvicorn
    from mlflow.server import constants

    if sys.platform == "linux":
        # Let this process end when its parent ends, so that killed tests leave no server behind.
        set_signal_at_death_of_parent = 1
        ctypes.CDLL(None).prctl(set_signal_at_death_of_parent, signal.SIGQUIT)
    folder = Path(folder_name)
    # Standard output and error go into the log: those of the processes that the server starts, too.
    with (folder / "server.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: f"sqlite:///{folder / 'mlflow.db'}",
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: (folder / "artifacts").as_uri(),
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
    }
    uvicorn.run("mlflow.server.fastapi_app:app", port=port)
