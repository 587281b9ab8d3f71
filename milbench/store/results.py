"""The results of a comparison, from which reports, tables and figures are made.

This module needs neither torch nor MLflow.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from milbench.experiment.plan import Plan

COLUMNS = (
    "task", "loss", "network", "recipe", "supervision", "seed", "status", "reason",
    "epoch", "metric", "value", "cell", "run", "machine", "code", "draw",
)  # fmt: skip
"""The columns of `Results.frame`."""


@dataclass(frozen=True)
class Results:
    """Every planned cell of a comparison, with its status and what was measured."""

    plan: Plan
    frame: pd.DataFrame
    """A row for each cell, epoch and metric. A cell without values has one row without a metric.

    The columns COLUMNS are:

    - task, loss, network, recipe: their names in reports, see
      `milbench.experiment.display_names.Label`. Where a task has only one network, or there is only
      one recipe, the name is "".
    - supervision: what the loss learns from.
    - seed: int.
    - status: done, failed, running, unreadable or missing. Until the next launch an interrupted or
      damaged cell counts as missing.
    - reason: the error of a failed cell, the damage of a missing one, or why a cell is unreadable.
    - epoch: Int64, from 1.
    - metric: such as "test/set_error", "train/loss" or, at the last epoch, "cost/step_seconds".
    - value: the value of the metric.
    - cell: the id of the cell.
    - run: the id of the cell's run in MLflow.
    - machine, code: where the cell was computed, and by which git revision.
    - draw: Int64, the number of the draw in a search; NA for cells of the comparison.
    """
    folders: dict[str, Path] = field(default_factory=dict)
    """Cell id -> the folder of a done cell, which has predictions.npz and gallery.npz."""
    imported_later: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Cell id -> what its plug-ins imported during the training.

    The keys of the values are "files", "packages", and "by" for the kinds of the plug-ins. An edit
    of such a file makes no new cell, so a report names the files. Cells whose plug-ins imported
    nothing are left out.
    """
    is_published: bool = False
    """Whether they were published as they are, so that nobody waits for missing cells."""
