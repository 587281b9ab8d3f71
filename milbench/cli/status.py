"""`milbench status`: the states of the cells of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from milbench._utils.words import counted, readable
from milbench.cli import options
from milbench.store.folders import Root, cell_problems

if TYPE_CHECKING:
    from rich.table import Table

    from milbench.experiment.plan import Plan
    from milbench.store.cell_folder import State

INTERRUPTED = "interrupted"
"""Shown in place of "missing" for a cell whose training has begun.

The next launch goes on with it.
"""
NOT_DONE = ("running", "failed", INTERRUPTED, "missing", "unreadable")
"""The states of a cell that is not done, in the order of the summary."""


def status(
    name: options.ComparisonArgument = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Show the errors of the last evaluation so far.")
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Show the state of each cell, and why a cell failed or is unreadable.

    A cell is done, running, failed, interrupted, missing or unreadable. Exit code 0: all are done.

    Example: milbench status demo --scores
    """
    from milbench._utils.console import console

    store = Root(root)
    plan = store.plan(name)
    states = store.states(plan.cells)
    interrupted = _interruptions(states, store)
    latest_values = _latest_values(states, store) if scores else {}
    console.print(_table(plan, states, interrupted, latest_values), markup=False)
    failed = [cell_id for cell_id, state in states.items() if state.status == "failed"]
    if failed:
        more = ""
        if len(failed) > 1:
            more = f" (and {len(failed) - 1} more)"
        options.say(f"traceback: {store.cell(failed[0]).error}{more}")
    is_done = all(state.status == "done" for state in states.values())
    if is_done:
        step = options.step_after(plan)
    else:
        step = ["milbench", "run", plan.name]
        if failed:
            step += ["--rerun", "failed"]
    problems = [*store.not_plans(), *cell_problems(plan, states)]
    options.say(*problems, *plan.for_use, _summary(states, interrupted), then=step, root=root)
    return 0 if is_done else 1


def _summary(states: Mapping[str, State], interrupted: Mapping[str, str]) -> str:
    """Return how many cells are done, and how many are in each other state."""
    counts: Counter[str] = Counter()
    for cell_id, state in states.items():
        counts[INTERRUPTED if cell_id in interrupted else state.status] += 1
    parts = [f"{counts['done']} of {counted(len(states), 'cell')} done"]
    parts += [f"{counts[word]} {word}" for word in NOT_DONE if counts[word]]
    return ", ".join(parts)


def _interruptions(states: Mapping[str, State], root: Root) -> dict[str, str]:
    """Return where training stopped, such as "epoch 3 of 5", by the ids of interrupted cells."""
    interrupted = {}
    for cell_id, state in states.items():
        if state.status != "missing" or state.is_damaged:
            continue
        stopped_at = root.cell(cell_id).interruption()
        if stopped_at:
            interrupted[cell_id] = stopped_at
    return interrupted


def _latest_values(states: Mapping[str, State], root: Root) -> dict[str, dict[str, float]]:
    """Return the last value so far of each metric, by the ids of cells."""
    latest_values: dict[str, dict[str, float]] = {}
    for cell_id, state in states.items():
        if state.status == "unreadable":
            continue
        history = root.cell(cell_id).history()
        # The history is in the order of epochs, so the last value of each metric stays.
        latest_values[cell_id] = {name: value for _, name, value in history}
    return latest_values


def _table(
    plan: Plan,
    states: Mapping[str, State],
    interrupted: Mapping[str, str],
    latest_values: Mapping[str, Mapping[str, float]],
) -> Table:
    """Return a table with a row for each cell: its state, test errors, and progress or error."""
    from milbench._utils.console import table_of
    from milbench.running.display import describe_progress, errors

    headings = (
        "task",
        "loss",
        "network",
        "recipe",
        "seed",
        "cell",
        "status",
        "test errors",
        "progress or error",
    )
    rows = []
    for cell in plan.cells:
        state = states[cell.id]
        status: str = state.status
        detail = describe_progress(state.progress) if state.progress else state.reason
        if cell.id in interrupted:
            status = INTERRUPTED
            detail = f"at {interrupted[cell.id]}"
        metrics = latest_values.get(cell.id)
        test_errors = errors(plan, cell, metrics) if metrics else ""
        labels = [readable(name) for name in plan.labels[cell.id]]
        rows.append((*labels, str(cell.seed), cell.id, status, test_errors, detail))
    return table_of(f"{plan.name}, launched {plan.launched}", headings, rows)
