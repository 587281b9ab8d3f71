"""Made-up results of a search and a comparison, from cells with given settings and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from milbench.experiment.cell import Cell
from milbench.experiment.display_names import Label
from milbench.experiment.plan import Arm, Draw, Plan, SearchRecord, TaskInfo
from milbench.experiment.spec import Spec
from milbench.store.results import COLUMNS, Results
from tests._helpers.cells import make_cell

CHOOSES = "validation/set_error"
"""The metric by which the search chooses."""


@dataclass(frozen=True)
class Trained:
    """A cell on the task "t", with what was measured at its only epoch."""

    loss: str
    measured: Mapping[str, float] = field(default_factory=dict)
    """Metric with its split, such as "test/set_error" -> value; empty if nothing was measured."""
    draw: int | None = None
    """The number of the draw; None in a comparison."""
    point: int | None = None
    """The number of the point of the ranges that the draw takes, from 0."""
    seed: int = 0
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the defaults."""
    network: str = "mlp"
    status: str = "done"


def results_of(cells: Sequence[Trained], primary: str = "set_error", **spec: Any) -> Results:
    """Return results with these cells; they have a search if a cell is a draw."""
    planned = [_cell(trained) for trained in cells]
    # Cell id -> the draw of the search, or the label in the comparison.
    draws = {}
    compared = {}
    for cell, trained in zip(planned, cells, strict=True):
        if trained.draw is None:
            compared[cell.id] = Label("t", trained.loss)
        else:
            arm = Arm("t", trained.loss)
            draws[cell.id] = Draw(arm, trained.draw, dict(trained.recipe), trained.point)
    search = None
    if draws:
        search = SearchRecord(CHOOSES, draws, compared=compared)
    plan = Plan(
        Spec(name="demo", losses=["exact"], tasks=["t"], **spec),
        planned,
        {planned[0].task.key: TaskInfo(primary)},
        search=search,
    )
    rows = []
    for cell, trained in zip(planned, cells, strict=True):
        rows += _rows(plan, cell, trained)
    frame = pd.DataFrame(rows)[list(COLUMNS)]
    return Results(plan, frame.astype({"epoch": "Int64", "draw": "Int64", "value": float}))


def _cell(trained: Trained) -> Cell:
    cell = make_cell(trained.loss, "t", trained.network, seed=trained.seed)
    changes = dict(trained.recipe)
    if trained.draw is not None:
        # Draws with equal settings would be one cell: a weight decay keeps them apart.
        changes.setdefault("weight_decay", 0.001 * (1 + trained.draw))
    return replace(cell, recipe=cell.recipe.model_copy(update=changes))


def _rows(plan: Plan, cell: Cell, trained: Trained) -> list[dict[str, Any]]:
    """Return the rows of a cell in the frame of results, one for each metric.

    A cell of which nothing was measured has one row without a metric.
    """
    label = plan.labels[cell.id]
    of_cell = {
        "task": label.task,
        "loss": label.loss,
        "network": label.network,
        "recipe": label.recipe,
        "supervision": "set",
        "seed": cell.seed,
        "status": trained.status,
        "reason": "",
        "cell": cell.id,
        "run": "",
        "machine": "",
        "code": "",
        "draw": trained.draw,
    }
    if not trained.measured:
        return [of_cell | {"epoch": None, "metric": "", "value": float("nan")}]
    return [
        of_cell | {"epoch": 1, "metric": metric, "value": value}
        for metric, value in trained.measured.items()
    ]
