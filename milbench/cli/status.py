"""`milbench status`: what has become of the cells of a comparison, once or as it goes on."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from milbench.cli import options
from milbench.store.existing import existing_workspace

if TYPE_CHECKING:
    from rich.table import Table

    from milbench.api.plan import Cell, Plan
    from milbench.store.reader import StoreReader
    from milbench.store.states import CellState

WATCH_INTERVAL = 2.0
"""Seconds between two looks at the store."""
ORDER = ("done", "running", "queued", "interrupted", "failed", "missing")


def status(
    name: options.ComparisonArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again until no cell runs or waits.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Show the state of every cell of a comparison. Exit code 1 unless all are done."""
    from milbench._utils.console import console
    from milbench.store.reader import StoreReader
    from milbench.store.states import cell_states
    from milbench.store.superseded import superseded_note

    store = StoreReader(existing_workspace(root))
    plan, _, launched = store.plan(name)
    if watch:
        _watch(store, plan)
    states = cell_states(store, plan)
    console.print(_table(plan, states, launched), markup=False)
    left_out = [note] if (note := superseded_note(store, name, "", store.cell_runs())) else []
    for line in [*_tracebacks(store, states), *(f"lost: {loss}" for loss in store.lost), *left_out, _summary(states)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0 if all(state.status == "done" for state in states.values()) else 1


def _detail(state: CellState) -> str:
    """Return why a cell failed, or how far it is."""
    from milbench.launch.progress import duration

    if state.status != "running":
        return state.reason
    if (progress := state.progress) is None or progress.epoch == 0:
        return "" if progress is None else "it has begun"
    left = progress.seconds_left(time.time())
    return f"epoch {progress.epoch} of {progress.epochs}" + (
        f", about {duration(left)} left" if left is not None else ""
    )


def _table(plan: Plan, states: dict[str, CellState], launched: str) -> Table:
    """Return one row a cell."""
    from rich.table import Table

    table = Table(title=f"{plan.name}, launched {launched}", title_justify="left")
    for heading in ("task", "loss", "recipe", "seed", "status", "run", "epoch or reason"):
        table.add_column(heading)
    for cell in plan.cells:
        loss, task, recipe = plan.labels[cell.id]
        state = states[cell.id]
        row = (task, loss, recipe, str(cell.seed), state.status, state.run_id, _detail(state))
        table.add_row(*row)
    return table


def _tracebacks(store: StoreReader, states: dict[str, CellState]) -> list[str]:
    """Return where the tracebacks of failed cells are."""
    from milbench.store.artifacts import TRACEBACK

    failed = [state.run_id for state in states.values() if state.status == "failed"]
    more = f" (and {len(failed) - 1} more)" if failed[1:] else ""
    if not store.is_local:  # a copy of the file would be gone when this command ends
        runs = (run_id for run_id in failed if TRACEBACK in store.artifact_sizes(run_id))
        where = (f"{TRACEBACK} of run {run_id} on {store.address}" for run_id in runs)
        return [f"where it failed: {place}{more}" for place in itertools.islice(where, 1)]
    paths = (path for run_id in failed if (path := store.artifact(run_id, TRACEBACK)))
    return [f"where it failed: {path}{more}" for path in itertools.islice(paths, 1)]


def _summary(states: dict[str, CellState]) -> str:
    counts = Counter(state.status for state in states.values())
    others = "".join(f", {counts[status]} {status}" for status in ORDER[1:] if counts[status])
    return f"{counts['done']} of {len(states)} cells done{others}"


def _watch(store: StoreReader, plan: Plan) -> None:
    """Show counts, and the cells that are computed, until no cell runs or waits."""
    from rich.live import Live

    from milbench._utils.console import console
    from milbench.store.states import cell_states

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            states = cell_states(store, plan)
            live.update(_now(plan, states), refresh=True)
            if not any(state.status in ("running", "queued") for state in states.values()):
                return
            time.sleep(WATCH_INTERVAL)


def _now(plan: Plan, states: dict[str, CellState]) -> Table:
    """Return the cells that are computed now, under the counts of all."""
    from rich.table import Table
    from rich.text import Text

    from milbench._utils.console import plain
    from milbench.launch.progress import cell_label

    table = Table(title=f"{plan.name}: {_summary(states)}", title_justify="left", show_header=False)
    running: list[Cell] = [cell for cell in plan.cells if states[cell.id].status == "running"]
    for cell in running:
        table.add_row(Text(plain(cell_label(plan, cell))), Text(_detail(states[cell.id])))
    return table
