"""Reads the store of runs: its comparisons, their launches, and the status of their cells.

A comparison is an experiment of MLflow. A launch is a run in it that has the plan as an artifact; the run of a cell
names its launch as its parent and is found by the cell's content hash.
"""

from __future__ import annotations

import atexit
import math
import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench._utils import locks
from milbench.api.merged_plans import merge, newest_code
from milbench.api.plan import Cell, Plan
from milbench.errors import StoreError, UsageError, unknown
from milbench.store import database
from milbench.store.artifacts import PLAN
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
    WORKSPACE,
    CellRun,
    History,
    RunRecord,
    RunSource,
    RunSummary,
    without_password,
)
from milbench.store.sqlite_source import SECONDS_LOCKED, SqliteSource
from milbench.store.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd

    from milbench.store.mlflow_client import RunClient


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
        own = database.address(workspace.database)
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or own
        if self.is_local and "?" not in self.uri:
            self.uri += f"?timeout={SECONDS_LOCKED:.0f}"
        self.is_in_workspace = self.uri.partition("?")[0] == own
        """True if the store is the workspace's own database, which is copied and moved with it."""
        self.owner = {HOST: platform.node(), ROOT: str(workspace.path), WORKSPACE: workspace.id}
        self.lost: list[str] = []
        """Artifacts that reading has found to be gone, one line each."""
        self._open()
        self.refresh()

    # -- where it is --------------------------------------------------------------------------------------------

    @property
    def is_local(self) -> bool:
        """True if the store is a database file, not a server."""
        return self.uri.startswith("sqlite:")

    @property
    def address(self) -> str:
        """The store's address for a reader: relative to the workspace where it lies in it."""
        if self.is_in_workspace:
            return "sqlite:///" + str(self.workspace.database.relative_to(self.workspace.path))
        return without_password(self.uri)

    def serve(self, listener: socket.socket) -> None:
        """Serve MLflow's pages on a local store, on a socket that listens, until a signal ends this process."""
        from milbench.store import mlflow_client

        mlflow_client.serve(self.uri, self.workspace.artifacts, listener)

    def _open(self) -> None:
        """Open the store for reading: MLflow is imported for a server alone."""
        if not self.is_local:
            self._source: RunSource = self._client
        elif self.is_in_workspace:
            self._source = SqliteSource(self.workspace.database)
        else:
            self._source = SqliteSource(Path(self.uri.removeprefix("sqlite:///").partition("?")[0]))

    @cached_property
    def _client(self) -> RunClient:
        from milbench.store.mlflow_client import RunClient

        with self._one_line_errors():
            return RunClient(self.uri)

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turn whatever the database driver or the server's client raises into a UsageError that names the store."""
        try:
            yield
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 the drivers and clients have errors of many kinds
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise StoreError(f"cannot open the store {self.address}: {reason}") from None

    # -- comparisons and launches -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read which experiments there are: other processes may have made some since."""
        with self._one_line_errors():
            self.experiments = self._source.experiments()

    def names(self) -> pd.DataFrame:
        """Return one row a comparison: name, launches, time of the last launch."""
        import pandas as pd

        names = self._names()
        rows: dict[str, dict[str, Any]] = {}
        for run in self.search("launch"):
            name = names[run.experiment_id]
            row = rows.setdefault(name, {"name": name, "launches": 0, "last": _time(run.start)})
            row["launches"] += 1
        return pd.DataFrame(list(rows.values()), columns=["name", "launches", "last"])

    def plan(self, name: str | None = None, until: str = "", *, superseded: bool = False) -> tuple[Plan, str, str]:
        """Return the plan of a comparison, the command that launched it last, and the time of that launch.

        Args:
            name: the comparison; None stands for the one launched last.
            until: the id of a launch of it: the plan as it was then; "": as it is now.
            superseded: whether cells of a loss or task whose code has changed since are in it, see `newest_code`.

        Raises:
            UsageError: there is no such comparison, or its plan cannot be read.
        """
        launches = self.launches(name, until)
        plans = [plan for run in launches if (plan := self._plan_of(run))]
        if not superseded:
            plans = newest_code(plans)[0]
        if not plans:
            lost = next(line for line in self.lost if launches[0].run_id in line)
            raise UsageError(
                f"the store has lost the plan of {self._names()[launches[0].experiment_id]}: {lost}; run the "
                "same command again, which finds the cells that are done"
            )
        return merge(plans), launches[0].tags.get(COMMAND, ""), _time(launches[0].start)

    def superseded(self, name: str | None = None, until: str = "") -> list[Cell]:
        """Return the cells that `plan` leaves out, since the code or data of a newer launch replaced theirs."""
        lost = len(self.lost)
        try:
            return newest_code([plan for run in self.launches(name, until) if (plan := self._plan_of(run))])[1]
        finally:
            del self.lost[lost:]  # `plan` has noted it

    def contrasts_since(self, plan: Plan) -> int | None:
        """Return when the contrasts of a plan were first in one of its comparison, in milliseconds since 1970.

        Returns:
            The time of the first launch whose plan asks for the same contrasts, whatever they are called, and for no
            other ones; None where there is no such launch.
        """
        names, asked, lost = self._names(), {contrast.asked for contrast in plan.contrasts}, len(self.lost)
        try:
            for launch in reversed(self.search("launch")):
                earlier = self._plan_of(launch) if names[launch.experiment_id] == plan.name else None
                if earlier is not None and {contrast.asked for contrast in earlier.contrasts} == asked:
                    return launch.start
            return None
        finally:
            del self.lost[lost:]  # the report of a comparison needs no plan of earlier launches

    def _plan_of(self, launch: RunSummary) -> Plan | None:
        """Return the plan of a launch; None, with the loss noted, where its artifact is gone."""
        path, problem = self.artifact(launch.run_id, PLAN), " is gone"
        if path is not None:
            try:
                return Plan.from_json(path.read_text("utf-8"))
            except (OSError, ValueError) as error:
                problem = f": {error}"
        lost = f"{PLAN} of the launch of {_time(launch.start)} (run {launch.run_id}){problem}"
        if lost not in self.lost:  # a launch may be asked for its plan more than once
            self.lost.append(lost)
        return None

    def all_launches(self, name: str | None = None) -> list[RunSummary]:
        """Return every launch of a comparison, the newest first; of the one launched last where the name is None.

        Raises:
            UsageError: there is no such comparison, or none at all.
        """
        names = self._names()
        launches = self.search("launch")
        if not launches:
            raise UsageError(f"nothing was run yet in {self.address}; start with: milbench run demo")
        if name is not None and name not in {names[run.experiment_id] for run in launches}:
            raise unknown("comparison", name, {names[run.experiment_id] for run in launches})
        chosen = name or names[launches[0].experiment_id]
        return [run for run in launches if names[run.experiment_id] == chosen]

    def launches(self, name: str | None = None, until: str = "") -> list[RunSummary]:
        """Return the launches whose plans make up a comparison, the newest first.

        If the last launch is from a whole spec, it is the only one. If flags chose losses or tasks of the spec, those
        before it come with it, back to one of the whole spec, as far as the spec said the same otherwise. If it is from
        flags alone, all launches from flags are returned. Losses that are run one after the other are thus in one
        report.

        Args:
            name: the comparison; None stands for the one launched last.
            until: the id of one of its launches, which then counts as the last; "": all count.

        Raises:
            UsageError: there is no such comparison, or none at all.
        """
        mine = self.all_launches(name)
        mine = mine[[run.run_id for run in mine].index(until) :] if until else mine
        if mine[0].tags.get(SOURCE) == "flags":
            return [run for run in mine if run.tags.get(SOURCE) == "flags"]
        return self._parts(mine)

    def last_with_settings(self, name: str | None = None) -> str:
        """Return the id of the newest launch of a comparison but for searches that have chosen nothing yet.

        A search alone has nothing to compare. Where there is nothing else, it is the newest launch.

        Raises:
            UsageError: there is no such comparison, or none at all.
        """
        launches = self.all_launches(name)
        for launch in launches:
            plan = self._plan_of(launch)
            if plan is None or plan.search is None or plan.search.chosen:
                return launch.run_id
        return launches[0].run_id

    def _parts(self, launches: list[RunSummary]) -> list[RunSummary]:
        """Return the newest of several launches from specs, with those before it of which it is one more part."""
        newest = self._plan_of(launches[0])
        found = launches[:1]
        for launch in launches[1:] if newest and newest.part else []:
            plan = self._plan_of(launch)
            if newest and plan and plan.spec == newest.spec:
                found.append(launch)
                if not plan.part:
                    break
        return found

    def joins(self, plan: Plan) -> bool:
        """Return whether the report of a new launch of a part of a spec would show the launch before it as well."""
        try:
            last = self._plan_of(self.all_launches(plan.name)[0])
        except UsageError:  # it is the first one
            return True
        return not plan.part or last is None or last.spec == plan.spec

    def was_launched_last(self, plan: Plan) -> bool:
        """Return whether the last launch of all had this very plan."""
        newest = next(iter(self.search("launch")), None)
        path = self.artifact(newest.run_id, PLAN) if newest else None
        return path is not None and path.read_text("utf-8") == plan.to_json()

    def has_stale_launches(self) -> bool:
        """Return whether the run of a launch of this workspace is open although its process was killed."""
        return any(run.is_open and not self.is_alive(run, run.run_id) for run in self.search("launch"))

    def cells_of_live_launches(self, name: str) -> set[str]:
        """Return the ids of the cells in the plans of the launches of a comparison that are going on."""
        alive = (run for run in self.launches(name) if run.is_open and self.is_alive(run, run.run_id))
        return {cell.id for run in alive if (plan := self._plan_of(run)) for cell in plan.cells}

    def _names(self) -> dict[str, str]:
        """Return the names of the experiments by id."""
        return {number: name for name, number in self.experiments.items()}

    # -- runs ---------------------------------------------------------------------------------------------------

    def search(self, kind: str) -> list[RunSummary]:
        """Return all runs of a kind, such as "cell" or "launch", the newest first."""
        return self._source.search(self.experiments.values(), KIND, kind)

    def cell_runs(self, before: float = math.inf) -> dict[str, CellRun]:
        """Return the run whose results are used for every cell that was ever started, by cell id.

        Args:
            before: a time in milliseconds since 1970; runs that began then or later do not count.
        """
        return self._counted(run for run in self.search("cell") if run.start < before)

    def cell_run(self, cell_id: str) -> CellRun | None:
        """Return the run whose results are used for one cell, None if it was never started."""
        found = self._source.search(self.experiments.values(), CELL, cell_id)
        return self._counted(run for run in found if run.tags.get(KIND) == "cell").get(cell_id)

    def unfinished_run(self, cell_id: str, launch: str) -> str:
        """Return the id of the run of a cell that a launch has opened and not finished, "" if there is none."""
        found = self._source.search(self.experiments.values(), CELL, cell_id)
        of_launch = (run for run in found if run.tags.get(KIND) == "cell" and run.tags.get(PARENT) == launch)
        return next((run.run_id for run in of_launch if run.status in ("RUNNING", "KILLED")), "")

    def _counted(self, runs: Iterable[RunSummary]) -> dict[str, CellRun]:
        """Return the run that counts for each cell, the newest one done or else the newest, from the newest on."""
        found: dict[str, CellRun] = {}
        for run in runs:
            cell_id = run.tags[CELL]
            if cell_id in found and (found[cell_id].status == "done" or run.status != "FINISHED"):
                continue
            status = self._status(run, cell_id)
            if status != "missing":
                found[cell_id] = CellRun(run.run_id, status, run.tags.get(REASON, ""), run.start)
        return found

    def run(self, run_id: str) -> RunRecord:
        """Return a run."""
        return self._source.records([run_id])[run_id]

    def records(self, run_ids: Collection[str]) -> dict[str, RunRecord]:
        """Return runs with parameters and the last values of their metrics, by id."""
        return self._source.records(run_ids)

    def histories(self, run_ids: Collection[str]) -> dict[str, History]:
        """Return every value of every metric of these runs, in the order in which they were logged, by run id."""
        return self._source.histories(run_ids)

    def artifact_sizes(self, run_id: str) -> dict[str, int]:
        """Return the sizes in bytes of a run's artifacts by name."""
        if not self.is_in_workspace:
            return self._client.artifact_sizes(run_id)
        folder = self.workspace.artifacts_of(run_id)
        return (
            {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()} if folder.is_dir() else {}
        )

    def artifact(self, run_id: str, name: str) -> Path | None:
        """Return where an artifact lies on this machine; None if the run has none of that name.

        Of a server's artifact it is a copy, which is there until this process ends.
        """
        if self.is_in_workspace:
            # MLflow's record of the folder is an absolute path, which is wrong in a workspace that was copied or moved.
            path = self.workspace.artifacts_of(run_id) / name
            return path if path.is_file() else None
        if name not in self.artifact_sizes(run_id):
            return None
        if self.is_local:
            return self._client.download(run_id, name, None)
        folder = _folder_of_copies() / run_id
        folder.mkdir(parents=True, exist_ok=True)  # a process may outlive what cleans the temporary folder
        return self._client.download(run_id, name, str(folder))

    # -- who computes a run -------------------------------------------------------------------------------------

    def is_own(self, run: RunSummary) -> bool:
        """Return whether the run's lock is in this workspace: always, where the store is in the workspace too."""
        if self.is_in_workspace:
            return True
        if run.tags.get(WORKSPACE):
            return run.tags[WORKSPACE] == self.owner[WORKSPACE]
        return all(run.tags.get(name) == self.owner[name] for name in (HOST, ROOT))

    def is_alive(self, run: RunSummary, name: str) -> bool:
        """Return whether the run's lock is held; runs of other machines and workspaces count as alive.

        Args:
            run: the run of a cell or of a launch.
            name: its lock: the cell's id, or the launch's run id. For a scheduled run the lock of its launch counts.
        """
        if not self.is_own(run):
            return True
        holder = run.tags.get(PARENT, name) if run.status == "SCHEDULED" else name
        return locks.is_locked(self.workspace.lock(holder))

    def _status(self, run: RunSummary, cell_id: str) -> str:
        ended = {"FINISHED": "done", "FAILED": "failed", "KILLED": "interrupted"}.get(run.status)
        if ended is None and self.is_alive(run, cell_id):
            return "running"
        if run.status == "SCHEDULED" or (ended == "interrupted" and DEVICE not in run.tags):
            return "missing"  # planned by a launch that ended before it was started
        return ended or "interrupted"


@cache
def _folder_of_copies() -> Path:
    """Make the folder for copies of a server's artifacts, which is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="milbench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _time(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(milliseconds / 1000))
