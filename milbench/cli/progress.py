"""The display of a launch that runs: live bars on a terminal, one line per finished cell elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from milbench.api.metric_info import describe
from milbench.api.plan import Cell, Plan
from milbench.engine.runner import Launch
from milbench.engine.worker import JobResult
from milbench.store.workspace import Workspace

FIRST_ESTIMATE, ESTIMATE_INTERVAL = 60.0, 300.0
"""Seconds until the time left is printed for the first time, and between two such lines, if there are no bars."""


def plan_table(launch: Launch) -> Table:
    """Return one row per task, loss and recipe: how many cells are done, to run, failed or running elsewhere."""
    table = Table(title_justify="left")
    table.title = f"{launch.plan.name}: {len(launch.plan.cells)} cells, {len(launch.to_run)} to run"
    for heading in ("task", "loss", "recipe", "seeds", "done", "to run", "other"):
        table.add_column(heading, justify="right" if heading in ("seeds", "done", "to run") else "left")
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in launch.plan.cells:
        loss, task, recipe = launch.plan.labels[cell.id]
        groups.setdefault((task, loss, recipe), []).append(cell)
    to_run = {cell.id for cell in launch.to_run}
    for key, cells in groups.items():
        left = [c for c in cells if c.id not in to_run]
        done = sum(launch.status(c) == "done" for c in left)
        others = [f"{launch.status(c)} (seed {c.seed})" for c in left if launch.status(c) != "done"]
        table.add_row(*key, str(len(cells)), str(done), str(sum(c.id in to_run for c in cells)), ", ".join(others))
    return table


class Estimate:
    """Estimate of the time that the rest of a launch takes, from its speed so far; all cells count alike."""

    def __init__(self, cells: Iterable[str], now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.begun = now()
        self.first: dict[str, float] = {}
        self.share = dict.fromkeys(cells, 0.0)

    def update(self, cell: str, share: float) -> None:
        """Record how much of a cell is done, 0 to 1; the first share of a resumed cell is no work of this launch."""
        self.first.setdefault(cell, share)
        self.share[cell] = share

    def end(self, cell: str) -> None:
        """Record that a cell has ended, done or not."""
        self.first.setdefault(cell, 0.0)
        self.share[cell] = 1.0

    def seconds(self) -> float | None:
        """Return the seconds left; None before any work was done."""
        worked = sum(self.share[cell] - first for cell, first in self.first.items())
        left = sum(1 - share for share in self.share.values())
        return (self.now() - self.begun) * left / worked if worked > 0 else None

    def __str__(self) -> str:
        seconds = self.seconds()
        return "" if seconds is None else f"about {_duration(seconds)} left"


class Display:
    """Bars, lines and counts of one launch. `report` takes the report of every cell that ends."""

    def __init__(self, console: Console, launch: Launch, workspace: Workspace) -> None:
        self.console, self.launch, self.workspace = console, launch, workspace
        self.cells = {cell.id: cell for cell in launch.to_run}
        self.estimate = Estimate(self.cells)
        self.last_estimate = time.monotonic() - ESTIMATE_INTERVAL + FIRST_ESTIMATE
        self.bars: dict[str, Any] = {}
        self.counts = {"done": 0, "failed": 0, "elsewhere": 0}
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the bars until the block ends."""
        ended = threading.Event()
        self.total = self.progress.add_task("cells", total=len(self.cells), state="")
        follower = threading.Thread(target=self._follow, args=(ended,), daemon=True)
        with self.progress:
            follower.start()
            try:
                yield
            finally:
                ended.set()
                follower.join()

    def report(self, report: JobResult) -> None:
        """Count a finished cell and print its outcome."""
        self.counts[report.status] += 1
        self.estimate.end(report.cell_id)
        cell = self.cells[report.cell_id]
        label = cell_label(self.launch.plan, cell)
        if report.status == "done":
            line = f"[green]done[/]    {label}: {self._errors(cell, report.metrics or {})}"
            self.progress.print(line, highlight=False, soft_wrap=True)
        else:
            self.progress.print(f"[red]{report.status}[/]  {label}: ", end="")
            self.progress.print(report.reason, markup=False, highlight=False, soft_wrap=True)
        self.progress.advance(self.total)
        if not self.console.is_terminal:
            self._print_estimate()

    def _errors(self, cell: Cell, metrics: dict[str, float]) -> str:
        """Return the task's primary metric and the set error on test bags as text; those not measured are left out."""
        shown = dict.fromkeys([self.launch.plan.tasks[cell.task].primary, "set_error"])
        known = {name: metrics[f"test/{name}"] for name in shown if f"test/{name}" in metrics}
        return ", ".join(f"{describe(name).label} {_number(name, value)}" for name, value in known.items())

    def _follow(self, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            self.progress.update(self.total, state=str(self.estimate))
            if not self.console.is_terminal and time.monotonic() - self.last_estimate > ESTIMATE_INTERVAL:
                self._print_estimate()
            for cell_id, cell in self.cells.items():
                state = _read(self.workspace, cell_id)
                if state is None:
                    if cell_id in self.bars:
                        self.progress.remove_task(self.bars.pop(cell_id))
                    continue
                if cell_id not in self.bars:
                    self.bars[cell_id] = self.progress.add_task(cell_label(self.launch.plan, cell), state="")
                done, total = (state["epoch"] - 1) * state["steps"] + state["step"], state["epochs"] * state["steps"]
                self.estimate.update(cell_id, done / total)
                self.progress.update(
                    self.bars[cell_id],
                    completed=done,
                    total=total,
                    state=f"epoch {state['epoch']} loss {state['loss']:.4g} {self._errors(cell, state)}",
                )

    def _print_estimate(self) -> None:
        """Print how many cells have ended and how long the rest takes."""
        self.last_estimate = time.monotonic()
        ended, left = sum(self.counts.values()), str(self.estimate)
        if left and ended < len(self.cells):
            self.progress.print(f"        {ended} of {len(self.cells)} cells, {left}", highlight=False)


def _duration(seconds: float) -> str:
    """Format a duration in the largest unit of which it has at least two."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def cell_label(plan: Plan, cell: Cell) -> str:
    """Return the task, loss, recipe and seed of a cell, in one line."""
    loss, task, recipe = plan.labels[cell.id]
    return f"{task}, {loss}, {recipe + ', ' if recipe else ''}seed {cell.seed}"


def _number(name: str, value: float) -> str:
    return f"{100 * value:.2f} %" if describe(name).percent else f"{value:.4g}"


def _read(workspace: Workspace, cell_id: str) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(workspace.progress(cell_id).read_text())
    except (OSError, ValueError):
        return None
    return state
