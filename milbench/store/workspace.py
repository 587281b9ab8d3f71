"""The folder that a user works in: `runs/` (the store) and `reports/`."""

from __future__ import annotations

import os
from pathlib import Path

from milbench.errors import UsageError


class Workspace:
    """The folder with `runs/` (the store) and `reports/`."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.runs = self.path / "runs"
        self.reports = self.path / "reports"
        self.checkpoints = self.runs / "checkpoints"
        self.artifacts = self.runs / "artifacts"
        self.database = self.runs / "mlflow.db"

    def make(self) -> Workspace:
        """Create the folders. Raises UsageError where they cannot be written."""
        try:
            for folder in (self.runs, self.checkpoints, self.artifacts):
                folder.mkdir(parents=True, exist_ok=True)
                probe = folder / f".probe-{os.getpid()}"
                probe.touch()
                probe.unlink()
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"cannot write under --root {self.path}: {reason}") from None
        return self

    def checkpoint(self, cell_id: str) -> Path:
        """Return where a cell keeps its state while it is not done."""
        return self.checkpoints / f"{cell_id}.pt"

    def lock(self, cell_id: str) -> Path:
        """Return the lock of a cell."""
        return self.checkpoints / f"{cell_id}.lock"

    def progress(self, cell_id: str) -> Path:
        """Return where the process that computes a cell says how far it is."""
        return self.checkpoints / f"{cell_id}.progress"
