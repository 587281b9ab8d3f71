"""The mirror: copies the folders of cells to MLflow. No launch depends on it.

Only the launching process writes. A folder remembers its run and how much of it is copied, and values have the times
of the training, so that mirroring again changes nothing. The calls to MLflow are in `milbench.engine.mlflow_runs`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from milbench._utils import locks
from milbench._utils.words import counted
from milbench.api.plan import Cell, Plan
from milbench.engine.cell import CellFolder, Status
from milbench.engine.folders import Root

for key, value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # MLflow's defaults wait minutes for a server that is gone.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}.items():
    os.environ.setdefault(key, value)

INTERVAL = 3.0  # seconds between two readings of the folders during a launch
PATIENCE = 10.0
"""Seconds without any progress after which a server counts as away at the end of a command; ten times that where a
database is written, whose tables may have to be made first."""


class Mirror:
    """Mirrors the cells of a comparison, in a thread of its own, with trained networks as models where `log_models`."""

    def __init__(self, root: Root, plan: Plan, *, log_models: bool = False) -> None:
        self.root, self.plan, self.log_models = root, plan, log_models
        self.uri = address(root)
        self.problem = ""  # why the last try did not mirror everything, in one line
        self._stop, self._given_up = threading.Event(), threading.Event()
        self._settled: set[str] = set()
        self._moved = time.monotonic()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Begin to mirror every few seconds."""
        self._thread.start()

    def finish(self) -> str:
        """Mirror the rest as long as that makes progress; describe in one line what is not mirrored, "" for nothing."""
        self._stop.set()
        self._moved = time.monotonic()
        patience = PATIENCE if self.uri.startswith("http") else 10 * PATIENCE
        while self._thread.is_alive() and time.monotonic() - self._moved < patience:
            self._thread.join(0.1)
        if self._thread.is_alive():
            self._given_up.set()
            self.problem = f"{without_password(self.uri)} does not answer"
        behind = self.behind()
        if not behind:
            return ""
        why = f" ({self.problem})" if self.problem else ""
        cells = f"{len(behind)} of {counted(len(self.plan.cells), 'cell')}"
        return f"{cells} not in MLflow yet{why}; milbench sync catches up"

    def behind(self) -> list[Cell]:
        """Return the cells of which something is not in MLflow yet, as their folders remember it."""
        cells = [cell for cell in self.plan.cells if cell.id not in self._settled]
        states = self.root.states(cells)
        behind = []
        for cell in cells:
            if self._is_behind(self.root.cell(cell.id), status := states[cell.id].status):
                behind.append(cell)
            elif status == "done":
                self._settled.add(cell.id)
        return behind

    def _is_behind(self, folder: CellFolder, status: Status) -> bool:
        record = folder.mirrored()
        if status == "missing" and not record and not folder.begun:
            return False
        lacks_model = self.log_models and status == "done" and not record.get("model")
        return status == "running" or lacks_model or (record.get("uri"), record.get("status")) != (self.uri, status)

    def _follow(self) -> None:
        last = False
        while not last and not self._given_up.is_set():
            last = self._stop.wait(INTERVAL)
            try:
                self._mirror()
                self.problem = ""
            except Exception as error:  # noqa: BLE001 whatever MLflow, a database or a server raises
                self.problem = _one_line(error, self.uri)

    def _mirror(self) -> None:
        """Copy what is missing; one process of a root at a time, since two would make two runs of a cell."""
        with locks.lock(self.root.runs / "mlflow.lock"):
            self._moved = time.monotonic()
            if not (behind := self.behind()):
                return
            from milbench.engine.mlflow_runs import Runs

            runs = Runs(self.root, self.plan, self.uri)
            experiment = runs.experiment()
            for cell in behind:
                self._moved = time.monotonic()
                if self._given_up.is_set():
                    return
                runs.update(experiment, cell, self.log_models)


def address(root: Root) -> str:
    """Return the address of MLflow: MLFLOW_TRACKING_URI, or the database of the root."""
    from urllib.parse import quote

    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    path = str(root.database)
    if quote(path) == path:
        return f"sqlite:///{path}"
    from sqlalchemy.engine import URL  # version 2.1 reads "%20" as a space, 2.0 as it stands

    return URL.create("sqlite", database=path).render_as_string()


def synchronise(root: Root, names: Iterable[str], *, log_models: bool = False) -> str:
    """Copy everything of some comparisons to MLflow; describe in one line what could not be copied, "" for nothing."""
    from milbench.engine.mlflow_runs import Runs

    problems = []
    for name in names:
        plan = root.plan(name)
        with suppress(Exception):  # the mirror will report it
            Runs(root, plan, address(root)).forget_lost()
        mirror = Mirror(root, plan, log_models=log_models)
        mirror.start()
        problems.append(mirror.finish())
    return next(filter(None, problems), "")


def without_password(uri: str) -> str:
    """Return an address of MLflow without the password in it."""
    return re.sub(r"://[^/@]*@", "://***@", uri)


def _one_line(error: Exception, uri: str) -> str:
    text = str(error) or type(error).__name__
    cause = re.search(r"\[Errno -?\d+\] [^'\")]+|timed out|\(\w[\w.]*Error\) .+", text)
    return f"{without_password(uri)}: {without_password((cause[0] if cause else text.splitlines()[0])[:300])}"
