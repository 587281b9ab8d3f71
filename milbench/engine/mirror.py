"""The mirror: copies the folders of cells to MLflow. No launch depends on it.

Only the launching process writes. A folder remembers its run and how much of it is copied, and values have the times
of the training, so that mirroring again changes nothing. The calls to MLflow are in `milbench.engine.mlflow_runs`.
"""

import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import closing, suppress

from milbench._utils import locks
from milbench._utils.words import counted
from milbench.api.plan import Cell, Plan
from milbench.engine.folders import Root, damaged
from milbench.errors import UsageError

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
"""Seconds without progress after which a server counts as away; ten times that for a database, which may be new."""


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
        if not (behind := self.behind()):
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
            state, folder = states[cell.id], self.root.cell(cell.id)
            status, record = state.status, folder.mirrored()
            if state.is_damaged or (status == "missing" and not record and not folder.begun):
                continue
            lacks_model = self.log_models and status == "done" and not record.get("model")
            if (
                status == "running"
                or lacks_model
                or (record.get("uri"), record.get("status")) != (self.uri, status)
            ):
                behind.append(cell)
            elif status == "done":
                self._settled.add(cell.id)
        return behind

    def _follow(self) -> None:
        last = False
        while not last and not self._given_up.is_set():
            last = self._stop.wait(INTERVAL)
            try:
                self._mirror()
                self.problem = ""
            except Exception as error:  # noqa: BLE001 whatever MLflow, a database or a server raises
                text = str(error) or type(error).__name__
                cause = re.search(r"\[Errno -?\d+\] [^'\")]+|timed out|\(\w[\w.]*Error\) .+", text)
                self.problem = without_password(
                    f"{self.uri}: {(cause[0] if cause else text.splitlines()[0])[:300]}"
                )

    def _mirror(self) -> None:
        """Copy what is missing; one process of a root at a time, since two would make two runs of a cell."""
        with locks.lock(self.root.runs / "mlflow.lock"):
            self._moved = time.monotonic()
            for leftover in self.root.runs.glob(
                f".{self.root.database.name}.*"
            ):  # of a killed process
                leftover.unlink(missing_ok=True)
            if not (behind := self.behind()):
                return
            check_database(self.root, self.uri)
            from milbench.engine.mlflow_runs import Runs

            runs = Runs(self.root, self.plan, self.uri)
            experiment = runs.experiment()
            problems: list[Exception] = []
            for cell in behind:
                self._moved = time.monotonic()
                if self._given_up.is_set():
                    return
                try:
                    runs.update(experiment, cell, self.log_models)
                except (OSError, UsageError) as error:
                    if isinstance(error, OSError) and error.filename is None:
                        raise  # of a server, which no other cell would reach either
                    problems.append(error)  # of the folder of this cell
            if problems:
                raise problems[0]


def address(root: Root) -> str:
    """Return the address of MLflow: MLFLOW_TRACKING_URI, or the database of the root."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    from sqlalchemy.engine import URL  # version 2.1 reads "%20" as a space, 2.0 as it stands

    return URL.create("sqlite", database=str(root.database)).render_as_string()


def check_database(root: Root, uri: str) -> None:
    """Raise UsageError where the database of a root, if it has one, cannot be opened: MLflow needs minutes for that."""
    if not uri.startswith("sqlite:") or not root.database.exists():
        return
    try:
        with closing(
            sqlite3.connect(f"{root.database.as_uri()}?mode=ro", timeout=5, uri=True)
        ) as database:
            database.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.Error as error:
        remedy = "if it is damaged, delete it, and milbench sync makes it again"
        raise UsageError(f"{root.database} cannot be opened: {error}; {remedy}") from None


def synchronise(root: Root, names: Iterable[str], *, log_models: bool = False) -> list[str]:
    """Copy everything of some comparisons to MLflow; describe what could not be copied, a line each."""
    problems: list[str] = []
    for name in names:
        try:
            plan = root.plan(name)
        except UsageError as error:  # the others are copied
            problems.append(str(error))
            continue
        with suppress(Exception):  # the mirror will report it
            check_database(root, address(root))
            from milbench.engine.mlflow_runs import Runs

            Runs(root, plan, address(root)).forget_lost()
        mirror = Mirror(root, plan, log_models=log_models)
        mirror.start()
        problems += [*filter(None, [mirror.finish()]), *damaged(plan, root.states(plan.cells))]
    return [*dict.fromkeys(problems)]


def without_password(uri: str) -> str:
    """Return an address of MLflow without the password in it."""
    return re.sub(r"://[^/@]*@", "://***@", uri)
