"""What the store keeps of a run, as plain data, and the names of the tags that milbench gives to runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from milbench.api.metric_info import RENAMED_METRICS

KIND = "milbench.kind"
"""What a run stands for: a launch, a cell, an import lease, or a copy that is not complete yet."""
CELL = "milbench.cell"
"""The content hash of the cell that a run computes."""
HOST, ROOT = "milbench.host", "milbench.root"
"""The machine and the workspace of a run: its lock, which shows whether it is alive, is visible only there."""
REASON = "milbench.reason"
"""Why a run failed or was closed."""
SOURCE = "milbench.source"
"""Where the plan of a launch comes from: a spec, or the flags of the command line."""
COMMAND = "milbench.command"
"""The command of a launch."""
DEVICE = "milbench.device"
"""The device of a run. A run gets this tag when a worker starts to compute it: its presence marks a started run."""
PARENT = "mlflow.parentRunId"
"""The launch of a cell's run: MLflow's own tag, by which its pages nest the run below the launch."""
OPEN = ("RUNNING", "SCHEDULED")
"""The states of a run that has not ended; the others are FINISHED, FAILED and KILLED."""


class MetricValue(NamedTuple):
    """One value of a metric, its time in milliseconds since 1970, and its epoch."""

    value: float
    time: int
    epoch: int


@dataclass(frozen=True)
class RunRecord:
    """A run as the store has it.

    Args:
        run_id: MLflow's id of the run.
        experiment_id: MLflow's id of its experiment.
        name: its name.
        status: RUNNING, SCHEDULED, FINISHED, FAILED or KILLED.
        start: when it began, in milliseconds since 1970.
        end: when it ended, in milliseconds since 1970; None for a run that is open.
        tags: tags by name.
        params: parameters by name.
        metrics: the last value of each metric, by its name of today.
    """

    run_id: str
    experiment_id: str
    name: str
    status: str
    start: int
    end: int | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]

    @property
    def is_open(self) -> bool:
        """True if the run has not ended."""
        return self.status in OPEN


@dataclass(frozen=True)
class CellRun:
    """The run whose results are used for a cell, its newest finished one or else its newest, and its status."""

    run_id: str
    status: str
    reason: str = ""


def metric_today(stored: str) -> str:
    """Return the name today of a metric such as "test/transcription_error_looks"."""
    split, slash, name = stored.rpartition("/")
    return split + slash + RENAMED_METRICS.get(name, name)


def metrics_today(stored: Mapping[str, float]) -> dict[str, float]:
    """Return values by the names of today; a value logged by the name of today replaces one by an old name."""
    return {metric_today(name): value for name, value in stored.items()} | {
        name: value for name, value in stored.items() if metric_today(name) == name
    }


def stored_names(metric: str) -> Iterable[str]:
    """Return the names by which runs of earlier versions and of this one have logged a metric, this one's last."""
    split, slash, name = metric.rpartition("/")
    return [*(split + slash + old for old, today in RENAMED_METRICS.items() if today == name), metric]
