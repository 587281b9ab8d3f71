"""Collects from the store of runs what a report is made from."""

from __future__ import annotations

from typing import Any

import pandas as pd

from milbench.api.plan import Cell, Plan
from milbench.api.results import COSTS, Results
from milbench.store.reader import StoreReader
from milbench.store.records import CELL, KIND, REASON, ROOT, CellRun

HIDDEN = (KIND, CELL, REASON, ROOT)
"""Tags that a report does not show: they do not describe how a number was computed, or `Results` has them elsewhere."""


def collect(store: StoreReader, name: str | None = None) -> Results:
    """Return everything that a report shows of a comparison.

    Args:
        store: the store to read.
        name: the comparison; None stands for the one launched last.

    Raises:
        UsageError: there is no such comparison, or its plan cannot be read.
    """
    plan, command, launched = store.plan(name)
    runs = store.cell_runs()
    rows, provenance, histories, costs, galleries = [], {}, [], {}, {}
    for cell in plan.cells:
        run = runs.get(cell.id, CellRun("", "missing"))
        rows.append(_row(plan, cell, run))
        if not run.run_id:
            continue
        provenance[cell.id], metrics = _record(store, run.run_id)
        for metric in metrics:
            if not metric.startswith(("cost/", "system/")):
                histories += [(cell.id, epoch, metric, v) for epoch, v in _history(store, run.run_id, metric)]
        costs[cell.id] = {c: metrics.get(f"cost/{c}") for c in COSTS}
        if run.status == "done" and (path := store.artifact(run.run_id, "gallery.npz")):
            galleries[cell.id] = path
    return Results(
        name=plan.name,
        cells=pd.DataFrame(rows).set_index("cell"),
        params={cell.id: cell.params() for cell in plan.cells},
        provenance=provenance,
        history=pd.DataFrame(histories, columns=["cell", "epoch", "metric", "value"]),
        costs=pd.DataFrame.from_dict(costs, orient="index", columns=list(COSTS)).astype(float),
        published=[p for info in plan.tasks.values() for p in info.published],
        galleries=galleries,
        chance={task: info.chance for task, info in plan.tasks.items() if info.chance is not None},
        preset=plan.preset,
        notes=plan.notes,
        differences=plan.differences,
        title=plan.title,
        tracking_uri=store.address,
        launched=launched,
        command=command,
    )


def _record(store: StoreReader, run_id: str) -> tuple[dict[str, str], dict[str, float]]:
    """Return a run's tags for provenance, without the prefix "milbench.", and the last values of its metrics."""
    run = store.run(run_id)
    own = {k.removeprefix("milbench."): v for k, v in run.tags.items() if k.startswith("milbench.") and k not in HIDDEN}
    return own, dict(run.metrics)


def _history(store: StoreReader, run_id: str, metric: str) -> list[tuple[int, float]]:
    """Return a metric's value at every epoch."""
    # A run that is killed between logging an epoch and saving it logs that epoch again: the last value counts.
    return sorted({v.epoch: v.value for v in store.history(run_id, metric)}.items())


def _row(plan: Plan, cell: Cell, run: CellRun) -> dict[str, Any]:
    """Return the row of a cell in `Results.cells`."""
    loss_label, task_label, recipe_label = plan.labels[cell.id]
    return {
        "cell": cell.id,
        "loss": cell.loss,
        "loss_label": loss_label,
        "supervision": cell.supervision,
        "task": cell.task,
        "task_label": task_label,
        "recipe_label": recipe_label,
        "seed": cell.seed,
        "status": run.status,
        "reason": run.reason,
        "run_id": run.run_id,
        "primary": plan.tasks[cell.task].primary,
        "data_digest": cell.data,
        "epochs": cell.recipe["epochs"],
    }
