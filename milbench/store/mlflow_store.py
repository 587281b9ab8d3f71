"""The store of runs: MLflow, and the only module that imports it.

One experiment a comparison, one parent run a launch (with the plan as an artifact), one child run a cell, found again
by the cell's content hash. Everything goes by explicit run id: MLflow's fluent state is global.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from milbench._utils import locks
from milbench.api.plan import Cell, Plan, merge
from milbench.errors import UsageError, unknown
from milbench.store.workspace import Workspace

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

KIND, CELL, REASON, SOURCE = "milbench.kind", "milbench.cell", "milbench.reason", "milbench.source"
HOST, ROOT = "milbench.host", "milbench.root"
"""Tags that say which machine and which root a run belongs to: only they can tell whether it is still alive."""
STARTED = "milbench.device"
"""A tag that a run gets when a worker takes it up."""
PARENT = "mlflow.parentRunId"
OPEN = ("RUNNING", "SCHEDULED")
Value = tuple[str, float, int, int]
"""Of a metric: its name, the value, the time in milliseconds, the epoch."""


@dataclass(frozen=True)
class CellRun:
    """The run of a cell that counts: its newest finished one, else its newest."""

    run_id: str
    status: str
    reason: str = ""


class Store:
    """Runs under a root, or on the server that MLFLOW_TRACKING_URI names."""

    def __init__(self, root: Workspace, uri: str | None = None) -> None:
        import mlflow

        for name in ("mlflow", "mlflow.store.db.utils", "mlflow.system_metrics.system_metrics_monitor", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # of every run that a server ends

        self.root = root
        # A writer waits for the others instead of failing at once: several workers log to one database.
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root.database}"
        if self.is_local and "?" not in self.uri:
            self.uri += "?timeout=120"
        self.owner = {HOST: platform.node(), ROOT: str(root.path)}
        try:
            self.client = mlflow.MlflowClient(self.uri)
            self.refresh()
        except Exception as error:  # noqa: BLE001 whatever the database driver or the server's client raises
            raise UsageError(f"cannot open the store {self.uri}: {str(error).splitlines()[0]}") from None

    @property
    def is_local(self) -> bool:
        """Say whether the store is a database file, not a server."""
        return self.uri.startswith("sqlite:")

    @property
    def is_under_root(self) -> bool:
        """Say whether the store is the root's own, which travels with it."""
        return self.uri.partition("?")[0] == f"sqlite:///{self.root.database}"

    @property
    def address(self) -> str:
        """Return where the store is, for a reader: relative to the root where it lies under it."""
        if self.is_under_root:
            return "sqlite:///" + str(self.root.database.relative_to(self.root.path))
        return self.uri.partition("?")[0]

    # -- writing ------------------------------------------------------------------------------------------------

    def launch(self, plan: Plan, command: str) -> str:
        """Create the parent run of a launch, with its plan; return its id."""
        run = self.client.create_run(
            self.experiment(plan.name),
            run_name=f"launch of {plan.name}",
            tags={KIND: "launch", SOURCE: plan.source, "milbench.command": command, **self.owner},
        )
        self.client.log_text(run.info.run_id, plan.to_json(), "plan.json")
        return str(run.info.run_id)

    def child(self, plan: Plan, cell: Cell, parent: str) -> str:
        """Create the run of one cell, scheduled under its parent; return its id."""
        tags = {KIND: "cell", CELL: cell.id, PARENT: parent, **self.owner}
        run_id = str(self.client.create_run(self.experiment(plan.name), run_name=str(cell), tags=tags).info.run_id)
        self.log_values(run_id, {k: str(v) for k, v in cell.params().items()})
        self.log_data(run_id, cell)
        self.client.log_text(run_id, cell.data, "data_digest.txt")
        self.client.update_run(run_id, status="SCHEDULED")
        return run_id

    def start(self, run_id: str, tags: dict[str, str]) -> None:
        """Mark a run as running, with where and by which code."""
        self.client.update_run(run_id, status="RUNNING")
        self.tag(run_id, tags)

    def tag(self, run_id: str, tags: dict[str, str]) -> None:
        """Set tags, all of them or none."""
        from mlflow.entities import RunTag

        self.client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()])

    def log(self, run_id: str, epoch: int, metrics: dict[str, float]) -> None:
        """Log the metrics of one epoch in one call."""
        now = int(time.time() * 1000)
        self.log_values(run_id, {}, [(k, float(v), now, epoch) for k, v in metrics.items()])

    def log_values(self, run_id: str, params: dict[str, str], metrics: Iterable[Value] = ()) -> None:
        """Log parameters and values of metrics."""
        from mlflow.entities import Metric, Param

        self.client.log_batch(run_id, [Metric(*m) for m in metrics], [Param(*p) for p in params.items()])

    def log_data(self, run_id: str, cell: Cell) -> None:
        """Log which data a cell is computed from."""
        from mlflow.entities import Dataset, DatasetInput

        dataset = Dataset(cell.task, cell.data[:36], "code", json.dumps({"task": cell.task}))
        self.client.log_inputs(run_id, [DatasetInput(dataset, [])])

    @contextmanager
    def system_metrics(self, run_id: str) -> Iterator[None]:
        """Log processor, memory and GPU use of this process's machine to a run while the block lasts."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=self.uri)
        monitor.start()
        try:
            yield
        finally:
            monitor.finish()

    def log_file(self, run_id: str, path: Path) -> None:
        """Keep a copy of a file as an artifact."""
        self.client.log_artifact(run_id, str(path))

    def end(self, run_id: str, status: str, reason: str = "") -> None:
        """Close a run as FINISHED, FAILED or KILLED."""
        if reason:
            self.client.set_tag(run_id, REASON, reason[:4000])
        self.client.set_terminated(run_id, status=status)

    def close_stale(self, cell_ids: Iterable[str], keep: Iterable[str]) -> None:
        """Close as KILLED what a launch that died has left open: itself, and its runs of these cells but for `keep`."""
        cell_ids, keep = set(cell_ids), set(keep)
        for run in [*self.search("cell"), *self.search("launch")]:
            name = run.data.tags.get(CELL, run.info.run_id)
            mine = self.is_own(run) and run.info.run_id not in keep and (CELL not in run.data.tags or name in cell_ids)
            if mine and run.info.status in OPEN and not self._is_alive(run, name):
                self.end(run.info.run_id, "KILLED")

    def abandon(self, run_ids: Iterable[str], status: str = "KILLED", reason: str = "") -> None:
        """Close whichever of these runs has not ended."""
        for run_id in run_ids:
            if self.client.get_run(run_id).info.status in OPEN:
                self.end(run_id, status, reason)

    # -- reading ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Learn of the experiments that others have made in the meantime."""
        self.experiments = {e.name: e.experiment_id for e in self.client.search_experiments()}

    def cell_runs(self) -> dict[str, CellRun]:
        """Return the run that counts of every cell that was ever started, by cell id."""
        found: dict[str, CellRun] = {}
        for run in self.search("cell"):  # newest first
            cell_id = run.data.tags[CELL]
            status = self._status(run, cell_id)
            if status != "missing" and (cell_id not in found or (status == "done" != found[cell_id].status)):
                found[cell_id] = CellRun(run.info.run_id, status, run.data.tags.get(REASON, ""))
        return found

    def names(self) -> pd.DataFrame:
        """Return one row a comparison: name, launches, time of the last launch."""
        names = {v: k for k, v in self.experiments.items()}
        rows: dict[str, dict[str, Any]] = {}
        for run in self.search("launch"):
            name = names[run.info.experiment_id]
            row = rows.setdefault(name, {"name": name, "launches": 0, "last": _time(run.info.start_time)})
            row["launches"] += 1
        return pd.DataFrame(list(rows.values()), columns=["name", "launches", "last"])

    def plan(self, name: str | None = None) -> tuple[Plan, str, str]:
        """Return the plan of a comparison (the one launched last where no name is given), its command and its time.

        Raises UsageError where there is none.
        """
        launches = self.launches(name)
        plan = merge([Plan.from_json(self._text(r.info.run_id, "plan.json")) for r in launches])
        newest = launches[0]
        return plan, newest.data.tags.get("milbench.command", ""), _time(newest.info.start_time)

    def launches(self, name: str | None = None) -> list[Any]:
        """Return the launches of a comparison that count, the newest first.

        A spec's last launch is what counts; launches from flags add up, so that losses run one after the other meet
        in one report. Raises UsageError where there is none.
        """
        names = {v: k for k, v in self.experiments.items()}
        launches = self.search("launch")
        if not launches:
            raise UsageError(f"nothing was run yet in {self.uri}; start with: milbench run demo")
        if name is not None and name not in {names[r.info.experiment_id] for r in launches}:
            raise unknown("comparison", name, {names[r.info.experiment_id] for r in launches})
        chosen = name or names[launches[0].info.experiment_id]
        mine = [r for r in launches if names[r.info.experiment_id] == chosen]
        if mine[0].data.tags.get(SOURCE) == "flags":
            return [r for r in mine if r.data.tags.get(SOURCE) == "flags"]
        return mine[:1]

    def search(self, kind: str) -> list[Any]:
        """Return MLflow's record of all runs of a kind, the newest first."""
        runs: list[Any] = []
        token = None
        while True:
            page = self.client.search_runs(
                list(self.experiments.values()),
                f"tags.`{KIND}` = '{kind}'",
                max_results=5000,
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            runs += page
            token = page.token
            if not token:
                return runs

    def _status(self, run: Any, cell_id: str) -> str:
        ended = {"FINISHED": "done", "FAILED": "failed", "KILLED": "interrupted"}.get(run.info.status)
        if ended is None and self._is_alive(run, cell_id):
            return "running"
        if run.info.status == "SCHEDULED" or (ended == "interrupted" and STARTED not in run.data.tags):
            return "missing"  # planned by a launch that ended before its turn came
        return ended or "interrupted"

    def is_own(self, run: Any) -> bool:
        """Say whether the locks under this root can tell of the run: always, where the store travels with the root."""
        return self.is_under_root or all(run.data.tags.get(k) == v for k, v in self.owner.items())

    def _is_alive(self, run: Any, name: str) -> bool:
        """Say whether a process is at it, or at the launch it is scheduled in; of another machine's one believes it."""
        if not self.is_own(run):
            return True
        holder = run.data.tags.get(PARENT, name) if run.info.status == "SCHEDULED" else name
        return locks.is_locked(self.root.lock(holder))

    def experiment(self, name: str) -> str:
        """Return the id of the experiment of a comparison; it is created where there is none."""
        from mlflow.exceptions import MlflowException

        if name not in self.experiments:
            location = self.root.artifacts.as_uri() if self.is_local else None
            try:
                self.experiments[name] = str(self.client.create_experiment(name, artifact_location=location))
            except MlflowException:  # another launch was quicker, or it was deleted in MLflow's pages
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
                if found.lifecycle_stage == "deleted":
                    self.client.restore_experiment(found.experiment_id)
                self.experiments[name] = str(found.experiment_id)
        return str(self.experiments[name])

    def _text(self, run_id: str, name: str) -> str:
        path = self.artifact(run_id, name)
        if path is None:
            raise UsageError(f"the store has lost {name} of run {run_id}")
        return path.read_text("utf-8")

    def artifact(self, run_id: str, name: str) -> Path | None:
        """Return where a copy of an artifact lies on this machine, or None if the run has none of that name."""
        if name not in {a.path for a in self.client.list_artifacts(run_id)}:
            return None
        folder = None if self.is_local else tempfile.mkdtemp(prefix="milbench-")
        return Path(self.client.download_artifacts(run_id, name, folder))


def _time(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(milliseconds / 1000))
