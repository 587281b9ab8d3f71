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
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class MlflowServer:
    """The web application that `mlflow server` starts, in one process, on a port that it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers from its database, whose tables it makes if there are none."""
        code = f"from tests._helpers.mlflow_server import _serve; _serve({str(self.folder)!r}, {self.port})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=Path(__file__).parents[2]
        )
        while self._process.poll() is None:
            try:
                with urlopen(
                    f"{self.uri}/api/2.0/mlflow/experiments/search?max_results=1", timeout=120
                ):
                    return
            except HTTPError:
                break
            except OSError:
                time.sleep(0.05)
        raise RuntimeError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _serve(place: str, port: int) -> None:
    import uvicorn
    from mlflow.server import constants

    if (
        sys.platform == "linux"
    ):  # let this process end with its parent, so that killed tests leave no server behind
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG
    folder = Path(place)
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
