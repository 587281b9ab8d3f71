"""Collects from the store of runs what a report is made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from milbench.api.folds import Folds
from milbench.api.outcomes import OUTCOMES_FILE
from milbench.api.plan import Cell, Plan
from milbench.api.reliability import RELIABILITY_FILE
from milbench.api.results import COSTS, Results
from milbench.store.artifacts import GALLERY
from milbench.store.reader import StoreReader
from milbench.store.records import CELL, KIND, ORIGIN, REASON, ROOT, WORKSPACE, CellRun, History, RunRecord
from milbench.store.superseded import superseded_note

HIDDEN = (KIND, CELL, REASON, ROOT, WORKSPACE)
"""Tags that a report does not show: they do not describe how a number was computed, or `Results` has them elsewhere."""
MISSING = CellRun("", "missing")


def collect(store: StoreReader, name: str | None = None) -> Results:
    """Return everything that a report shows of a comparison.

    Args:
        store: the store to read.
        name: the comparison; None stands for the one launched last.

    Raises:
        UsageError: there is no such comparison, or its plan cannot be read.
    """
    counts = store.last_with_settings(name)
    runs = store.cell_runs()
    found = results_of(store, *store.plan(name, counts), runs)
    if left_out := superseded_note(store, name, counts, runs):
        found.notes.append(left_out)
    if counts != store.all_launches(name)[0].run_id:
        found.notes.append("A search was begun since and has chosen nothing yet: this is what was chosen before.")
    return found


def results_of(store: StoreReader, plan: Plan, command: str, launched: str, runs: dict[str, CellRun]) -> Results:
    """Return everything that a report shows of a plan.

    Args:
        store: the store to read.
        plan: with the cells.
        command: that launched it last.
        launched: when that was.
        runs: the runs that count, by cell id.
    """
    used = {cell.id: runs[cell.id] for cell in plan.cells if cell.id in runs}
    run_ids = [run.run_id for run in used.values()]
    records, histories = store.records(run_ids), store.histories(run_ids)
    tried = plan.search.draws if plan.search else {}
    compared = {cell: run for cell, run in used.items() if run.status == "done" and cell not in tried}
    galleries = _artifacts(store, compared, GALLERY)
    for cell, run in compared.items():
        if cell not in galleries and ORIGIN not in records[run.run_id].tags:  # an import may leave it out on purpose
            store.lost.append(f"{GALLERY} of cell {cell} (run {run.run_id}) is gone")
    folds = {cell: Folds(*counts) for cell, counts in plan.folds.items()}
    rows = [_row(plan, cell, used.get(cell.id, MISSING)) for cell in plan.cells]
    return Results(
        name=plan.name,
        cells=pd.DataFrame([row for row in rows if row["cell"] not in tried], columns=list(rows[0])).set_index("cell"),
        search=plan.search,
        draws=pd.DataFrame([row | tried[row["cell"]] for row in rows if row["cell"] in tried]),
        params={cell.id: cell.params() for cell in plan.cells},
        provenance={cell_id: _provenance(records[run.run_id]) for cell_id, run in used.items()},
        history=_history({cell_id: histories[run.run_id] for cell_id, run in used.items()}),
        costs=_costs({cell_id: records[run.run_id] for cell_id, run in used.items()}),
        published=[p for info in plan.tasks.values() for p in info.published],
        galleries=galleries,
        outcomes=_artifacts(store, compared, OUTCOMES_FILE),
        reliability=_artifacts(store, compared, RELIABILITY_FILE),
        folds=folds,
        overlaps={cell: found.ratio for cell, found in folds.items()} | plan.overlaps,  # some plans have folds alone
        chance=_chance(plan),
        amounts={task: info.amount for task, info in plan.tasks.items() if info.amount},
        preset=plan.preset,
        notes=[*plan.notes, *(f"Lost from the store: {loss}." for loss in store.lost)],
        differences=plan.differences,
        selection=plan.selection,
        margin=plan.margin,
        compare_by=plan.compare_by,
        contrasts=plan.contrasts,
        before_contrasts=_before_contrasts(store, plan, [run for cell, run in used.items() if cell not in tried]),
        marks=plan.marks_by_task(),
        title=plan.title,
        tracking_uri=store.address,
        launched=launched,
        command=command,
    )


def _artifacts(store: StoreReader, runs: dict[str, CellRun], name: str) -> dict[str, Path]:
    """Return where a file of each run is, by cell id, without the runs that have none."""
    found = {cell: store.artifact(run.run_id, name) for cell, run in runs.items()}
    return {cell: path for cell, path in found.items() if path}


def _chance(plan: Plan) -> dict[str, float]:
    """Return the value of the primary metric that guessing gives, by the label of the task."""
    cells = {plan.labels[cell.id][1]: cell for cell in plan.cells}
    found = {label: plan.tasks[cell.task].chance_with(cell.task_params) for label, cell in cells.items()}
    return {label: chance for label, chance in found.items() if chance is not None}


def last_values(store: StoreReader, plan: Plan, metric: str) -> dict[str, float]:
    """Return the last value of a metric for every cell of a plan that is done and has one, by cell id.

    Args:
        store: the store to read.
        plan: with the cells.
        metric: its name with the split, such as "validation/set_error".
    """
    runs = store.cell_runs()
    done = {cell.id: runs[cell.id].run_id for cell in plan.cells if cell.id in runs and runs[cell.id].status == "done"}
    histories = store.histories(list(done.values()))
    values = {cell_id: histories[run_id].get(metric, []) for cell_id, run_id in done.items()}
    # An epoch that was logged twice, before a kill and after it, has the value that was logged last.
    return {cell_id: max(reversed(found), key=lambda v: v.epoch).value for cell_id, found in values.items() if found}


def _before_contrasts(store: StoreReader, plan: Plan, used: list[CellRun]) -> int | None:
    """Return how many runs began before any launch had the contrasts of a plan, None where that is not known."""
    since = store.contrasts_since(plan) if plan.contrasts else None
    return None if since is None else sum(run.start < since for run in used)


def _provenance(run: RunRecord) -> dict[str, str]:
    """Return a run's tags for provenance, without the prefix "milbench."."""
    return {
        k.removeprefix("milbench."): v for k, v in run.tags.items() if k.startswith("milbench.") and k not in HIDDEN
    }


def _history(of_cells: dict[str, History]) -> pd.DataFrame:
    """Return every metric's value at every epoch."""
    rows = [
        (cell_id, epoch, metric, value)
        for cell_id, history in of_cells.items()
        for metric, values in history.items()
        if not metric.startswith(("cost/", "system/"))
        # A run that is killed between logging an epoch and saving it logs that epoch again: the last value counts.
        for epoch, value in sorted({v.epoch: v.value for v in values}.items())
    ]
    return pd.DataFrame(rows, columns=["cell", "epoch", "metric", "value"])


def _costs(of_cells: dict[str, RunRecord]) -> pd.DataFrame:
    """Return the costs of every cell."""
    costs = {cell_id: {c: run.metrics.get(f"cost/{c}") for c in COSTS} for cell_id, run in of_cells.items()}
    return pd.DataFrame.from_dict(costs, orient="index", columns=list(COSTS)).astype(float)


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
