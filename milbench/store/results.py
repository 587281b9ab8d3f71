"""The results of a comparison, from which reports, tables and figures are made; needs neither torch nor MLflow."""

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from milbench.experiment.plan import Plan

COLUMNS = (
    "task", "loss", "network", "recipe", "supervision", "seed", "status", "reason", "epoch", "metric", "value", "cell",
    "run", "machine", "code", "draw",
)  # fmt: skip
"""The columns of `Results.frame`."""


@dataclass(frozen=True)
class Results:
    """Every planned cell of a comparison, with its status and what was measured."""

    plan: Plan
    frame: pd.DataFrame
    """A row for each cell, epoch and metric, with the columns COLUMNS: the labels of task, loss, network and recipe (""
    where a task has one network, or one recipe); seed (int); status, done, failed, running or missing (until the next
    launch, also where it was interrupted or is damaged); reason, the error of a failed cell or the damage of a missing
    one; epoch (Int64, from 1); metric, such as "test/set_error", "train/loss" or, at the last epoch,
    "cost/step_seconds"; value; cell, its id; run, that of MLflow; machine and code (git revision) of the computation;
    draw (Int64) of a search, NA for what is compared. A cell without values has one row without a metric."""
    folders: dict[str, Path] = field(default_factory=dict)
    """Cell id -> the folder of a done cell, which has predictions.npz and gallery.npz."""
    imported_later: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Cell id -> what plug-ins imported while they were trained, where that is something."""
