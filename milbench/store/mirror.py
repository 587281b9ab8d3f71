"""The mirror: copies the folders of cells to MLflow. A launch works without it.

Only the process of a launch, or of `milbench sync`, writes to MLflow. The folder of a cell
remembers its run in MLflow and how much of the cell is copied. Values are logged with the times of
the training. So copying a cell again changes nothing. The calls to MLflow are in
`milbench.store.mlflow_runs`.
"""

import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from milbench._utils import locks
from milbench._utils.addresses import (
    address_digest,
    has_secrets,
    hide_in,
    page_of,
    safe_reason,
    without_secrets,
)
from milbench._utils.files import Unreadable, WrongFile, open_file
from milbench._utils.words import counted
from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.plan import Plan
from milbench.store.folders import Root, cell_problems

# MLflow reads some of these variables when it is imported, which happens later than this.
for key, value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # MLflow's defaults wait minutes for a server that is gone.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}.items():
    os.environ.setdefault(key, value)

INTERVAL = 3.0
"""Seconds between two readings of the folders during a launch."""
PATIENCE = 10.0
"""Seconds without progress after which a server counts as away."""
PATIENCE_WITH_DATABASE = 10
"""How many times longer than a server a database may take: a new one gets its tables first."""


class Mirror:
    """Mirrors the cells of a comparison to MLflow, in a thread of its own.

    With `log_models`, it also logs every trained network as an MLflow model.
    """

    def __init__(self, root: Root, plan: Plan, *, log_models: bool = False) -> None:
        self.root = root
        self.plan = plan
        self.log_models = log_models
        self.uri = address(root)
        self.server = address_digest(self.uri)
        # Why the last try did not mirror everything, in one line.
        self.problem = ""
        self._stop = threading.Event()
        self._given_up = threading.Event()
        # The ids of the cells that are done and mirrored: their folders need not be read again.
        self._settled: set[str] = set()
        self._last_progress = time.monotonic()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Begin to mirror every few seconds."""
        self._thread.start()

    def finish(self) -> str:
        """Mirror the rest, as long as there is progress. Describe in a line what is not mirrored.

        The line is "" where everything is mirrored.
        """
        self._stop.set()
        self._last_progress = time.monotonic()
        patience = PATIENCE
        if not self.uri.startswith("http"):
            patience *= PATIENCE_WITH_DATABASE
        while self._thread.is_alive() and time.monotonic() - self._last_progress < patience:
            self._thread.join(0.1)
        if self._thread.is_alive():
            self._given_up.set()
            self.problem = f"{shown_address(self.root)} does not answer"
        behind = self.behind()
        if not behind:
            return ""
        why = f" ({self.problem})" if self.problem else ""
        cells = f"{len(behind)} of {counted(len(self.plan.cells), 'cell')}"
        return f"{cells} not in MLflow yet{why}; milbench sync catches up"

    def behind(self) -> list[Cell]:
        """Return the cells that are not completely in MLflow, as their folders remember."""
        cells = [cell for cell in self.plan.cells if cell.id not in self._settled]
        states = self.root.states(cells)
        behind = []
        for cell in cells:
            state = states[cell.id]
            status = state.status
            folder = self.root.cell(cell.id)
            record = folder.mirrored()
            has_nothing = status == "missing" and not record and not folder.begun
            if state.problem or has_nothing:
                continue
            lacks_model = self.log_models and status == "done" and not record.get("model")
            is_elsewhere = record.get("server") != self.server
            has_changed = status == "running" or record.get("status") != status
            if has_changed or lacks_model or is_elsewhere:
                behind.append(cell)
            elif status == "done":
                # No other status is final.
                self._settled.add(cell.id)
        return behind

    def _follow(self) -> None:
        is_last = False
        while not is_last and not self._given_up.is_set():
            # When `_stop` is set, mirror once more: cells may have finished since the last time.
            is_last = self._stop.wait(INTERVAL)
            try:
                self._mirror()
                self.problem = ""
            except Exception as error:  # noqa: BLE001 MLflow, databases and servers raise anything
                self.problem = describe_problem(self.root, error)

    def _mirror(self) -> None:
        """Copy what is missing in MLflow.

        Only one process of a root does so at a time, since two would make two runs of a cell.
        """
        with locks.lock(self.root.runs / "mlflow.lock"):
            self._last_progress = time.monotonic()
            # A process that was killed may have left the database that it was making.
            for leftover in self.root.runs.glob(f".{self.root.database.name}.*"):
                leftover.unlink(missing_ok=True)
            behind = self.behind()
            if not behind:
                return
            check_database(self.uri)
            from milbench.store.mlflow_runs import Runs

            runs = Runs(self.root, self.plan, self.uri)
            experiment = runs.experiment()
            problems: list[Exception] = []
            for cell in behind:
                self._last_progress = time.monotonic()
                if self._given_up.is_set():
                    return
                try:
                    runs.update(experiment, cell, self.log_models)
                except (OSError, UsageError) as error:
                    # A problem with the folder of this cell does not concern other cells. A problem
                    # with the server does, and ends the loop.
                    if not is_of_store(self.root, error):
                        raise
                    problems.append(error)
            if problems:
                raise problems[0]


def address(root: Root) -> str:
    """Return the address of MLflow: MLFLOW_TRACKING_URI, or the database of the root."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return uri
    # SQLAlchemy 2.1 reads "%20" in a path as a space, and 2.0 does not. Each reads correctly what
    # it has written, so the path is written by SQLAlchemy.
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(root.database)).render_as_string()


def shown_address(root: Root) -> str:
    """Return the address of MLflow as it may be shown.

    It is the path of the root's database, or the address of a server without secrets.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return without_secrets(uri)
    return str(root.database.relative_to(root.path))


def page_address() -> str:
    """Return the address of the pages of an MLflow server without secrets, "" for a database."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    return page_of(uri) if uri.startswith("http") else ""


def is_of_store(root: Root, error: Exception) -> bool:
    """Return whether an error is about a file of the store, or has a message of milbench.

    Such a message holds no secret of MLflow's address, so it may be shown.
    """
    if isinstance(error, OSError):
        return error.filename is not None and str(error.filename).startswith(str(root.path))
    return isinstance(error, UsageError)


def describe_problem(root: Root, error: Exception) -> str:
    """Say in one line why something could not be copied to MLflow, without secrets."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    if is_of_store(root, error):
        reason = _without_path_of_database(str(error))
    elif has_secrets(given):
        reason = safe_reason(error)
    else:
        text = str(error) or type(error).__name__
        # Messages of servers and databases are long. These parts of the messages say why.
        cause = re.search(r"\[Errno -?\d+\] [^'\")]+|timed out|\(\w[\w.]*Error\) .+", text)
        reason = hide_in(cause[0] if cause else text.splitlines()[0])
    return f"{shown_address(root)}: {reason[:300]}"


def _without_path_of_database(text: str) -> str:
    """Return a text in which the path of a user's own database shows no secret.

    The path is part of the address that the user gives, and may contain a password.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    database = database_of(uri) if uri else None
    if database is None:
        return text
    path = str(database)
    return text.replace(path, without_secrets(path))


def database_of(uri: str) -> Path | None:
    """Return the file of the SQLite database at an address, None for any other address."""
    if not uri.startswith("sqlite:"):
        return None
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        database = make_url(uri).database
    except (ArgumentError, ValueError):
        return None
    if not database or database == ":memory:":
        return None
    return Path(database).absolute()


def check_database(uri: str, *, thoroughly: bool = False) -> None:
    """Raise UsageError where an SQLite database is damaged. A database need not exist yet.

    MLflow itself would need minutes to report the damage. With `thoroughly`, every page of the
    database is read.
    """
    database = database_of(uri)
    if database is None:
        return
    remedy = "delete it, and milbench sync makes it again"
    try:
        with open_file(database):
            pass
        where = f"{database.as_uri()}?mode=ro"
        with closing(sqlite3.connect(where, timeout=5, uri=True)) as connection:
            connection.execute("select count(*) from sqlite_master").fetchone()
            if thoroughly:
                (answer,) = connection.execute("pragma quick_check(1)").fetchone()
                if answer != "ok":
                    raise UsageError(f"{database} is damaged: {answer}; {remedy}")
    except FileNotFoundError:
        return
    except Unreadable as error:
        raise UsageError(f"{error}; it is left alone") from None
    except WrongFile as error:
        raise UsageError(f"{database} is no database: {error}; move it away") from None
    except sqlite3.OperationalError as error:
        # The database may be locked, for example.
        raise UsageError(f"{database} cannot be opened: {error}") from None
    except sqlite3.Error as error:
        raise UsageError(f"{database} is damaged: {error}; {remedy}") from None


def synchronise(root: Root, names: Iterable[str], *, log_models: bool = False) -> list[str]:
    """Copy everything of some comparisons to MLflow. Return a line for each problem."""
    try:
        check_database(address(root), thoroughly=True)
    except UsageError as error:
        return [_without_path_of_database(str(error))]
    problems: list[str] = []
    for name in names:
        try:
            plan = root.plan(name)
        except UsageError as error:
            # The other comparisons are copied all the same.
            problems.append(str(error))
            continue
        problems += _synchronise_one(root, plan, log_models=log_models)
    # Each line once: a problem of the server is the same for all comparisons.
    return list(dict.fromkeys(problems))


def _synchronise_one(root: Root, plan: Plan, *, log_models: bool) -> list[str]:
    """Copy a comparison to MLflow. Return a line for each problem."""
    why_unknown = ""
    try:
        from milbench.store.mlflow_runs import Runs

        Runs(root, plan, address(root)).forget_lost()
    except Exception as error:  # noqa: BLE001 MLflow, databases and servers raise anything
        why_unknown = describe_problem(root, error)
    mirror = Mirror(root, plan, log_models=log_models)
    mirror.start()
    problem = mirror.finish()
    if why_unknown and not problem:
        # The folders remember that all was copied, but MLflow may have lost it.
        problem = f"not known whether MLflow has everything ({why_unknown})"
    problems = [problem] if problem else []
    return problems + cell_problems(plan, root.states(plan.cells))
