"""Writes launches, the runs of cells, and what these compute, into the store of runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from milbench.api.plan import Cell, Plan
from milbench.store.reader import StoreReader
from milbench.store.records import CELL, COMMAND, KIND, PARENT, REASON, SOURCE, MetricValue


class StoreWriter(StoreReader):
    """The store of runs, to be read and written."""

    # -- launches and cells -------------------------------------------------------------------------------------

    def launch(self, plan: Plan, command: str) -> str:
        """Create the run of a launch, with its plan; return its id."""
        tags = {KIND: "launch", SOURCE: plan.source, COMMAND: command}
        run_id = self.create(plan.name, tags, name=f"launch of {plan.name}")
        self.log_text(run_id, plan.to_json(), "plan.json")
        return run_id

    def child(self, plan: Plan, cell: Cell, parent: str) -> str:
        """Create the run of a cell, scheduled.

        Args:
            plan: the plan that the cell is part of.
            cell: the cell.
            parent: id of the launch's run.

        Returns:
            The id of the new run.
        """
        run_id = self.create(plan.name, {KIND: "cell", CELL: cell.id, PARENT: parent}, name=str(cell))
        self.log_values(run_id, {k: str(v) for k, v in cell.params().items()})
        self.log_data(run_id, cell)
        self.log_text(run_id, cell.data, "data_digest.txt")
        self._client.set_status(run_id, "SCHEDULED")
        return run_id

    def start(self, run_id: str, tags: dict[str, str]) -> None:
        """Mark a run as running, and tag it with the machine and the code that compute it."""
        self._client.set_status(run_id, "RUNNING")
        self.tag(run_id, tags)

    def close_stale(self, cell_ids: Iterable[str], keep: Iterable[str]) -> None:
        """Close as KILLED the runs of this workspace that were left open by a killed launch.

        Args:
            cell_ids: cells whose runs are closed; runs of launches always are.
            keep: ids of runs to leave as they are.
        """
        cell_ids, keep = set(cell_ids), set(keep)
        for run in [*self.search("cell"), *self.search("launch")]:
            name = run.tags.get(CELL, run.run_id)
            mine = self.is_own(run) and run.run_id not in keep and (CELL not in run.tags or name in cell_ids)
            if mine and run.is_open and not self.is_alive(run, name):
                self.end(run.run_id, "KILLED")

    def abandon(self, run_ids: Iterable[str], status: str = "KILLED", reason: str = "") -> None:
        """Close those of these runs that are open.

        Args:
            run_ids: their ids.
            status: FAILED or KILLED.
            reason: why, in one line.
        """
        for run_id in run_ids:
            if self.run(run_id).is_open:
                self.end(run_id, status, reason)

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
        self._client.end(run_id, status, moment)

    def delete(self, run_id: str) -> None:
        """Mark a run as deleted: no search finds it any more; its artifacts stay."""
        self._client.delete(run_id)

    def tag(self, run_id: str, tags: dict[str, str]) -> None:
        """Set tags, all of them or none."""
        self._client.tag(run_id, tags)

    def log(self, run_id: str, epoch: int, metrics: dict[str, float]) -> None:
        """Log the metrics of one epoch in one call.

        Args:
            run_id: id of the run.
            epoch: the number of the epoch, which becomes MLflow's step.
            metrics: values by `split/metric`.
        """
        now = int(time.time() * 1000)
        self.log_values(run_id, {}, [(k, MetricValue(float(v), now, epoch)) for k, v in metrics.items()])

    def log_values(self, run_id: str, params: dict[str, str], metrics: Iterable[tuple[str, MetricValue]] = ()) -> None:
        """Log parameters and values of metrics.

        Args:
            run_id: id of the run.
            params: parameters by name.
            metrics: pairs of a metric's name and a value; a name may occur many times.
        """
        self._client.log(run_id, params, metrics)

    def log_data(self, run_id: str, cell: Cell) -> None:
        """Log which data a cell is computed from."""
        self._client.log_data(run_id, cell.task, cell.data, json.dumps({"task": cell.task}))

    def log_text(self, run_id: str, text: str, name: str) -> None:
        """Store a text as an artifact of that name.

        Args:
            run_id: id of the run.
            text: the content.
            name: name of the artifact, with its ending.
        """
        self._client.log_text(run_id, text, name)

    def log_file(self, run_id: str, path: Path) -> None:
        """Store a copy of a file as an artifact."""
        self._client.log_file(run_id, path)

    def system_metrics(self, run_id: str) -> AbstractContextManager[None]:
        """Log processor, memory and GPU use of this machine to a run while the block lasts."""
        return self._client.system_metrics(run_id)

    def _experiment(self, name: str) -> str:
        """Return the id of the experiment of a comparison; it is created where there is none."""
        if name not in self.experiments:
            artifacts = self.workspace.artifacts.as_uri() if self.is_local else None
            self.experiments[name] = self._client.make_experiment(name, artifacts)
        return self.experiments[name]
