"""`milbench status`: the states of the cells of a comparison."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from milbench._utils.words import counted
from milbench.cli import options
from milbench.engine.folders import Root, damaged

if TYPE_CHECKING:
    from rich.table import Table

    from milbench.api.plan import Plan
    from milbench.engine.cell import State

WATCH_INTERVAL = 2.0  # seconds between two readings of the store


def status(
    name: options.ComparisonArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until no cell is running.")] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Show test errors after the last evaluation so far.")
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Show the state of each cell of a comparison: done, running, failed (and why) or missing. Exit code 0: all done.

    Example: milbench status demo --watch
    """
    from milbench._utils.console import console

    place = Root(root)
    plan = place.plan(name)
    if watch:
        _watch(place, plan)
    states = place.states(plan.cells)
    console.print(_table(plan, states, place if scores else None), markup=False)
    if failed := [cell_id for cell_id, state in states.items() if state.status == "failed"]:
        rest = f" (and {len(failed) - 1} more)" if failed[1:] else ""
        options.say(f"traceback: {place.cell(failed[0]).error}{rest}")
    done = all(state.status == "done" for state in states.values())
    step = f"next: milbench {'report' if done else 'run'} {plan.name}{' --rerun failed' * bool(failed)}"
    options.say(*damaged(plan, states), *plan.for_use, f"{_summary(states)}; {step}")
    return 0 if done else 1


def _table(plan: Plan, states: Mapping[str, State], root: Root | None = None, *, running_alone: bool = False) -> Table:
    """Return a row for each cell, or only for running ones, with its progress or error; with a root its test errors."""
    from milbench._utils.console import table_of
    from milbench.engine.display import describe_progress, errors

    title = f"{plan.name}: {_summary(states)}" if running_alone else f"{plan.name}, launched {plan.launched}"
    headings = "task", "loss", "network", "recipe", "seed", "cell", "status", "test errors", "progress or error"
    rows = []
    for cell in plan.cells:
        state = states[cell.id]
        if state.status == "running" or not running_alone:
            last = {name: value for _, name, value in root.cell(cell.id).history()} if root else {}
            detail = describe_progress(state.progress) if state.progress else state.reason
            test_errors = errors(plan, cell, last) if last else ""
            rows.append((*plan.labels[cell.id], str(cell.seed), cell.id, state.status, test_errors, detail))
    return table_of(title, headings, rows)


def _summary(states: Mapping[str, State]) -> str:
    counts: Counter[str] = Counter(state.status for state in states.values())
    rest = "".join(f", {counts[status]} {status}" for status in ("running", "failed", "missing") if counts[status])
    return f"{counts['done']} of {counted(len(states), 'cell')} done{rest}"


def _watch(place: Root, plan: Plan) -> None:
    from rich.live import Live

    from milbench._utils.console import console

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            states = place.states(plan.cells)
            live.update(_table(plan, states, running_alone=True), refresh=True)
            if not any(state.status == "running" for state in states.values()):
                return
            time.sleep(WATCH_INTERVAL)
