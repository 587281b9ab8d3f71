"""The runs of a comparison in MLflow, and its networks as MLflow's models; to import MLflow takes seconds."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.data.schema import TensorDatasetSchema
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param
from mlflow.types import ColSpec, DataType, Schema, TensorSpec

from milbench._version import __version__
from milbench.api import gallery
from milbench.api.plan import Cell, Plan
from milbench.engine.cell import CellFolder, Status
from milbench.engine.folders import Root

STATUSES: dict[Status, str] = {"done": "FINISHED", "failed": "FAILED", "running": "RUNNING", "missing": "KILLED"}
"""How MLflow calls what has become of a cell."""
ATTEMPT = "milbench.attempt"  # the tag of a run that tells it from runs of the same cell that was computed before
RELATIVE = "mlflow-artifacts:/"
"""MLflow's address for artifacts in whichever folder its server serves: it stays true when a root is moved."""

for _name in ("mlflow", "alembic", "urllib3", "mlflow.store.db.utils"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # what they say is in the one line of the mirror
logging.getLogger("alembic.runtime.migration").addFilter(lambda _: False)  # whose level older MLflow sets anew


class Runs:
    """The runs of the cells of a plan, in the MLflow at an address, which are made where there are none."""

    def __init__(self, root: Root, plan: Plan, uri: str) -> None:
        self.root, self.plan, self.uri = root, plan, uri
        self.is_local = uri.startswith("sqlite:")
        if self.is_local and not root.database.exists():
            # A database that was killed while MLflow made its tables would never be opened again.
            scratch = root.database.with_name(f".{root.database.name}.{os.getpid()}")
            made = uri.replace(root.database.name, scratch.name)
            mlflow.MlflowClient(made).search_experiments(max_results=1)
            with suppress(FileNotFoundError):  # another launch has made it in the meantime
                scratch.replace(root.database)
        self.client: Any = mlflow.MlflowClient(uri)

    def forget_lost(self) -> None:
        """Let folders forget runs that MLflow does not know any more, as after its database was deleted."""
        for folder in (self.root.cell(cell.id) for cell in self.plan.cells):
            if (known := folder.mirrored()).get("uri") == self.uri:
                try:
                    self.client.get_run(known["run"])
                except Exception as error:  # the classes of errors differ between stores
                    if "RESOURCE_DOES_NOT_EXIST" not in str(getattr(error, "error_code", "")):
                        raise  # a server that is away: each cell would wait for it
                    folder.keep_mirrored({})

    def experiment(self) -> str:
        """Return the id of the experiment of the comparison, which is made where there is none."""
        found = self.client.get_experiment_by_name(self.plan.name)
        if found is None:
            # The tag lets MLflow's pages open on runs, not on traces of language models.
            tags = {"mlflow.experimentKind": "custom_model_development"}
            place = RELATIVE if self.is_local else None
            try:
                return str(self.client.create_experiment(self.plan.name, artifact_location=place, tags=tags))
            except Exception:
                found = self.client.get_experiment_by_name(self.plan.name)  # another launch was quicker
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def update(self, experiment: str, cell: Cell, log_models: bool) -> None:
        """Log what is new of a cell; an interrupted call is repeated without harm."""
        folder = self.root.cell(cell.id)
        status = folder.state().status
        known = folder.mirrored()
        if known.get("uri") != self.uri:
            known = self._created(experiment, cell, folder)
        if known.get("status") not in ("running", status):
            self.client.update_run(known["run"], status="RUNNING")  # it was stopped, and goes on
        known |= self._log_metrics(folder, known)
        folder.keep_mirrored(known)
        if status != "running":
            self._log_end(cell, folder, known["run"], status, log_models)
        folder.keep_mirrored(known | {"status": status, "model": log_models and status == "done"})

    def _created(self, experiment: str, cell: Cell, folder: CellFolder) -> dict[str, Any]:
        """Return what is known of the run, which is made if no earlier try has made it."""
        tags = {f"milbench.{key}": value for key, value in folder.provenance().items()}
        tags |= {"milbench.cell": cell.id, ATTEMPT: folder.attempt()}
        if code := tags.get("milbench.code"):
            tags["mlflow.source.git.commit"] = code
        start = int(1000 * (folder.begun or folder.result().get("finished", time.time())))
        found = self.client.search_runs([experiment], f"tags.`{ATTEMPT}` = '{folder.attempt()}'", max_results=1)
        run = found[0] if found else self.client.create_run(experiment, start, tags, run_name=self.plan.label(cell))
        params = [Param(key, str(value)) for key, value in cell.params().items()]
        self.client.log_batch(run.info.run_id, params=params)
        known = {"uri": self.uri, "run": run.info.run_id, "start": run.info.start_time, "status": "running"}
        known |= {"rows": 0, "load": 0}
        folder.keep_mirrored(known)
        return known

    def _log_metrics(self, folder: CellFolder, known: Mapping[str, Any]) -> dict[str, int]:
        """Log what is new in the history of a cell and in the load of its machine; return how many rows these have."""
        history, load = folder.history(), folder.load()
        moments = _moments(known["start"], history)
        new = [Metric(name, value, moments[epoch], epoch) for epoch, name, value in history[known["rows"] :]]
        new += [Metric(name, value, at, (at - load[0][0]) // 1000) for at, name, value in load[known["load"] :]]
        for start in range(0, len(new), 900):  # of which a server takes 1,000 at once
            self.client.log_batch(known["run"], metrics=new[start : start + 900])
        return {"rows": len(history), "load": len(load)}

    def _log_end(self, cell: Cell, folder: CellFolder, run_id: str, status: Status, log_models: bool) -> None:
        result, end = folder.result(), int(1000 * time.time())
        if result:
            end = int(1000 * result["finished"])
            by_epoch = {name for _, name, _ in folder.history()}
            costs = {f"cost/{name}": value for name, value in result["costs"].items()}
            totals = [
                Metric(name, value, end, cell.recipe["epochs"]) for name, value in costs.items() if name not in by_epoch
            ]
            self.client.log_batch(run_id, metrics=totals)
        if status != "missing":  # not before: MLflow keeps the first of two descriptions, and shapes come last
            self.client.log_inputs(run_id, [_data(cell, folder, result.get("classes"))])
        if reason := folder.failure():
            self.client.set_tag(run_id, "milbench.reason", reason[:4000])
        for path in folder.artifacts():
            self._log_file(run_id, path)
        if result and log_models:
            with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
                write_model(Path(scratch) / "model", folder, cell, result)
                self._log_file(run_id, Path(scratch) / "model")
        self.client.set_terminated(run_id, STATUSES[status], end)

    def _log_file(self, run_id: str, path: Path) -> None:
        """Store a file or a folder as an artifact; in the root's own, files are links where the disk can link."""
        place = self.root.artifacts / run_id / "artifacts" / path.name
        if not self.is_local:
            log = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
            log(run_id, str(path), *([path.name] if path.is_dir() else []))
        elif path.is_dir():
            shutil.copytree(path, place, dirs_exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            try:
                os.link(path, place)
            except OSError:
                shutil.copyfile(path, place)


def _data(cell: Cell, folder: CellFolder, classes: Sequence[str] | None) -> DatasetInput:
    """Return which data a cell is computed from, with the shapes of bags and label sets where these are known."""
    found = re.search(r"sha256 ([0-9a-f]+)", cell.data)  # MLflow keeps 36 characters, which a name may fill
    digest = (found[1] if found else cell.data)[:36]
    source = json.dumps({"task": cell.task, "params": cell.task_params, "data": cell.data})
    schema = None
    if classes is not None and folder.gallery.exists():
        bags = Schema([TensorSpec(np.dtype("float32"), gallery.load(folder.gallery).batch_shape)])
        labels = Schema([TensorSpec(np.dtype("bool"), (-1, len(classes)))])
        schema = json.dumps(TensorDatasetSchema(bags, labels).to_dict())
    context = InputTag("mlflow.data.context", "training and evaluation")
    return DatasetInput(Dataset(cell.task, digest, "code", source, schema), [context])


def _moments(start: int, history: Sequence[tuple[int, str, float]]) -> dict[int, int]:
    """Return when every epoch ended, in milliseconds since 1970, by the time that its training took."""
    moments, now = {}, float(start)
    for epoch, metric, value in history:
        if metric == "cost/train_seconds":
            now += 1000 * value
            moments[epoch] = int(now)
    return {epoch: moments.get(epoch, int(now)) for epoch, _, _ in history}


def write_model(place: Path, folder: CellFolder, cell: Cell, result: Mapping[str, Any]) -> None:
    """Write a new folder that `mlflow.pyfunc.load_model` loads where milbench is, without the folder of the cell."""
    from mlflow import pyfunc
    from mlflow.models import ModelSignature

    shown = gallery.load(folder.gallery)
    example = shown.one_bag()
    with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
        data = Path(scratch) / "network"
        data.mkdir()
        for path in (folder.weights, folder.memory):
            if path.exists():
                shutil.copyfile(path, data / path.name)
        inside: dict[str, Any] = {}
        for kind, given in (("loss", cell.loss_file), ("task", cell.task_file), ("network", cell.network_file)):
            file, colon, member = given.partition(":")
            if file.endswith(".py"):
                (data / kind).mkdir()
                shutil.copyfile(file, data / kind / Path(file).name)
                inside[f"{kind}_file"] = f"{kind}/{Path(file).name}{colon}{member}"
        CellFolder(data).begin(replace(cell, **inside), folder.label(), provenance={})
        CellFolder(data).finish(result)
        columns = [("labels", "string"), ("probability", "double")]  # as milbench.inference.saved_model returns them
        columns += [(f"presence {name}", "double") for name in result["classes"]]
        pyfunc.save_model(
            place,
            loader_module="milbench.inference.saved_model",
            data_path=str(data),
            signature=ModelSignature(
                Schema([TensorSpec(example.dtype, shown.batch_shape)]),
                Schema([ColSpec(DataType[kind], name) for name, kind in columns]),
            ),
            input_example=example,
            pip_requirements=[f"milbench=={__version__}"],
        )
