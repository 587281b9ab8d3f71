"""Reads an export as the store that it is a copy of, without importing it."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from milbench.api.outcomes import OUTCOMES_FILE
from milbench.errors import as_usage
from milbench.store import database
from milbench.store.artifacts import PLAN
from milbench.store.reader import StoreReader
from milbench.store.records import (
    CELL,
    KIND,
    ORIGIN,
    History,
    MetricValue,
    RunRecord,
    RunSummary,
    logged,
    metric_today,
    metrics_today,
)
from milbench.store.transfer.archive import CellCopy, LaunchCopy, Manifest, open_export
from milbench.store.workspace import Workspace

_EXPERIMENT = "0"


class ExportSource:
    """The runs of an export.

    Args:
        manifest: of the export.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._name = manifest.name
        self._runs = {copy.run_id: _record(copy) for copy in manifest.runs}
        self._histories = {copy.run_id: _history(copy) for copy in manifest.runs}

    def experiments(self) -> dict[str, str]:
        """Return the ids of the experiments by name: there is one."""
        return {self._name: _EXPERIMENT}

    def search(self, experiments: Iterable[str], tag: str, value: str) -> list[RunSummary]:
        """Return the runs whose tag has this value, the newest first."""
        found = [run for run in self._runs.values() if run.tags.get(tag) == value and _EXPERIMENT in [*experiments]]
        return sorted(found, key=lambda run: -run.start)

    def records(self, run_ids: Collection[str]) -> dict[str, RunRecord]:
        """Return runs with parameters and last values, by id."""
        return {run_id: self._runs[run_id] for run_id in run_ids}

    def histories(self, run_ids: Collection[str]) -> dict[str, History]:
        """Return every value of every metric of these runs, by the id of the run."""
        return {run_id: self._histories[run_id] for run_id in run_ids}


class ExportReader(StoreReader):
    """The runs of an export, of whose artifacts the plans and the outcomes of test bags alone can be read.

    Args:
        path: the file that `export` wrote.
        folder: an empty folder, into which these artifacts are written.

    Raises:
        UsageError: the file is damaged or of a version that this one cannot read.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        workspace = Workspace(folder)
        with open_export(path) as (archive, self._manifest), as_usage():
            _unpack(archive, self._manifest, workspace)
        super().__init__(workspace, database.address(workspace.database))
        self._path = path

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self._path)

    def _open(self) -> None:
        self._source = ExportSource(self._manifest)


@contextmanager
def opened(path: Path) -> Iterator[ExportReader]:
    """Return the runs of an export, whose artifacts are there while the block lasts.

    Raises:
        UsageError: the file is damaged or of a version that this one cannot read.
    """
    with TemporaryDirectory(prefix="milbench-") as folder:
        yield ExportReader(path, Path(folder))


def _unpack(archive: zipfile.ZipFile, manifest: Manifest, workspace: Workspace) -> None:
    """Write the artifacts that a comparison needs to where a workspace has them."""
    for copy in manifest.runs:
        folder = workspace.artifacts_of(copy.run_id)
        folder.mkdir(parents=True)
        for name in {PLAN, OUTCOMES_FILE} & {*copy.artifacts}:
            (folder / name).write_bytes(archive.read(f"{copy.run_id}/{name}"))


def _record(copy: LaunchCopy) -> RunRecord:
    kind = "cell" if isinstance(copy, CellCopy) else "launch"
    tags = {**copy.tags, KIND: kind, ORIGIN: copy.run_id}
    if isinstance(copy, CellCopy):
        tags[CELL] = copy.cell.id
    last = metrics_today({name: _value(values[-1][0]) for name, values in copy.metrics.items() if values})
    return RunRecord(
        copy.run_id, _EXPERIMENT, kind, copy.status, copy.start, copy.end, tags, params=copy.params, metrics=last
    )  # fmt: skip


def _history(copy: LaunchCopy) -> History:
    return {
        metric_today(name): [MetricValue(_value(value), moment, epoch) for value, moment, epoch in values]
        for name, values in copy.metrics.items()
    }


def _value(stored: float | None) -> float:
    return math.nan if stored is None else logged(stored)
