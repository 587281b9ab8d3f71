"""Runs in MLflow: the only module that imports MLflow. Its results are the records of `milbench.store.records`.

Every call names its run: MLflow's fluent interface keeps the current run in global state.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milbench.errors import StoreAwayError, StoreError
from milbench.store.records import (
    History,
    MetricValue,
    RunRecord,
    RunSummary,
    logged,
    metric_today,
    metrics_today,
    without_password,
)
from milbench.store.sqlite_source import SECONDS_LOCKED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
# MLflow's defaults wait minutes for a server that is gone.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")

PAGE = 1000
"""How many runs a server is asked for at once."""
CALLS_AT_ONCE = 8
"""How many calls to a server wait for their answers at the same time."""


class RunClient:
    """Experiments and runs of one MLflow store, a database file or a server.

    Every method raises StoreError where the store fails, and StoreAwayError where its server does not answer.
    """

    def __init__(self, uri: str) -> None:
        import mlflow

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        # What these say is in the StoreError; a run does without system metrics.
        for name in ("urllib3", "mlflow.store.db.utils", "mlflow.system_metrics"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        # Otherwise a server's client prints the address of every run that ends.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        self.uri = uri
        # A client makes the tables of a new database, on a disk that may be full.
        self._client: Any = _Calls(_guarded(mlflow.MlflowClient, uri)(uri), uri)

    # -- experiments --------------------------------------------------------------------------------------------

    def experiments(self) -> dict[str, str]:
        """Return the ids of the experiments by name."""
        found: dict[str, str] = {}
        token = None
        while True:
            page = self._client.search_experiments(max_results=PAGE, page_token=token)
            found |= {str(e.name): str(e.experiment_id) for e in page}
            token = page.token
            if not token:
                return found

    def make_experiment(self, name: str, artifacts: str | None) -> str:
        """Create an experiment, or find the one of that name; return its id.

        Args:
            name: its name.
            artifacts: URI of the folder for artifacts of its runs; None leaves that to the server.
        """
        try:
            return str(self._client.create_experiment(name, artifact_location=artifacts))
        except StoreAwayError:
            raise
        except StoreError:  # another launch was quicker, or the experiment was deleted in MLflow's pages
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            return str(found.experiment_id)

    # -- reading runs -------------------------------------------------------------------------------------------

    def search(self, experiments: Iterable[str], tag: str, value: str) -> list[RunSummary]:
        """Return the runs in these experiments (ids) whose tag has this value, the newest first."""
        runs: list[RunSummary] = []
        token = None
        while True:
            page = self._client.search_runs(
                list(experiments),
                f"tags.`{tag}` = '{value}'",
                max_results=PAGE,
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            runs += map(_record, page)
            token = page.token
            if not token:
                return runs

    def records(self, run_ids: Collection[str]) -> dict[str, RunRecord]:
        """Return runs with parameters and last values, by id."""
        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            return {run.info.run_id: _record(run) for run in pool.map(self._client.get_run, run_ids)}

    def histories(self, run_ids: Collection[str]) -> dict[str, History]:
        """Return every value of every metric of these runs, by the id of the run."""
        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            return dict(zip(run_ids, pool.map(self._history, run_ids), strict=True))

    def _history(self, run_id: str) -> History:
        found: dict[str, list[MetricValue]] = {}
        for stored in sorted(self._client.get_run(run_id).data.metrics):
            values = [
                MetricValue(logged(m.value), m.timestamp, m.step)
                for m in self._client.get_metric_history(run_id, stored)
            ]
            found.setdefault(metric_today(stored), []).extend(values)
        # A server does not tell the order of writing.
        return {metric: sorted(values, key=lambda v: v.time) for metric, values in found.items()}

    def artifact_sizes(self, run_id: str) -> dict[str, int]:
        """Return the sizes in bytes of the files among a run's artifacts, by name."""
        return {
            str(found.path): int(found.file_size) for found in self._client.list_artifacts(run_id) if not found.is_dir
        }

    def download(self, run_id: str, name: str, folder: str | None) -> Path:
        """Return the path of an artifact: a copy in `folder`, or the file itself in a local store where it is None.

        Args:
            run_id: id of the run.
            name: name of the artifact.
            folder: where the copy is written; None: the file itself in a local store, a temporary copy from a server.

        Returns:
            The path of the file on this machine.
        """
        return Path(self._client.download_artifacts(run_id, name, folder))

    # -- writing runs -------------------------------------------------------------------------------------------

    def create(
        self, experiment: str, tags: Mapping[str, str], name: str | None = None, start: int | None = None
    ) -> str:
        """Create a run and return its id.

        Args:
            experiment: id of its experiment.
            tags: its tags.
            name: its name; where it is None, the tags hold it or MLflow makes one up.
            start: when it began, in milliseconds since 1970; now if None.

        Returns:
            The id of the new run.
        """
        return str(self._client.create_run(experiment, start, dict(tags), run_name=name).info.run_id)

    def set_status(self, run_id: str, status: str) -> None:
        """Set the status of a run that has not ended."""
        self._client.update_run(run_id, status=status)

    def end(self, run_id: str, status: str, end: int | None = None) -> None:
        """Close a run.

        Args:
            run_id: its id.
            status: FINISHED, FAILED or KILLED.
            end: when it ended, in milliseconds since 1970; now if None.
        """
        self._client.set_terminated(run_id, status, end)

    def delete(self, run_id: str) -> None:
        """Mark a run as deleted: no search finds it any more; its artifacts stay."""
        self._client.delete_run(run_id)

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, all of them or none."""
        from mlflow.entities import RunTag

        self._client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()])

    def log(self, run_id: str, params: Mapping[str, str], metrics: Iterable[tuple[str, MetricValue]] = ()) -> None:
        """Log parameters and values of metrics.

        Args:
            run_id: id of the run.
            params: parameters by name.
            metrics: pairs of a metric's name and a value; a name may occur many times.
        """
        from mlflow.entities import Metric, Param

        self._client.log_batch(
            run_id, [Metric(name, *value) for name, value in metrics], [Param(*param) for param in params.items()]
        )

    def log_data(self, run_id: str, name: str, digest: str, source: str, shapes: Sequence[Sequence[int]] = ()) -> None:
        """Log which data a run is computed from: their name, digest and source, which MLflow's pages show.

        Args:
            run_id: id of the run.
            name: name of the data set or the task.
            digest: digest of the data; MLflow keeps the first 36 characters.
            source: where the data are from, as JSON.
            shapes: of a batch of bags and of its label sets, -1 where sizes may differ; (): not known.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        schema = _schema(*shapes) if shapes else None
        context = InputTag("mlflow.data.context", "training and evaluation")
        given = [DatasetInput(Dataset(name, digest[:36], "code", source, schema), [context])]
        try:
            self._client.log_inputs(run_id, given)
        except StoreAwayError:
            raise
        except StoreError:  # another process has recorded the same data at the same time: they are there now
            self._client.log_inputs(run_id, given)

    def log_text(self, run_id: str, text: str, name: str) -> None:
        """Store a text as an artifact.

        Args:
            run_id: id of the run.
            text: the content.
            name: name of the artifact, with its ending.
        """
        self._client.log_text(run_id, text, name)

    def log_file(self, run_id: str, path: Path) -> None:
        """Store a copy of a file as an artifact."""
        self._client.log_artifact(run_id, str(path))

    def log_folder(self, run_id: str, path: Path) -> None:
        """Store a copy of a folder and what is in it as an artifact."""
        self._client.log_artifacts(run_id, str(path), path.name)

    @contextmanager
    def system_metrics(self, run_id: str) -> Iterator[None]:
        """Log processor, memory and GPU use of this machine to a run while the block lasts."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=self.uri)
        monitor.start()
        try:
            yield
        finally:
            monitor.finish()


def _schema(bags: Sequence[int], labels: Sequence[int]) -> str:
    """Return the schema of a data set as MLflow's pages read it, from the shapes of a batch."""
    import numpy as np
    from mlflow.data.schema import TensorDatasetSchema
    from mlflow.types import Schema, TensorSpec

    features = Schema([TensorSpec(np.dtype("float32"), tuple(bags))])
    targets = Schema([TensorSpec(np.dtype("bool"), tuple(labels))])
    return json.dumps(TensorDatasetSchema(features, targets).to_dict())


def write_model(
    folder: Path,
    data: Path,
    loader: str,
    shape: tuple[int, ...],
    columns: Iterable[tuple[str, str]],
    example: NDArray[np.float32],
    requirements: list[str],
) -> None:
    """Write a folder that `mlflow.pyfunc.load_model` loads.

    Args:
        folder: the folder to write.
        data: the folder that the loader reads, which is copied.
        loader: the module that loads it.
        shape: of the float32 array that the model takes, -1 where sizes may differ.
        columns: names and MLflow types of the table that it returns.
        example: an input.
        requirements: what pip installs for it.
    """
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    outputs = Schema([ColSpec(DataType[kind], name) for name, kind in columns])
    signature = ModelSignature(Schema([TensorSpec(example.dtype, shape)]), outputs)
    mlflow.pyfunc.save_model(
        folder,
        loader_module=loader,
        data_path=str(data),
        signature=signature,
        input_example=example,
        pip_requirements=requirements,
    )


def preload() -> None:
    """Import what opening and writing a store needs, without opening one."""
    import mlflow.store.tracking.sqlalchemy_store

    _ = mlflow


def version() -> str:
    """Return the version of MLflow."""
    return metadata.version("mlflow")


@cache
def schema() -> str:
    """Return the name of the newest schema of a database that this MLflow knows; it reads 70 files for it."""
    from mlflow.store.db.utils import _get_latest_schema_revision

    return str(_get_latest_schema_revision())


def create_database(uri: str) -> None:
    """Make the tables of an empty database that nobody uses yet: it is safe on the disk when this returns.

    MLflow makes them in hundreds of transactions, and each would wait for the disk.

    Args:
        uri: address of the file, which does not exist.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    path = uri.removeprefix("sqlite:///")

    def wait_for_no_disk(connection: Any, _: object) -> None:
        opened = connection.execute("pragma database_list") if isinstance(connection, sqlite3.Connection) else []
        if any(os.path.realpath(file) == os.path.realpath(path) for _, _, file in opened):
            connection.execute("pragma synchronous = off")
            connection.execute("pragma journal_mode = memory")

    event.listen(Engine, "connect", wait_for_no_disk)
    try:
        RunClient(uri).experiments()
    finally:
        event.remove(Engine, "connect", wait_for_no_disk)
    with Path(path).open("rb+") as file:
        os.fsync(file.fileno())


def upgrade_database(uri: str) -> str:
    """Upgrade the tables of a database; return "", or in one line why that failed."""
    words = [sys.executable, "-m", "mlflow", "db", "upgrade", uri]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:300]


def serve(uri: str, artifacts: Path, listener: socket.socket) -> None:
    """Serve MLflow's pages on a database until Ctrl-C or another signal ends this process.

    This process itself is the server. `mlflow server` starts ten others: they take twice as long to answer, and they
    outlive a parent that is killed.

    Args:
        uri: address of the database.
        artifacts: the folder that holds the artifacts of experiments whose location is `mlflow-artifacts:/`.
        listener: a socket that listens on this machine.
    """
    import uvicorn
    from mlflow.server import constants

    # In these variables `mlflow server` hands its options on to the process that answers.
    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = uri
    os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
    os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = artifacts.as_uri()
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    warnings.simplefilter("ignore")  # about libraries that MLflow uses
    # A request that is still open does not keep a server alive that was told to stop.
    config = uvicorn.Config("mlflow.server.fastapi_app:app", log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])


class _Calls:
    """Calls the methods of MLflow's client, and raises StoreError where one of them fails.

    Args:
        client: MLflow's.
        uri: address of the store.
    """

    def __init__(self, client: Any, uri: str) -> None:
        self._client, self._uri = client, uri

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _guarded(getattr(self._client, name), self._uri)


def _guarded(method: Callable[..., Any], uri: str) -> Callable[..., Any]:
    """Return what calls a method of MLflow's, waits while the database is locked, and raises StoreError for a failure.

    Args:
        method: what is called.
        uri: address of the store.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    def call(*args: Any, **options: Any) -> Any:
        end = time.monotonic() + SECONDS_LOCKED
        while True:
            try:
                return method(*args, **options)
            except (MlflowException, SQLAlchemyError, OSError) as error:
                # MLflow lets SQLite wait for 20 seconds, whatever the address of the database says.
                if "database is locked" not in str(error) or time.monotonic() > end:
                    raise _store_error(error, uri) from error

    return call


def _store_error(error: Exception, uri: str) -> StoreError:
    """Return what MLflow's client raised as an error of one line."""
    text = str(error)
    status = error.get_http_status_code() if hasattr(error, "get_http_status_code") else 500
    if uri.startswith("sqlite:") or not (status >= 500 or status in (408, 429)):
        found = re.search(r"\(\w[\w.]*Error\) (.+)", text)  # of the database, inside the text of SQLAlchemy
        reason = found[1] if found else text.splitlines()[0]
        return StoreError(f"the store {without_password(uri)} failed: {reason[:500]}")
    found = re.search(r"\[Errno -?\d+\] ([^'\")]+)|(timed out)|too many (\d+ error) responses", text)
    reason = next(filter(None, found.groups())) if found else text.splitlines()[0][:300]
    return StoreAwayError(f"the server {without_password(uri)} does not answer: {reason}")


def _record(run: Any) -> RunRecord:
    info, data = run.info, run.data
    return RunRecord(
        run_id=str(info.run_id),
        experiment_id=str(info.experiment_id),
        name=str(info.run_name),
        status=str(info.status),
        start=int(info.start_time),
        end=info.end_time,
        tags=dict(data.tags),
        params=dict(data.params),
        metrics=metrics_today(data.metrics),
    )
