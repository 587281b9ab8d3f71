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


def status(
    name: options.ComparisonArgument = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Show the errors of the last evaluation so far.")
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Show the state of each cell of a comparison: done, running, failed (and why) or missing. Exit code 0: all done.

    Example: milbench status demo --scores
    """
    from milbench._utils.console import console

    place = Root(root)
    plan = place.plan(name)
    states = place.states(plan.cells)
    console.print(_table(plan, states, place if scores else None), markup=False)
    if failed := [cell_id for cell_id, state in states.items() if state.status == "failed"]:
        options.say(
            f"traceback: {place.cell(failed[0]).error}{f' (and {len(failed) - 1} more)' * bool(failed[1:])}"
        )
    done = all(state.status == "done" for state in states.values())
    counts: Counter[str] = Counter(state.status for state in states.values())
    rest = "".join(
        f", {counts[status]} {status}"
        for status in ("running", "failed", "missing")
        if counts[status]
    )
    summary = f"{counts['done']} of {counted(len(states), 'cell')} done{rest}"
    step = (
        options.step_after(plan)
        if done
        else ["milbench", "run", plan.name, *["--rerun", "failed"] * bool(failed)]
    )
    options.say(*damaged(plan, states), *plan.for_use, summary, then=step, root=root)
    return 0 if done else 1


def _table(plan: Plan, states: Mapping[str, State], root: Root | None) -> Table:
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
        last = {name: value for _, name, value in root.cell(cell.id).history()} if root else {}
        detail = describe_progress(state.progress) if state.progress else state.reason
        test_errors = errors(plan, cell, last) if last else ""
        rows.append(
            (
                *map(readable, plan.labels[cell.id]),
                str(cell.seed),
                cell.id,
                state.status,
                test_errors,
                detail,
            )
        )
    return table_of(f"{plan.name}, launched {plan.launched}", headings, rows)
