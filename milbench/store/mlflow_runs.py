"""The runs of a comparison in MLflow, and its networks as models of MLflow.

Importing MLflow takes seconds, so this module is imported only where something is copied.
"""

import json
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from numpy.typing import NDArray

from milbench._utils.addresses import address_digest
from milbench._utils.files import file_and_member
from milbench._version import __version__
from milbench.contracts.resolver import resolve
from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.choices import TaskChoice
from milbench.experiment.plan import Plan
from milbench.networks.known_networks import registries
from milbench.store import gallery
from milbench.store.cell_folder import CellFolder, CellResult, Row, Status
from milbench.store.folders import Root
from milbench.store.mirror import database_of

STATUSES: dict[Status, str] = {
    "done": "FINISHED",
    "failed": "FAILED",
    "running": "RUNNING",
    "missing": "KILLED",
    "unreadable": "KILLED",
}
ATTEMPT = "milbench.attempt"
"""The tag of a run that tells it from earlier runs of the same cell.

A cell has several runs where it was computed again.
"""
MOST_METRICS = 900
"""The most metrics that are sent at once. A server takes 1,000."""
MOST_CHARACTERS = 4000
"""The most characters of a reason that are sent.

MLflow cuts or refuses longer tags. Its limit depends on its version.
"""
DIGEST_LENGTH = 36
"""The most characters of the digest of a data set that MLflow keeps."""

# The mirror reports errors in one line, so these libraries need not log them. Their messages may
# also quote an address with a password.
for _name in ("mlflow", "alembic", "sqlalchemy", "urllib3", "requests", "mlflow.store.db.utils"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=rf"{_name}(\.|$)")
# Older versions of MLflow set the level of this logger anew.
logging.getLogger("alembic.runtime.migration").addFilter(lambda _: False)


class Runs:
    """The runs of the cells of a plan, in the MLflow at an address.

    A database that does not exist yet is made.
    """

    def __init__(self, root: Root, plan: Plan, uri: str) -> None:
        self.root = root
        self.plan = plan
        self.uri = uri
        self.server = address_digest(uri)
        self.is_local = uri.startswith("sqlite:")
        database = database_of(uri)
        if database is not None and not database.exists():
            _make_database(uri, database)
        self.client: Any = mlflow.MlflowClient(uri)

    def forget_lost(self) -> None:
        """Let folders forget runs that MLflow has lost, such as with a deleted database."""
        for cell in self.plan.cells:
            folder = self.root.cell(cell.id)
            record = folder.mirrored()
            if record.get("server") != self.server:
                continue
            try:
                self.client.get_run(record["run"])
            except Exception as error:
                # The class of the error differs between databases and servers, but not its code.
                # Any other error ends the loop: if a server is away, each cell would wait for it.
                if "RESOURCE_DOES_NOT_EXIST" not in str(getattr(error, "error_code", "")):
                    raise
                folder.keep_mirrored({})

    def experiment(self) -> str:
        """Return the id of the experiment of the comparison; create it if there is none."""
        existing = self.client.get_experiment_by_name(self.plan.name)
        if existing is None:
            # With this tag MLflow's pages first show runs, not traces of language models.
            tags = {"mlflow.experimentKind": "custom_model_development"}
            # An address relative to the folder that MLflow serves stays true when a root is moved.
            location = "mlflow-artifacts:/" if self.is_local else None
            return str(
                self.client.create_experiment(self.plan.name, artifact_location=location, tags=tags)
            )
        if existing.lifecycle_stage == "deleted":
            self.client.restore_experiment(existing.experiment_id)
        return str(existing.experiment_id)

    def update(self, experiment: str, cell: Cell, log_models: bool) -> None:
        """Log the changes of a cell; an interrupted call can be repeated."""
        folder = self.root.cell(cell.id)
        state = folder.state(weights=True)
        if state.problem:
            raise UsageError(f"cell {cell.id} ({self.plan.label(cell)}) is {state.problem}")
        status = state.status
        record = folder.mirrored()
        if record.get("server") != self.server:
            record = self._create_run(experiment, cell, folder)
        if record.get("status") not in ("running", status):
            # MLflow has the run as ended: the cell was stopped, and has gone on since.
            self.client.update_run(record["run"], status="RUNNING")
        history = folder.history()
        self._log_metrics(record, history)
        record = record | {"rows": len(history)}
        # Kept before the end is logged: if logging the end is interrupted, no row is sent twice.
        folder.keep_mirrored(record)
        if status != "running":
            self._log_end(cell, folder, record["run"], status, log_models)
        folder.keep_mirrored(record | {"status": status, "model": log_models and status == "done"})

    def _log_metrics(self, record: Mapping[str, Any], history: list[Row]) -> None:
        """Log the rows of a history that, by the folder's record, are not in MLflow yet."""
        ends = _ends_of_epochs(history, record["start"])
        metrics = []
        for epoch, name, value in history[record["rows"] :]:
            metrics.append(Metric(name, value, ends[epoch], epoch))
        for start in range(0, len(metrics), MOST_METRICS):
            self.client.log_batch(record["run"], metrics=metrics[start : start + MOST_METRICS])

    def _create_run(self, experiment: str, cell: Cell, folder: CellFolder) -> dict[str, Any]:
        """Create the run of a cell, unless an earlier try has created it.

        Returns the record about the run, which the folder of the cell keeps.
        """
        about = folder.about()
        tags = {f"milbench.{key}": value for key, value in about["provenance"].items()}
        tags |= {"milbench.cell": cell.id, ATTEMPT: about["attempt"]}
        code = tags.get("milbench.code")
        if code:
            tags["mlflow.source.git.commit"] = code
        begun = folder.begun or folder.result().get("finished", time.time())
        start = int(1000 * begun)
        existing = self.client.search_runs(
            [experiment], f"tags.`{ATTEMPT}` = '{about['attempt']}'", max_results=1
        )
        if existing:
            run = existing[0]
        else:
            name = self.plan.label(cell)
            run = self.client.create_run(experiment, start, tags, run_name=name)
        params = [Param(key, str(value)) for key, value in cell.params().items()]
        self.client.log_batch(run.info.run_id, params=params)
        record = {
            "server": self.server,
            "run": run.info.run_id,
            "start": run.info.start_time,
            "status": "running",
            "rows": 0,
        }
        folder.keep_mirrored(record)
        return record

    def _log_end(
        self, cell: Cell, folder: CellFolder, run_id: str, status: Status, log_models: bool
    ) -> None:
        """Log the costs, the data, the files and the end of a cell that is not running."""
        result = folder.result()
        end = int(1000 * time.time())
        if result:
            end = int(1000 * result["finished"])
            self._log_costs(run_id, folder, result["costs"], end, cell.recipe.epochs)
        self._log_data(run_id, cell.task)
        reason = folder.failure()
        if reason:
            self.client.set_tag(run_id, "milbench.reason", reason[:MOST_CHARACTERS])
        for path in folder.artifacts():
            self._log_file(run_id, path)
        if result and log_models:
            with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
                write_model(Path(scratch) / "model", folder, cell, result)
                self._log_file(run_id, Path(scratch) / "model")
        self.client.set_terminated(run_id, STATUSES[status], end)

    def _log_data(self, run_id: str, task: TaskChoice) -> None:
        """Log the data of a task by their digest."""
        # MLflow keeps only `DIGEST_LENGTH` characters, which a name before the SHA-256 could fill.
        sha256 = re.search(r"sha256 ([0-9a-f]+)", task.data)
        digest = sha256[1] if sha256 else task.data
        source = json.dumps({"task": task.name, "params": dict(task.params), "data": task.data})
        context = InputTag("mlflow.data.context", "training and evaluation")
        data = Dataset(task.name, digest[:DIGEST_LENGTH], "code", source)
        self.client.log_inputs(run_id, [DatasetInput(data, [context])])

    def _log_costs(
        self, run_id: str, folder: CellFolder, costs: Mapping[str, float], end: int, epochs: int
    ) -> None:
        """Log the costs of the whole training.

        Costs that were logged by epoch under the same name are left out.
        """
        by_epoch = {name for _, name, _ in folder.history()}
        metrics = []
        for cost, value in costs.items():
            name = f"cost/{cost}"
            if name not in by_epoch:
                metrics.append(Metric(name, value, end, epochs))
        self.client.log_batch(run_id, metrics=metrics)

    def _log_file(self, run_id: str, path: Path) -> None:
        """Store a file or a folder as an artifact of a run.

        In the root's own folder of artifacts, a file is a hard link to the file of the cell, where
        the disk has hard links.
        """
        artifact = self.root.artifacts / run_id / "artifacts" / path.name
        if not self.is_local:
            self.client.log_artifact(run_id, str(path))
        elif path.is_dir():
            shutil.copytree(path, artifact, dirs_exist_ok=True)
        else:
            artifact.parent.mkdir(parents=True, exist_ok=True)
            artifact.unlink(missing_ok=True)
            try:
                os.link(path, artifact)
            except OSError:
                # The disk has no hard links.
                shutil.copyfile(path, artifact)


def _make_database(uri: str, database: Path) -> None:
    """Let MLflow make a database with its tables.

    It has another name until it is whole: MLflow could not open a database that was left half made
    when its process was killed.
    """
    scratch = database.with_name(f".{database.name}.{os.getpid()}")
    address = uri.replace(database.name, scratch.name)
    # The first request makes the tables.
    mlflow.MlflowClient(address).search_experiments(max_results=1)
    # Another launch may have made the database in the meantime, and removed this one.
    with suppress(FileNotFoundError):
        scratch.replace(database)


def _ends_of_epochs(history: list[Row], start: int) -> dict[int, int]:
    """Return epoch -> when it ended, in milliseconds since 1970, as `start` is.

    The times are the sums of the seconds of training, so that evaluations take no time.
    """
    ends = {}
    now = float(start)
    for epoch, name, value in history:
        if name == "cost/train_seconds":
            now += 1000 * value
        ends[epoch] = int(now)
    return ends


def write_model(model: Path, folder: CellFolder, cell: Cell, result: CellResult) -> None:
    """Write the network of a cell to a new folder, `model`, for `mlflow.pyfunc.load_model`.

    Loading needs milbench, but not the folder of the cell.
    """
    from mlflow import pyfunc

    test_bags = gallery.load(folder.gallery)
    example = test_bags.one_bag()
    with tempfile.TemporaryDirectory(prefix="milbench-") as scratch:
        data = Path(scratch) / "network"
        code = Path(scratch) / "code"
        data.mkdir()
        for path in (folder.weights, folder.memory):
            if path.exists():
                shutil.copyfile(path, data / path.name)
        sources, copies = _packed_plugins(cell, data, code)
        packed = CellFolder(data)
        packed.begin(cell.with_sources(sources), folder.about()["label"], provenance={})
        packed.write_result(result)
        for copy, original in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original, copy)
        code_paths = [str(path) for path in code.glob("*")]
        pyfunc.save_model(
            model,
            loader_module="milbench.inference.saved_model",
            data_path=str(data),
            input_example=example,
            signature=_signature(test_bags, example, result["classes"]),
            pip_requirements=[f"milbench=={__version__}"],
            code_paths=code_paths or None,
        )


def _packed_plugins(cell: Cell, data: Path, code: Path) -> tuple[dict[str, str], dict[Path, Path]]:
    """Say how the plug-ins of a cell are packed into a model.

    Args:
        cell: the cell, whose loss, task and network may be files of a user.
        data: the folder in the model for the network, the files of plug-ins and files beside them.
        code: the folder in the model for modules that Python imports by their names.

    Returns:
        Kind of a plug-in -> its source, relative to `data`; and copy -> original, for every file
        that has to be copied.
    """
    sources: dict[str, str] = {}
    copies: dict[Path, Path] = {}
    for kind, choice in cell.choices.items():
        file, member = file_and_member(choice.source)
        if not file:
            continue
        plugin = Path(file)
        copy_of_plugin = data / kind / plugin.name
        copies[copy_of_plugin] = plugin
        reference = f"{kind}/{plugin.name}"
        sources[kind] = f"{reference}:{member}" if member else reference
        registry = registries()[kind]
        entry = registry.entry(resolve(registry, choice.source))
        for used in map(Path, entry.record.files):
            for copy in _copies_of_used(used, plugin, copy_of_plugin, code):
                copies[copy] = used
    return sources, copies


def _signature(
    test_bags: gallery.Gallery, example: NDArray[np.float32], classes: list[str]
) -> ModelSignature:
    """Return the types of a batch of bags, and of what `milbench.inference.saved_model` returns."""
    columns = [("labels", "string"), ("probability", "double")]
    columns += [(f"presence {name}", "double") for name in classes]
    inputs = Schema([TensorSpec(example.dtype, test_bags.batch_shape)])
    outputs = Schema([ColSpec(DataType[kind], name) for name, kind in columns])
    return ModelSignature(inputs, outputs)


def _copies_of_used(used: Path, plugin: Path, copy_of_plugin: Path, code: Path) -> Iterator[Path]:
    """Yield the paths of the copies of a file that a plug-in uses.

    A file in the folder of the plug-in is copied beside the copy of the plug-in. A module from
    elsewhere is copied into `code`, where it has the same path as below the folder from which
    Python imports it.
    """
    folder = plugin.parent
    is_beside = used.is_relative_to(folder)
    if is_beside:
        yield copy_of_plugin.parent / used.relative_to(folder)
    import_folders = {Path(entry).resolve() for entry in sys.path}
    roots = [root for root in import_folders if used.is_relative_to(root)]
    if not roots:
        return
    nearest = max(roots, key=lambda root: len(root.parts))
    # A plug-in may add a folder inside its own folder to `sys.path`: its file lib/tool.py is then
    # the module `tool`. The copy in lib/ cannot be imported under that name.
    if not is_beside or len(nearest.parts) > len(folder.parts):
        yield code / used.relative_to(nearest)
