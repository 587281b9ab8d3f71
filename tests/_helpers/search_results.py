"""Made-up results of cells with given settings and values: draws of a search, and cells of a comparison."""

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


@dataclass(frozen=True)
class Trained:
    """A cell on the task "t", with what was measured at its only epoch."""

    loss: str
    measured: Mapping[str, float] = field(default_factory=dict)
    """By metric with its split. Empty where nothing was measured."""
    draw: int | None = None
    """None in a comparison."""
    point: int | None = None
    seed: int = 0
    recipe: Mapping[str, Any] = field(default_factory=dict)
    network: str = "mlp"
    status: str = "done"


def results_of(cells: Sequence[Trained], primary: str = "set_error", **spec: Any) -> Results:
    """Return results with these cells; a search is there where one of them has a draw."""
    planned = [_cell(trained) for trained in cells]
    draws = {}
    compared = {}
    for cell, trained in zip(planned, cells, strict=True):
        if trained.draw is None:
            compared[cell.id] = Label("t", trained.loss)
        else:
            arm = Arm("t", trained.loss)
            draws[cell.id] = Draw(arm, trained.draw, dict(trained.recipe), trained.point)
    plan = Plan(
        Spec(name="demo", losses=["exact"], tasks=["t"], **spec),
        planned,
        {planned[0].task.key: TaskInfo(primary)},
        search=SearchRecord(CHOOSES, draws, compared=compared) if draws else None,
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
        # Two draws with the same settings would be one cell.
        changes.setdefault("weight_decay", 0.001 * (1 + trained.draw))
    return replace(cell, recipe=cell.recipe.model_copy(update=changes))


def _rows(plan: Plan, cell: Cell, trained: Trained) -> list[dict[str, Any]]:
    label = plan.labels[cell.id]
    said = {
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
    rows = [
        said | {"epoch": 1, "metric": metric, "value": value}
        for metric, value in trained.measured.items()
    ]
    return rows or [said | {"epoch": None, "metric": "", "value": float("nan")}]
