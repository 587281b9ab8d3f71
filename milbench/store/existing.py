"""The store that a command or a call works on, if it is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from milbench._utils.console import complain
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    from milbench.store.workspace import Workspace


def has_store(root: Workspace) -> bool:
    """Return whether there is a store under this root, or a tracking server that the environment names."""
    from milbench.store import database

    with as_usage():
        return bool(os.environ.get("MLFLOW_TRACKING_URI")) or database.is_finished(root.database)


def existing_workspace(path: Path) -> Workspace:
    """Return the workspace of `--root`, after what waits in it was delivered to the store.

    Raises:
        UsageError: it has no store, or the store's server does not answer.
    """
    from milbench.store.workspace import Workspace

    root = Workspace(path)
    if not has_store(root):
        raise UsageError(f"there is no store in {root.runs}; start with: milbench run demo (or give --root)")
    deliver(root)
    return root


def deliver(root: Workspace) -> None:
    """Bring to the store what runs wrote while its server did not answer; print what the server refuses."""
    if any(root.spool.glob("*.jsonl")):
        from milbench.store.writer import StoreWriter

        for line in StoreWriter(root).deliver():
            complain(line)
