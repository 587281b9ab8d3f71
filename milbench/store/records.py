"""What the store keeps of a run, as plain data, and the names of the tags that milbench gives to runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

from milbench.api.metric_info import RENAMED_METRICS

KIND = "milbench.kind"
"""What a run stands for: a launch, a cell, an import lease, or a copy that is not complete yet."""
CELL = "milbench.cell"
"""The content hash of the cell that a run computes."""
HOST, ROOT = "milbench.host", "milbench.root"
"""The machine and the workspace of a run: its lock, which shows whether it is alive, is visible only there."""
WORKSPACE = "milbench.workspace"
"""The id of the workspace, from a file in it: who sees the file sees the locks. Older runs have HOST and ROOT alone."""
REASON = "milbench.reason"
"""Why a run failed or was closed."""
SOURCE = "milbench.source"
"""Where the plan of a launch comes from: a spec, or the flags of the command line."""
COMMAND = "milbench.command"
"""The command of a launch."""
COMMITS = "milbench.commits"
"""The git commits of the folder that a launch was started in and of its plug-in files, see `provenance.commits`."""
CODE = "milbench.code"
"""The git commit of milbench itself by which a cell was computed, "" where it was not run from a checkout."""
VERSION = "milbench.version"
"""The version of milbench by which a cell was computed."""
DECODED_BY = "milbench.decoder"
"""The name of the decoder that a cell of strings has chosen on validation bags."""
RESUMED = "milbench.resumed"
"""When and where a cell that was interrupted went on the last time."""
STARTED_OVER = "milbench.started_over"
"""Why a cell that was interrupted did not go on where it had stopped."""
MICRO_BATCH = "milbench.micro_batch"
"""From which step on, and in which parts, a batch that did not fit into memory was computed."""
DEVICE = "milbench.device"
"""The device of a run. A run gets this tag when a worker starts to compute it: its presence marks a started run."""
PARENT = "mlflow.parentRunId"
"""The launch of a cell's run: MLflow's own tag, by which its pages nest the run below the launch."""
ORIGIN = "milbench.origin_run"
"""A tag of an imported run: the id that it had in the store where it was made."""
OPEN = ("RUNNING", "SCHEDULED")
"""The states of a run that has not ended; the others are FINISHED, FAILED and KILLED."""


class MetricValue(NamedTuple):
    """One value of a metric, its time in milliseconds since 1970, and its epoch."""

    value: float
    time: int
    epoch: int


def logged(stored: float) -> float:
    """Return what was logged: MLflow keeps the largest double in place of an infinite value."""
    return math.copysign(math.inf, stored) if abs(stored) >= sys.float_info.max else stored


@dataclass(frozen=True)
class RunSummary:
    """What a run is and how it stands, without what it computed.

    Args:
        run_id: MLflow's id of the run.
        experiment_id: MLflow's id of its experiment.
        name: its name.
        status: RUNNING, SCHEDULED, FINISHED, FAILED or KILLED.
        start: when it began, in milliseconds since 1970.
        end: when it ended, in milliseconds since 1970; None for a run that is open.
        tags: tags by name.
    """

    run_id: str
    experiment_id: str
    name: str
    status: str
    start: int
    end: int | None
    tags: Mapping[str, str]

    @property
    def is_open(self) -> bool:
        """True if the run has not ended."""
        return self.status in OPEN


@dataclass(frozen=True)
class RunRecord(RunSummary):
    """A run as the store has it.

    Args:
        params: parameters by name.
        metrics: the last value of each metric, by its name of today.
    """

    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


History = Mapping[str, list[MetricValue]]
"""Every value of every metric of a run, by its name of today, in the order in which they were logged."""


class RunSource(Protocol):
    """Reads the experiments and runs of a store: a database file, or a server."""

    def experiments(self) -> dict[str, str]:
        """Return the ids of the experiments by name."""

    def search(self, experiments: Iterable[str], tag: str, value: str) -> list[RunSummary]:
        """Return the runs in these experiments (ids) whose tag has this value, the newest first.

        Args:
            experiments: ids of the experiments.
            tag: name of the tag.
            value: the value that the tag must have, without single quotes.

        Returns:
            Summaries of the runs, without runs that are marked as deleted.
        """

    def records(self, run_ids: Collection[str]) -> dict[str, RunRecord]:
        """Return runs with parameters and last values, by id."""

    def histories(self, run_ids: Collection[str]) -> dict[str, History]:
        """Return every value of every metric of these runs, by the id of the run."""


@dataclass(frozen=True)
class CellRun:
    """The run whose results are used for a cell, its newest finished one or else its newest.

    Args:
        run_id: id of the run.
        status: done, failed, interrupted or running.
        reason: why it failed or was closed.
        start: when it began, in milliseconds since 1970.
    """

    run_id: str
    status: str
    reason: str = ""
    start: int = field(default=0, compare=False)


def without_password(uri: str) -> str:
    """Return the address of a store as it may be shown: without options, user and password."""
    parts = urlsplit(uri.partition("?")[0])
    return (
        uri.partition("?")[0]
        if not parts.netloc
        else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    )


def metric_today(stored: str) -> str:
    """Return the name today of a metric such as "test/transcription_error_looks"."""
    split, slash, name = stored.rpartition("/")
    return split + slash + RENAMED_METRICS.get(name, name)


def metrics_today(stored: Mapping[str, float]) -> dict[str, float]:
    """Return values by the names of today; a value logged by the name of today replaces one by an old name."""
    values = {name: logged(value) for name, value in stored.items()}
    return {metric_today(name): value for name, value in values.items()} | {
        name: value for name, value in values.items() if metric_today(name) == name
    }
