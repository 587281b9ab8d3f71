"""The workspace: the folder, given by `--root`, that holds the store, checkpoints, locks and reports."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from milbench._utils.files import expanded
from milbench.errors import UsageError


class Workspace:
    """The paths in the folder that `--root` names; nothing is created before `make`.

    Attributes:
        path: the folder, absolute.
        runs: the folder of the database, the artifacts and the checkpoints.
        reports: one folder a comparison.
        checkpoints: states, locks and progress of cells that are not done.
        artifacts: files of runs, a folder each.
        database: MLflow's SQLite file.
        id_file: the file with the id by which a server's runs are known to be of this workspace.
        spool: what runs wrote while the store's server did not answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = expanded(path, "--root").absolute()
        self.runs = self.path / "runs"
        self.reports = self.path / "reports"
        self.checkpoints = self.runs / "checkpoints"
        self.artifacts = self.runs / "artifacts"
        self.database = self.runs / "mlflow.db"
        self.id_file = self.runs / "workspace.id"
        self.spool = self.runs / "spool"

    def make(self) -> Workspace:
        """Create the folders and return self. Raises UsageError if they cannot be written."""
        try:
            for folder in (self.runs, self.checkpoints, self.artifacts):
                folder.mkdir(parents=True, exist_ok=True)
                probe = folder / f".probe-{os.getpid()}"
                probe.touch()
                probe.unlink(missing_ok=True)
            with suppress(FileExistsError), self.id_file.open("x") as file:
                file.write(uuid.uuid4().hex)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"cannot write under --root {self.path}: {reason}") from None
        return self

    @property
    def id(self) -> str:
        """The id of the workspace, "" where it has none yet."""
        try:
            return self.id_file.read_text("utf-8").strip()
        except OSError:
            return ""

    def artifacts_of(self, run_id: str) -> Path:
        """Return the folder of a run's artifacts, laid out as MLflow does."""
        return self.artifacts / run_id / "artifacts"

    def checkpoint(self, cell_id: str) -> Path:
        """Return the file with the state of a cell that is not done."""
        return self.checkpoints / f"{cell_id}.pt"

    def lock(self, name: str) -> Path:
        """Return the lock file of a cell (its id), of a launch (its run id), or of imports ("import")."""
        return self.checkpoints / f"{name}.lock"

    def stop(self, launch: str) -> Path:
        """Return the file whose presence asks the workers of a launch (its run id) to stop."""
        return self.checkpoints / f"{launch}.stop"

    def hang(self, cell_id: str) -> Path:
        """Return the file into which a worker that took too long writes where it was."""
        return self.checkpoints / f"{cell_id}.hang"

    def progress(self, cell_id: str) -> Path:
        """Return the file in which the process that computes a cell keeps its progress, as JSON."""
        return self.checkpoints / f"{cell_id}.progress"
