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
    """A row for each cell, epoch and metric. A cell without values has one row without a metric.

    The columns COLUMNS are:

    - task, loss, network, recipe: their labels. Where a task has one network, or one recipe, its
      label is "".
    - supervision: that of the loss.
    - seed: int.
    - status: done, failed, running, unreadable or missing. Until the next launch an interrupted or
      damaged cell counts as missing.
    - reason: the error of a failed cell, the damage of a missing one, or why a cell is unreadable.
    - epoch: Int64, from 1.
    - metric: such as "test/set_error", "train/loss" or, at the last epoch, "cost/step_seconds".
    - value: that of the metric.
    - cell: its id.
    - run: the id of its run in MLflow.
    - machine, code: where it was computed, and by which git revision.
    - draw: Int64, its number in a search; NA for what is compared.
    """
    folders: dict[str, Path] = field(default_factory=dict)
    """Cell id -> the folder of a done cell, which has predictions.npz and gallery.npz."""
    imported_later: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Cell id -> what its plug-ins imported in training: "files", "packages", and "by", the kinds of the plug-ins.

    An edit of such a file makes no new cell, so a report names them. Only cells that have any are
    here.
    """
