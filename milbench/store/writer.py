"""Writes launches, the runs of cells, and what these compute, into the store of runs."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from milbench._utils.files import copy_folder, write_atomically
from milbench.api.plan import Cell, Plan
from milbench.errors import StoreAwayError, StoreError
from milbench.store import database
from milbench.store.artifacts import DATA_DIGEST, PLAN
from milbench.store.provenance import commits
from milbench.store.reader import StoreReader
from milbench.store.records import CELL, COMMAND, COMMITS, KIND, PARENT, REASON, SOURCE, MetricValue
from milbench.store.spool import Spool
from milbench.store.workspace import Workspace

UNPLANNED = "unplanned launch"
"""The kind of a launch whose plan is not stored yet."""


class StoreWriter(StoreReader):
    """The store of runs, to be read and written. It is made where there is none.

    What is written to a run while the store's server does not answer waits on disk, and no method raises then; only
    `launch` and `create`, and those that read, need the server.

    Args:
        workspace: the folder that holds the database and the locks; it must exist.
        uri: the store's address; None stands for MLFLOW_TRACKING_URI, or else for the workspace's own database.
        waits: False: nothing waits on disk, and every method raises StoreAwayError where the server does not answer.
    """

    def __init__(self, workspace: Workspace, uri: str | None = None, *, waits: bool = True) -> None:
        self._waits = waits
        super().__init__(workspace, uri)

    def _open(self) -> None:
        if self.is_in_workspace:
            database.make_ready(self.workspace)
        super()._open()
        if self.is_local and not self.is_in_workspace:
            _ = self._client  # MLflow makes a database of its own where there is none

    @cached_property
    def _spool(self) -> Spool:
        return Spool(self.workspace.spool, self._client)

    def _write(self, run_id: str, call: str, **arguments: Any) -> None:
        """Call a method of the client that writes to a run."""
        if self.is_local or not self._waits:
            getattr(self._client, call)(run_id, **arguments)
        else:
            self._spool.write(run_id, call, **arguments)

    def waiting(self) -> list[str]:
        """Return the ids of the runs that have writes waiting on disk."""
        return [] if self.is_local else self._spool.waiting()

    def deliver(self) -> list[str]:
        """Write to the store what waits on disk; return, in one line each, what the store refuses.

        Raises:
            StoreAwayError: the server does not answer; what it has not got stays on disk.
        """
        refused = []
        for run_id in self.waiting():
            try:
                self._spool.deliver(run_id)
            except StoreAwayError:
                raise
            except StoreError as error:
                refused.append(str(error))
        return refused

    # -- launches and cells -------------------------------------------------------------------------------------

    def launch(self, plan: Plan, command: str) -> str:
        """Create the run of a launch, with its plan; return its id."""
        newest = next(iter(self.search("launch")), None)
        # A clock that was set back must not make this launch older than the last one.
        start = max(_now(), newest.start + 1 if newest else 0)
        files = sorted({file for cell in plan.cells for file in (cell.loss_file, cell.task_file) if file})
        tags = {KIND: UNPLANNED, SOURCE: plan.source, COMMAND: command, COMMITS: commits(files)}
        run_id = self.create(plan.name, tags, name=f"launch of {plan.name}", start=start)
        self.log_text(run_id, plan.to_json(), PLAN)
        self.tag(run_id, {KIND: "launch"})  # only now is it found: there is no launch without a plan
        return run_id

    def start_cell(self, comparison: str, cell: Cell, launch: str, tags: dict[str, str], run_id: str = "") -> str:
        """Open the run of a cell, which is computed from now on; return its id.

        Args:
            comparison: its name.
            cell: the cell.
            launch: id of the launch's run.
            tags: of the machine and the code that compute it.
            run_id: id of an interrupted run, which is opened again; "" for a new run.
        """
        tags = {**tags, PARENT: launch}
        if run_id:
            self._write(run_id, "set_status", status="RUNNING")
            self.tag(run_id, tags | self.owner)
        else:
            before = self.cell_run(cell.id)
            start = max(_now(), before.start + 1 if before else 0)
            run_id = self.create(comparison, {**tags, KIND: "cell", CELL: cell.id}, name=str(cell), start=start)
        # Also of a run that is opened again: a kill may have come before these.
        self.log_values(run_id, {k: str(v) for k, v in cell.params().items()})
        self.log_text(run_id, cell.data, DATA_DIGEST)
        return run_id

    def close_stale(self, cell_ids: Iterable[str]) -> None:
        """Close as KILLED the runs of this workspace that were left open by a killed launch.

        Args:
            cell_ids: cells whose runs are closed; runs of launches always are.
        """
        cell_ids = set(cell_ids)
        waiting = self.waiting()  # how these runs ended is still to be delivered
        for run in [*self.search("cell"), *self.search("launch"), *self.search(UNPLANNED)]:
            name = run.tags.get(CELL, run.run_id)
            mine = self.is_own(run) and (CELL not in run.tags or name in cell_ids)
            if mine and run.is_open and run.run_id not in waiting and not self.is_alive(run, name):
                self.end(run.run_id, "KILLED")

    # -- any run ------------------------------------------------------------------------------------------------

    def create(self, comparison: str, tags: dict[str, str], name: str | None = None, start: int | None = None) -> str:
        """Create a run of this machine and workspace and return its id.

        Args:
            comparison: its name; an experiment is made for it if there is none.
            tags: tags besides those of machine and workspace.
            name: the run's name; where it is None, the tags hold it.
            start: when it began, in milliseconds since 1970; now if None.

        Returns:
            The id of the new run.
        """
        return self._client.create(self._experiment(comparison), {**tags, **self.owner}, name, start)

    def end(self, run_id: str, status: str, reason: str = "", moment: int | None = None) -> None:
        """Close a run.

        Args:
            run_id: its id.
            status: FINISHED, FAILED or KILLED.
            reason: why, in one line; the first 4,000 characters are kept.
            moment: when it ended, in milliseconds since 1970; now if None.
        """
        if reason:
            self.tag(run_id, {REASON: reason[:4000]})
        self._write(run_id, "end", status=status, end=moment or _now())

    def delete(self, run_id: str) -> None:
        """Mark a run as deleted: no search finds it any more; its artifacts stay."""
        self._client.delete(run_id)

    def tag(self, run_id: str, tags: dict[str, str]) -> None:
        """Set tags, all of them or none."""
        self._write(run_id, "tag", tags=tags)

    def log(self, run_id: str, epoch: int, metrics: dict[str, float]) -> None:
        """Log the metrics of one epoch in one call.

        Args:
            run_id: id of the run.
            epoch: the number of the epoch, which becomes MLflow's step.
            metrics: values by `split/metric`.
        """
        now = _now()
        self.log_values(run_id, {}, [(k, MetricValue(float(v), now, epoch)) for k, v in metrics.items()])

    def log_values(self, run_id: str, params: dict[str, str], metrics: Iterable[tuple[str, MetricValue]] = ()) -> None:
        """Log parameters and values of metrics.

        Args:
            run_id: id of the run.
            params: parameters by name.
            metrics: pairs of a metric's name and a value; a name may occur many times.
        """
        self._write(run_id, "log", params=params, metrics=list(metrics))

    def log_data(self, run_id: str, cell: Cell, shapes: Sequence[Sequence[int]] = ()) -> None:
        """Log which data a cell is computed from.

        Args:
            run_id: id of the run.
            cell: the cell.
            shapes: of a batch of bags and of its label sets, -1 where sizes may differ; (): not known. MLflow keeps
                what is logged first of the same data.
        """
        found = re.search(r"sha256 ([0-9a-f]+)", cell.data)  # MLflow keeps 36 characters, which a name may fill
        digest = found[1] if found else cell.data
        source = json.dumps({"task": cell.task, "params": cell.task_params, "data": cell.data})
        self._write(run_id, "log_data", name=cell.task, digest=digest, source=source, shapes=shapes)

    def log_text(self, run_id: str, text: str, name: str) -> None:
        """Store a text as an artifact of that name.

        Args:
            run_id: id of the run.
            text: the content.
            name: name of the artifact, with its ending.
        """
        if self.is_in_workspace:
            write_atomically(self._place(run_id, name), lambda path: path.write_text(text, "utf-8"))
        else:
            self._write(run_id, "log_text", text=text, name=name)

    def log_file(self, run_id: str, path: Path) -> None:
        """Store a copy of a file as an artifact."""
        if self.is_in_workspace:
            write_atomically(self._place(run_id, path.name), lambda place: shutil.copyfile(path, place))
        else:
            self._write(run_id, "log_file", path=path)

    def log_folder(self, run_id: str, path: Path) -> None:
        """Store a copy of a folder as an artifact, in place of an earlier one of that name."""
        if self.is_in_workspace:
            place = self._place(run_id, path.name)
            shutil.rmtree(place, ignore_errors=True)
            copy_folder(path, place)
        else:
            self._write(run_id, "log_folder", path=path)

    def system_metrics(self, run_id: str) -> AbstractContextManager[None]:
        """Log processor, memory and GPU use of this machine to a run while the block lasts."""
        return self._client.system_metrics(run_id)

    def _place(self, run_id: str, name: str) -> Path:
        """Return where an artifact belongs in the workspace."""
        return self.workspace.artifacts_of(run_id) / name

    def _experiment(self, name: str) -> str:
        """Return the id of the experiment of a comparison; it is created where there is none."""
        if name not in self.experiments:
            self.refresh()
        if name not in self.experiments:
            artifacts = database.RELATIVE if self.is_in_workspace else self.workspace.artifacts.as_uri()
            self.experiments[name] = self._client.make_experiment(name, artifacts if self.is_local else None)
        return self.experiments[name]


def _now() -> int:
    return int(time.time() * 1000)
