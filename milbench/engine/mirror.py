"""The mirror: shows folders of cells in MLflow. It decides nothing, and a launch needs it for nothing.

The launching process alone writes. A folder remembers its run and how much of it is there, and values have the moments
of the training, so that mirroring again changes nothing. This is the only module that talks to MLflow's store.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from milbench._utils import locks
from milbench.api import gallery
from milbench.api.plan import Cell, Plan
from milbench.engine.cell import Status
from milbench.engine.folders import Root

for key, value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # MLflow's defaults wait minutes for a server that is gone.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}.items():
    os.environ.setdefault(key, value)

INTERVAL = 3.0  # seconds between two looks at the folders while a launch goes on
PATIENCE = 10.0
"""Seconds without any progress after which a server counts as away at the end of a command; ten times that where a
database is written, whose tables may have to be made first."""
STATUSES: dict[Status, str] = {"done": "FINISHED", "failed": "FAILED", "running": "RUNNING", "missing": "KILLED"}
"""How MLflow calls what has become of a cell."""
CELL = "milbench.cell"  # the tag of a run that holds the id of its cell
ATTEMPT = "milbench.attempt"  # the tag of a run that tells it from runs of the same cell that was computed before
RELATIVE = "mlflow-artifacts:/"
"""MLflow's address for artifacts in whichever folder its server serves: it stays true when a root is moved."""


class Mirror:
    """Mirrors the cells of a comparison, in a thread of its own, with trained networks as models where `log_models`."""

    def __init__(self, root: Root, plan: Plan, *, log_models: bool = False) -> None:
        self.root, self.plan, self.log_models = root, plan, log_models
        self.uri = address(root)
        self.problem = ""  # in one line, why the last try did not mirror everything
        self._over, self._given_up = threading.Event(), threading.Event()
        self._settled: set[str] = set()
        self._moved = time.monotonic()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Begin to mirror every few seconds."""
        self._thread.start()

    def finish(self) -> str:
        """Mirror what is left, as long as that goes on; return in one line what is not mirrored, "" if all is."""
        self._over.set()
        self._moved = time.monotonic()
        patience = PATIENCE if self.uri.startswith("http") else 10 * PATIENCE
        while self._thread.is_alive() and time.monotonic() - self._moved < patience:
            self._thread.join(0.1)
        if self._thread.is_alive():
            self._given_up.set()
            self.problem = f"{shown(self.uri)} does not answer"
        left = self.behind()
        if not left:
            return ""
        why = f" ({self.problem})" if self.problem else ""
        return f"{len(left)} of {len(self.plan.cells)} cells are not in MLflow yet{why}; milbench sync catches up"

    def behind(self) -> list[Cell]:
        """Return the cells of which something is not in MLflow yet, as their folders remember it."""
        cells = [cell for cell in self.plan.cells if cell.id not in self._settled]
        states = self.root.states(cells)
        behind = [cell for cell in cells if self._is_behind(cell, states[cell.id].status)]
        left = {cell.id for cell in behind}
        self._settled |= {cell.id for cell in cells if cell.id not in left and states[cell.id].status == "done"}
        return behind

    def _is_behind(self, cell: Cell, status: Status) -> bool:
        folder = self.root.cell(cell.id)
        known = folder.mirrored()
        if status == "missing" and not known and not folder.begun:
            return False
        lacks_model = self.log_models and status == "done" and not known.get("model")
        return (
            known.get("uri") != self.uri
            or known.get("status") != STATUSES[status]
            or status == "running"
            or lacks_model
        )

    def _follow(self) -> None:
        last = False
        while not last and not self._given_up.is_set():
            last = self._over.wait(INTERVAL)
            try:
                self._mirror()
                self.problem = ""
            except Exception as error:  # noqa: BLE001 whatever MLflow, a database or a server raises
                self.problem = _one_line(error, self.uri)

    def _mirror(self) -> None:
        """Bring what is behind up to date, one process of a root at a time: two would make two runs of a cell."""
        with locks.lock(self.root.runs / "mlflow.lock"):
            self._moved = time.monotonic()
            if not (behind := self.behind()):
                return
            client = _client(self.root, self.uri)
            experiment = _experiment(client, self.plan.name, self.uri.startswith("sqlite:"))
            for cell in behind:
                self._moved = time.monotonic()
                if self._given_up.is_set():
                    return
                run = _Run(client, self.root, self.uri, experiment, cell, self.plan.label(cell))
                run.bring_up_to_date(self.log_models)


def address(root: Root) -> str:
    """Return the address of MLflow: MLFLOW_TRACKING_URI, or the database of the root."""
    from urllib.parse import quote

    if given := os.environ.get("MLFLOW_TRACKING_URI"):
        return given
    path = str(root.database)
    if quote(path) == path:
        return f"sqlite:///{path}"
    from sqlalchemy.engine import URL  # version 2.1 reads "%20" as a space, 2.0 as it stands

    return URL.create("sqlite", database=path).render_as_string()


def synchronise(root: Root, names: Iterable[str], *, log_models: bool = False) -> str:
    """Bring everything of some comparisons to MLflow; return in one line what is not there, "" if all is."""
    from milbench.errors import UsageError

    problems = []
    for name in names:
        plan = root.plan(name)
        with suppress(UsageError):
            _forget_lost_runs(root, plan)
        mirror = Mirror(root, plan, log_models=log_models)
        mirror.start()
        problems.append(mirror.finish())
    return next(filter(None, problems), "")


def _forget_lost_runs(root: Root, plan: Plan) -> None:
    """Forget runs that MLflow does not know any more, as after its database was deleted."""
    uri = address(root)
    client: Any = None
    for cell in plan.cells:
        folder = root.cell(cell.id)
        if (known := folder.mirrored()).get("uri") == uri:
            try:
                client = client or _client(root, uri)
                client.get_run(known["run"])
            except Exception as error:  # noqa: BLE001 the classes of errors differ between stores
                if "RESOURCE_DOES_NOT_EXIST" not in str(getattr(error, "error_code", "")):
                    return  # a server that is away: the mirror will say so, and each cell would wait for it
                folder.keep_mirrored({})


class _Run:
    def __init__(self, client: Any, root: Root, uri: str, experiment: str, cell: Cell, label: str) -> None:
        self.client, self.root, self.uri, self.experiment = client, root, uri, experiment
        self.cell, self.label = cell, label
        self.folder = root.cell(cell.id)

    def bring_up_to_date(self, log_models: bool) -> None:
        """Log what is new of the cell; an interrupted call is repeated without harm."""
        status = self.folder.state().status
        known = self.folder.mirrored()
        if known.get("uri") != self.uri:
            known = self._created()
        if known.get("status") not in ("RUNNING", STATUSES[status]):
            self.client.update_run(known["run"], status="RUNNING")  # it was stopped, and goes on
        known = self._log_metrics(known)
        if status != "running":
            self._log_end(known["run"], status, log_models)
        self.folder.keep_mirrored(known | {"status": STATUSES[status], "model": log_models and status == "done"})

    def _created(self) -> dict[str, Any]:
        """Return what is known of the run, which is made if no earlier try has made it."""
        found = self.client.search_runs(
            [self.experiment], f"tags.`{ATTEMPT}` = '{self.folder.attempt()}'", max_results=1
        )
        provenance = self.folder.provenance()
        tags = {f"milbench.{key}": value for key, value in provenance.items()}
        tags |= {CELL: self.cell.id, ATTEMPT: self.folder.attempt()}
        if provenance.get("code"):
            tags["mlflow.source.git.commit"] = provenance["code"]
        start = int(1000 * (self.folder.begun or self.folder.result().get("finished", time.time())))
        run = found[0] if found else self.client.create_run(self.experiment, start, tags, run_name=self.label)
        run_id = run.info.run_id
        from mlflow.entities import Param

        params = [Param(key, str(value)) for key, value in self.cell.params().items()]
        self.client.log_batch(run_id, params=params)
        known = {"uri": self.uri, "run": run_id, "start": run.info.start_time, "status": "RUNNING"}
        known |= {"rows": 0, "load": 0}
        self.folder.keep_mirrored(known)
        return known

    def _log_metrics(self, known: dict[str, Any]) -> dict[str, Any]:
        from mlflow.entities import Metric

        history, load = self.folder.history(), self.folder.load()
        moments = _moments(known["start"], history)
        new = [Metric(name, value, moments[epoch], epoch) for epoch, name, value in history[known["rows"] :]]
        begun = load[0][0] if load else 0.0
        new += [Metric(name, value, int(1000 * at), int(at - begun)) for at, name, value in load[known["load"] :]]
        for start in range(0, len(new), 900):  # of which a server takes 1,000 at once
            self.client.log_batch(known["run"], metrics=new[start : start + 900])
        known = known | {"rows": len(history), "load": len(load)}
        self.folder.keep_mirrored(known)
        return known

    def _log_end(self, run_id: str, status: Status, log_models: bool) -> None:
        from mlflow.entities import Metric

        result, end = self.folder.result(), int(1000 * time.time())
        if result:
            end = int(1000 * result["finished"])
            epochs = self.cell.recipe["epochs"]
            by_epoch = {name for _, name, _ in self.folder.history()}
            costs = {f"cost/{name}": value for name, value in result["costs"].items()}
            totals = [Metric(name, value, end, epochs) for name, value in costs.items() if name not in by_epoch]
            self.client.log_batch(run_id, metrics=totals)
        if status != "missing":  # not before: MLflow keeps the first of two descriptions, and shapes come last
            self._log_data(run_id, classes=len(result["classes"]) if result else None)
        if reason := self.folder.failure():
            self.client.set_tag(run_id, "milbench.reason", reason[:4000])
        for path in self.folder.artifacts():
            self._log_file(run_id, path)
        if result and log_models:
            from milbench.engine.mlflow_model import write_model

            with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
                write_model(Path(scratch) / "model", self.folder, self.cell, result)
                self._log_file(run_id, Path(scratch) / "model")
        self.client.set_terminated(run_id, STATUSES[status], end)

    def _log_file(self, run_id: str, path: Path) -> None:
        """Store a file or a folder as an artifact; in the root's own, files are links where the disk can link."""
        if not self.uri.startswith("sqlite:"):
            log = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
            log(run_id, str(path), *([path.name] if path.is_dir() else []))
            return
        place = self.root.artifacts / run_id / "artifacts" / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, place, dirs_exist_ok=True)
            return
        place.unlink(missing_ok=True)
        try:
            os.link(path, place)
        except OSError:
            shutil.copyfile(path, place)

    def _log_data(self, run_id: str, classes: int | None = None) -> None:
        """Say which data the cell is computed from, with the shapes of bags and label sets once they are known."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        found = re.search(r"sha256 ([0-9a-f]+)", self.cell.data)  # MLflow keeps 36 characters, which a name may fill
        digest = (found[1] if found else self.cell.data)[:36]
        source = json.dumps({"task": self.cell.task, "params": self.cell.task_params, "data": self.cell.data})
        schema = None
        if classes is not None and self.folder.gallery.exists():
            schema = _schema(gallery.load(self.folder.gallery).batch_shape, (-1, classes))
        context = InputTag("mlflow.data.context", "training and evaluation")
        data = Dataset(self.cell.task, digest, "code", source, schema)
        self.client.log_inputs(run_id, [DatasetInput(data, [context])])


def _moments(start: int, history: Sequence[tuple[int, str, float]]) -> dict[int, int]:
    """Return when every epoch ended, in milliseconds since 1970, by the time that its training took."""
    moments, now = {}, float(start)
    for epoch, metric, value in history:
        if metric == "cost/train_seconds":
            now += 1000 * value
            moments[epoch] = int(now)
    return {epoch: moments.get(epoch, int(now)) for epoch, _, _ in history}


def _client(root: Root, uri: str) -> Any:
    """Return MLflow's client of the store, which is made where there is none."""
    import mlflow

    for name in ("mlflow", "alembic", "urllib3", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what they say is in the one line of the mirror
    logging.getLogger("alembic.runtime.migration").addFilter(_silent)  # whose level older MLflow sets anew
    if uri == address(root) and uri.startswith("sqlite:") and not root.database.exists():
        # A database that was killed while MLflow made its tables would never be opened again.
        scratch = root.database.with_name(f".{root.database.name}.{os.getpid()}")
        mlflow.MlflowClient(uri.replace(root.database.name, scratch.name)).search_experiments(max_results=1)
        with suppress(FileNotFoundError):  # another launch has made it in the meantime
            scratch.replace(root.database)
    return mlflow.MlflowClient(uri)


def _silent(_: logging.LogRecord) -> bool:
    return False


def _experiment(client: Any, name: str, is_local: bool) -> str:
    """Return the id of the experiment of a comparison, which is made where there is none."""
    found = client.get_experiment_by_name(name)
    if found is None:
        # The tag lets MLflow's pages open on runs, not on traces of language models.
        tags = {"mlflow.experimentKind": "custom_model_development"}
        try:
            return str(client.create_experiment(name, artifact_location=RELATIVE if is_local else None, tags=tags))
        except Exception:
            found = client.get_experiment_by_name(name)  # another launch was quicker
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _schema(bags: Sequence[int], labels: Sequence[int]) -> str:
    """Return the schema of a data set as MLflow's pages read it, from the shapes of a batch."""
    import numpy as np
    from mlflow.data.schema import TensorDatasetSchema
    from mlflow.types import Schema, TensorSpec

    features = Schema([TensorSpec(np.dtype("float32"), tuple(bags))])
    targets = Schema([TensorSpec(np.dtype("bool"), tuple(labels))])
    return json.dumps(TensorDatasetSchema(features, targets).to_dict())


def shown(uri: str) -> str:
    """Return an address of MLflow without the password in it."""
    return re.sub(r"://[^/@]*@", "://***@", uri)


def _one_line(error: Exception, uri: str) -> str:
    text = str(error) or type(error).__name__
    found = re.search(r"\[Errno -?\d+\] [^'\")]+|timed out|\(\w[\w.]*Error\) .+", text)
    return f"{shown(uri)}: {shown((found[0] if found else text.splitlines()[0])[:300])}"
