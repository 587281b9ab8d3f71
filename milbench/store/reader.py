"""Reads the store of runs: its comparisons, their launches, and the status of their cells.

A comparison is an experiment of MLflow. A launch is a run in it that has the plan as an artifact; the run of a cell
names its launch as its parent and is found by the cell's content hash.
"""

from __future__ import annotations

import os
import platform
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from milbench._utils import locks
from milbench.api.plan import Plan, merge
from milbench.errors import UsageError, unknown
from milbench.store import mlflow_client
from milbench.store.records import (
    CELL,
    COMMAND,
    DEVICE,
    HOST,
    KIND,
    PARENT,
    REASON,
    ROOT,
    SOURCE,
    CellRun,
    MetricValue,
    RunRecord,
)
from milbench.store.workspace import Workspace


class StoreReader:
    """The runs of a workspace, or those on the server that MLFLOW_TRACKING_URI names.

    Args:
        workspace: the folder that holds the database and the locks; it must exist.
        uri: the store's address; None stands for MLFLOW_TRACKING_URI, or else for the workspace's own database.

    Raises:
        UsageError: the store cannot be opened.
    """

    def __init__(self, workspace: Workspace, uri: str | None = None) -> None:
        self.workspace = workspace
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{workspace.database}"
        if self.is_local and "?" not in self.uri:
            self.uri += "?timeout=120"  # seconds to wait for other processes that write to the database
        self.owner = {HOST: platform.node(), ROOT: str(workspace.path)}
        try:
            self._client = mlflow_client.RunClient(self.uri)
            self.refresh()
        except Exception as error:  # noqa: BLE001 whatever the database driver or the server's client raises
            raise UsageError(f"cannot open the store {self.uri}: {str(error).splitlines()[0]}") from None

    # -- where it is --------------------------------------------------------------------------------------------

    @property
    def is_local(self) -> bool:
        """True if the store is a database file, not a server."""
        return self.uri.startswith("sqlite:")

    @property
    def is_in_workspace(self) -> bool:
        """True if the store is the workspace's own database, which is copied and moved with it."""
        return self.uri.partition("?")[0] == f"sqlite:///{self.workspace.database}"

    @property
    def address(self) -> str:
        """The store's address for a reader: relative to the workspace where it lies in it."""
        if self.is_in_workspace:
            return "sqlite:///" + str(self.workspace.database.relative_to(self.workspace.path))
        return self.uri.partition("?")[0]

    def serve(self, listener: socket.socket) -> None:
        """Serve MLflow's pages on a local store, on a socket that listens, until a signal ends this process."""
        mlflow_client.serve(self.uri, self.workspace.artifacts, listener)

    # -- comparisons and launches -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read which experiments there are: other processes may have made some since."""
        self.experiments = self._client.experiments()

    def names(self) -> pd.DataFrame:
        """Return one row a comparison: name, launches, time of the last launch."""
        names = {v: k for k, v in self.experiments.items()}
        rows: dict[str, dict[str, Any]] = {}
        for run in self.search("launch"):
            name = names[run.experiment_id]
            row = rows.setdefault(name, {"name": name, "launches": 0, "last": _time(run.start)})
            row["launches"] += 1
        return pd.DataFrame(list(rows.values()), columns=["name", "launches", "last"])

    def plan(self, name: str | None = None) -> tuple[Plan, str, str]:
        """Return the plan of a comparison, the command that launched it last, and the time of that launch.

        Args:
            name: the comparison; None stands for the one launched last.

        Raises:
            UsageError: there is no such comparison, or its plan cannot be read.
        """
        launches = self.launches(name)
        plan = merge([Plan.from_json(self.text(run.run_id, "plan.json")) for run in launches])
        newest = launches[0]
        return plan, newest.tags.get(COMMAND, ""), _time(newest.start)

    def launches(self, name: str | None = None) -> list[RunRecord]:
        """Return the launches whose plans make up a comparison, the newest first.

        If the last launch is from a spec, it is the only one. If it is from flags, all launches from flags are
        returned, so that losses that are run one after the other are in one report.

        Raises:
            UsageError: there is no such comparison, or none at all.
        """
        names = {v: k for k, v in self.experiments.items()}
        launches = self.search("launch")
        if not launches:
            raise UsageError(f"nothing was run yet in {self.uri}; start with: milbench run demo")
        if name is not None and name not in {names[run.experiment_id] for run in launches}:
            raise unknown("comparison", name, {names[run.experiment_id] for run in launches})
        chosen = name or names[launches[0].experiment_id]
        mine = [run for run in launches if names[run.experiment_id] == chosen]
        if mine[0].tags.get(SOURCE) == "flags":
            return [run for run in mine if run.tags.get(SOURCE) == "flags"]
        return mine[:1]

    # -- runs ---------------------------------------------------------------------------------------------------

    def search(self, kind: str) -> list[RunRecord]:
        """Return all runs of a kind, such as "cell" or "launch", the newest first."""
        return self._client.search(self.experiments.values(), KIND, kind)

    def cell_runs(self) -> dict[str, CellRun]:
        """Return the run whose results are used for every cell that was ever started, by cell id."""
        found: dict[str, CellRun] = {}
        for run in self.search("cell"):  # newest first
            cell_id = run.tags[CELL]
            status = self._status(run, cell_id)
            if status != "missing" and (cell_id not in found or (status == "done" != found[cell_id].status)):
                found[cell_id] = CellRun(run.run_id, status, run.tags.get(REASON, ""))
        return found

    def run(self, run_id: str) -> RunRecord:
        """Return a run."""
        return self._client.get(run_id)

    def history(self, run_id: str, metric: str) -> list[MetricValue]:
        """Return every value of a metric that was logged, in the order of its time."""
        return self._client.history(run_id, metric)

    def artifact_sizes(self, run_id: str) -> dict[str, int]:
        """Return the sizes in bytes of a run's artifacts by name."""
        return self._client.artifact_sizes(run_id)

    def artifact(self, run_id: str, name: str) -> Path | None:
        """Return where an artifact, or a copy of it, lies on this machine; None if the run has none of that name."""
        if name not in self.artifact_sizes(run_id):
            return None
        folder = None if self.is_local else tempfile.mkdtemp(prefix="milbench-")
        return self._client.download(run_id, name, folder)

    def text(self, run_id: str, name: str) -> str:
        """Return the text of an artifact. Raises UsageError if the run has none of that name."""
        path = self.artifact(run_id, name)
        if path is None:
            raise UsageError(f"the store has lost {name} of run {run_id}")
        return path.read_text("utf-8")

    # -- who computes a run -------------------------------------------------------------------------------------

    def is_own(self, run: RunRecord) -> bool:
        """Return whether the run's lock is in this workspace: always, where the store is in the workspace too."""
        return self.is_in_workspace or all(run.tags.get(k) == v for k, v in self.owner.items())

    def is_alive(self, run: RunRecord, name: str) -> bool:
        """Return whether the run's lock is held; runs of other machines and workspaces count as alive.

        Args:
            run: the run of a cell or of a launch.
            name: its lock: the cell's id, or the launch's run id. For a scheduled run the lock of its launch counts.
        """
        if not self.is_own(run):
            return True
        holder = run.tags.get(PARENT, name) if run.status == "SCHEDULED" else name
        return locks.is_locked(self.workspace.lock(holder))

    def _status(self, run: RunRecord, cell_id: str) -> str:
        ended = {"FINISHED": "done", "FAILED": "failed", "KILLED": "interrupted"}.get(run.status)
        if ended is None and self.is_alive(run, cell_id):
            return "running"
        if run.status == "SCHEDULED" or (ended == "interrupted" and DEVICE not in run.tags):
            return "missing"  # planned by a launch that ended before it was started
        return ended or "interrupted"


def _time(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(milliseconds / 1000))
