"""`milbench status` and `milbench sync`: the states of the cells of a comparison, and their copies in MLflow."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from milbench._utils.words import counted
from milbench.cli import options
from milbench.engine.folders import Root
from milbench.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from milbench.api.plan import Plan
    from milbench.engine.cell import State

WATCH_INTERVAL = 2.0  # seconds between two readings of the store
ORDER = ("done", "running", "failed", "missing")


def status(
    name: options.ComparisonArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until no cell is running.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Show the state of each cell of a comparison: done, running, failed (and why) or missing.

    Exit code 0 if all are done, else 1.

    Example: milbench status demo --watch
    """
    from milbench._utils.console import console

    place = Root(root)
    plan = place.plan(name)
    if watch:
        _watch(place, plan)
    states = place.states(plan.cells)
    console.print(_table(plan, states, running_alone=False), markup=False)
    failed = [cell_id for cell_id, state in states.items() if state.status == "failed"]
    if failed:
        more = f" (and {len(failed) - 1} more)" if failed[1:] else ""
        line = f"traceback: {place.cell(failed[0]).error}{more}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(_summary(states), markup=False, highlight=False, soft_wrap=True)
    return 0 if all(state.status == "done" for state in states.values()) else 1


def sync(
    name: options.ComparisonArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="Copy every comparison of the store.")] = False,
    log_models: Annotated[bool, typer.Option("--log-models", help="Log every network as an MLflow model too.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Copy to MLflow the results of a comparison that it lacks.

    That is needed after a server was away, after an import, or if MLflow's database was deleted. Exit code 1 if
    something could not be copied.

    Example: milbench sync demo
    """
    from milbench._utils.console import console
    from milbench.engine.mirror import synchronise, without_password

    place = Root(root)
    if everything and name is not None:
        raise UsageError(f"--all and {name} exclude each other: every comparison, or one")
    names = (everything and place.names()) or [place.plan(name).name]
    server = without_password(os.environ.get("MLFLOW_TRACKING_URI", ""))
    problem = synchronise(place, names, log_models=log_models)
    console.print(
        problem or f"MLflow is up to date: {', '.join(names)} ({server or place.database.relative_to(place.path)})",
        markup=False,
        soft_wrap=True,
    )
    return int(bool(problem))


def _table(plan: Plan, states: Mapping[str, State], *, running_alone: bool) -> Table:
    """Return one row for each cell, or only for running ones, with the error or the progress of each."""
    from milbench._utils.console import table_of
    from milbench.engine.display import describe_progress

    title = f"{plan.name}: {_summary(states)}" if running_alone else f"{plan.name}, launched {plan.launched}"
    headings = "task", "loss", "network", "recipe", "seed", "cell", "status", "progress or error"
    rows = []
    for cell in plan.cells:
        state = states[cell.id]
        if state.status == "running" or not running_alone:
            detail = describe_progress(state.progress) if state.progress else state.reason
            rows.append((*plan.labels[cell.id], str(cell.seed), cell.id, state.status, detail))
    return table_of(title, headings, rows)


def _summary(states: Mapping[str, State]) -> str:
    counts: Counter[str] = Counter(state.status for state in states.values())
    rest = "".join(f", {counts[status]} {status}" for status in ORDER[1:] if counts[status])
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
