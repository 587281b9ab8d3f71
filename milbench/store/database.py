"""The database file of a workspace: made, upgraded and addressed so that no kill breaks it and no copy confuses it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from milbench._utils import locks
from milbench._utils.files import scratch_folder
from milbench.errors import UsageError
from milbench.store.workspace import Workspace

PLAIN = r"[A-Za-z0-9_./+=,@-]*"
"""Paths that mean the same in every version of SQLAlchemy when they stand in a database's address."""
RELATIVE = "mlflow-artifacts:/"
"""MLflow's address for artifacts in whichever folder its server serves: it stays true when a workspace is moved."""
TABLES = {"experiments", "runs", "tags", "params", "metrics", "latest_metrics", "alembic_version"}
"""What is read of MLflow's tables: a database without one of them was not finished."""


def address(database: Path) -> str:
    """Return the address of a database for MLflow; any characters may be in its path."""
    if re.fullmatch(PLAIN, str(database)):
        return f"sqlite:///{database}"
    return f"sqlite:///{_alias(database.parent) / database.name}"


def is_finished(database: Path) -> bool:
    """Return whether there is a database with all its tables, or a file that is no database and should be looked at."""
    if not database.exists():
        return False
    try:
        return {name for (name,) in _read(database, "select name from sqlite_master where type = 'table'")} >= TABLES
    except UsageError:
        return True


def make_ready(workspace: Workspace) -> None:
    """Create the database of a workspace where there is none, and bring one of an older MLflow up to date.

    It is created or upgraded beside its place, under a lock, and renamed when it is complete.

    Args:
        workspace: the folder; `Workspace.make` has made it.

    Raises:
        UsageError: the file is no database of MLflow, or of a later MLflow, or other launches still use an old one.
    """
    from milbench.store import mlflow_client

    database = workspace.database
    if not _is_current(database):
        with scratch_folder(workspace.runs, database.name) as scratch:
            if is_finished(database) and not _is_current(database) and _read(database, "select 1 from runs limit 1"):
                _upgrade(workspace, scratch / database.name)
            elif not _is_current(database):  # another launch may have made it in the meantime
                mlflow_client.create_database(address(scratch / database.name))
                if database.exists():  # a launch was killed while MLflow made its tables: there is no run in it
                    database.replace(database.with_name(f"{database.name}.unfinished"))
                (scratch / database.name).replace(database)
    _forget_where_artifacts_were(database)


def _is_current(database: Path) -> bool:
    """Return whether the database is complete and of the schema of the MLflow that is installed."""
    from milbench.store import mlflow_client

    return is_finished(database) and _revision(database) == mlflow_client.schema()


def _revision(database: Path) -> str:
    """Return the name that MLflow gives to the schema of a database."""
    rows = _read(database, "select version_num from alembic_version")
    return str(rows[0][0]) if rows else "unknown"


def _upgrade(workspace: Workspace, copy: Path) -> None:
    """Upgrade a copy, put it into the database's place, and keep the original as mlflow.db.REVISION."""
    from milbench.store import mlflow_client

    database, revision = workspace.database, _revision(workspace.database)
    if any(locks.is_locked(path) for path in workspace.checkpoints.glob("*.lock")):
        raise UsageError(
            f"the store {database} was made by another version of MLflow, and other launches are using it: it can be "
            "upgraded when they have ended"
        )
    with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    if reason := mlflow_client.upgrade_database(address(copy)):
        raise UsageError(
            f"the store {database} was made by another version of MLflow (schema {revision}), which MLflow "
            f"{mlflow_client.version()} cannot upgrade: {reason}"
        )
    backup = database.with_name(f"{database.name}.{revision}")
    shutil.copyfile(database, backup)
    copy.replace(database)


def _forget_where_artifacts_were(database: Path) -> None:
    """Let experiments and runs name their artifacts relative to the workspace, as those of earlier versions did not."""
    ours = "artifact_location like 'file:%/runs/artifacts'"
    if not _read(database, f"select 1 from experiments where {ours}"):  # noqa: S608
        return
    with closing(sqlite3.connect(database, timeout=120)) as connection, connection:
        connection.execute(f"update experiments set artifact_location = ? where {ours}", (RELATIVE,))  # noqa: S608
        connection.execute(
            "update runs set artifact_uri = ? || run_uuid || '/artifacts' "
            "where artifact_uri like 'file:%/runs/artifacts/' || run_uuid || '/artifacts'",
            (RELATIVE,),
        )


def _read(database: Path, query: str) -> list[tuple[object, ...]]:
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True, timeout=120)) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.Error as error:
        raise UsageError(f"cannot open the store {database}: {error}") from None


def _was_scratch(folder: Path) -> bool:
    """Return whether a folder is gone in which something was prepared. Others are not looked at: they may be away."""
    is_scratch = folder.name.startswith(".") or folder.is_relative_to(tempfile.gettempdir())
    return is_scratch and not folder.exists()


def _alias(folder: Path) -> Path:
    """Return a link to a folder whose path has plain characters only; SQLite follows it to the folder itself."""
    mine = Path(tempfile.gettempdir()) / f"milbench-{os.getuid() if hasattr(os, 'getuid') else 'aliases'}"
    mine.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and mine.stat().st_uid != os.getuid():
        raise UsageError(f"{mine} belongs to another user; rename --root so that it has letters and digits only")
    for old in mine.iterdir():
        with suppress(OSError):
            if _was_scratch(old.readlink()):
                old.unlink()
    link = mine / hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    if not link.is_symlink():
        fresh = link.with_name(f"{link.name}.{os.getpid()}")
        fresh.symlink_to(folder)
        fresh.replace(link)
    return link
