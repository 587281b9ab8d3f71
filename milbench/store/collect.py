"""From the store of runs to the frames that a report is made from."""

from __future__ import annotations

from typing import Any

import pandas as pd

from milbench.api.plan import Cell, Plan
from milbench.api.results import Results
from milbench.store.mlflow_store import CELL, KIND, REASON, ROOT, CellRun, Store

HIDDEN = (KIND, CELL, REASON, ROOT)
COSTS = ("step_seconds", "loss_seconds", "loss_peak_bytes", "peak_bytes", "train_seconds")


def collect(store: Store, name: str | None = None) -> Results:
    """Return everything a report needs of a comparison, the one launched last where no name is given."""
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
        published=[p for facts in plan.tasks.values() for p in facts.published],
        galleries=galleries,
        chance={name: facts.chance for name, facts in plan.tasks.items() if facts.chance is not None},
        preset=plan.preset,
        notes=plan.notes,
        differences=plan.differences,
        title=plan.title,
        tracking_uri=store.address,
        launched=launched,
        command=command,
    )


def _record(store: Store, run_id: str) -> tuple[dict[str, str], dict[str, float]]:
    """Return the tags of a run, without milbench's own prefix and its internal ones, and its last metrics."""
    data = store.client.get_run(run_id).data
    own = {
        k.removeprefix("milbench."): v for k, v in data.tags.items() if k.startswith("milbench.") and k not in HIDDEN
    }
    return own, dict(data.metrics)


def _history(store: Store, run_id: str, metric: str) -> list[tuple[int, float]]:
    """Return a metric's value at every epoch."""
    # A run killed between logging an epoch and saving it logs that epoch again: the last value stands.
    values = sorted(store.client.get_metric_history(run_id, metric), key=lambda m: m.timestamp)
    return sorted({m.step: m.value for m in values}.items())


def _row(plan: Plan, cell: Cell, run: CellRun) -> dict[str, Any]:
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
        "data_name": cell.task,
        "epochs": cell.recipe["epochs"],
    }
