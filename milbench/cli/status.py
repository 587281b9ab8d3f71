"""`milbench status`: the states of the cells of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from milbench._utils.words import counted, readable
from milbench.cli import options
from milbench.engine.folders import Root, damaged

if TYPE_CHECKING:
    from rich.table import Table

    from milbench.api.plan import Plan
    from milbench.engine.cell import State

INTERRUPTED = "interrupted"
"""What is said of a missing cell whose training has begun; the next launch goes on with it."""


def status(
    name: options.ComparisonArgument = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Show the errors of the last evaluation so far.")
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Show the state of each cell: done, running, failed (and why), interrupted, missing, or unreadable (and why).

    Exit code 0: all done.

    Example: milbench status demo --scores
    """
    from milbench._utils.console import console

    place = Root(root)
    plan = place.plan(name)
    states = place.states(plan.cells)
    interrupted = _interruptions(states, place)
    console.print(_table(plan, states, interrupted, place if scores else None), markup=False)
    if failed := [cell_id for cell_id, state in states.items() if state.status == "failed"]:
        options.say(
            f"traceback: {place.cell(failed[0]).error}{f' (and {len(failed) - 1} more)' * bool(failed[1:])}"
        )
    done = all(state.status == "done" for state in states.values())
    counts = Counter(
        INTERRUPTED if cell_id in interrupted else state.status for cell_id, state in states.items()
    )
    rest = "".join(
        f", {counts[status]} {status}"
        for status in ("running", "failed", INTERRUPTED, "missing", "unreadable")
        if counts[status]
    )
    summary = f"{counts['done']} of {counted(len(states), 'cell')} done{rest}"
    step = (
        options.step_after(plan)
        if done
        else ["milbench", "run", plan.name, *["--rerun", "failed"] * bool(failed)]
    )
    problems = [*place.not_plans(), *damaged(plan, states)]
    options.say(*problems, *plan.for_use, summary, then=step, root=root)
    return 0 if done else 1


def _interruptions(states: Mapping[str, State], root: Root) -> dict[str, str]:
    """Return where the training of cells stopped with which nobody goes on, by their ids."""
    stopped = {}
    for cell_id, state in states.items():
        if state.status == "missing" and not state.is_damaged:
            stopped[cell_id] = root.cell(cell_id).interruption()
    return {cell_id: place for cell_id, place in stopped.items() if place}


def _table(
    plan: Plan, states: Mapping[str, State], interrupted: Mapping[str, str], root: Root | None
) -> Table:
    """Return a row for each cell, with its progress or error; with a root its test errors."""
    from milbench._utils.console import table_of
    from milbench.engine.display import describe_progress, errors

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
        last = {}
        if root and state.status != "unreadable":
            last = {name: value for _, name, value in root.cell(cell.id).history()}
        status: str = state.status
        detail = describe_progress(state.progress) if state.progress else state.reason
        if cell.id in interrupted:
            status, detail = INTERRUPTED, f"at {interrupted[cell.id]}"
        test_errors = errors(plan, cell, last) if last else ""
        labels = [readable(name) for name in plan.labels[cell.id]]
        rows.append((*labels, str(cell.seed), cell.id, status, test_errors, detail))
    return table_of(f"{plan.name}, launched {plan.launched}", headings, rows)
