"""The display of a launch that runs: live bars on a terminal, one line per finished cell elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from milbench._utils.console import plain
from milbench.api.metric_info import INTERIM, describe
from milbench.api.plan import Cell, Plan
from milbench.engine.runner import Launch
from milbench.engine.worker import JobResult
from milbench.store.progress import LEAST_WORK
from milbench.store.progress import Progress as CellProgress
from milbench.store.workspace import Workspace

FIRST_ESTIMATE, ESTIMATE_INTERVAL = 60.0, 300.0
"""Seconds until the time left is printed for the first time, and between two such lines, if there are no bars."""
FOLLOW_INTERVAL = 0.5
"""Seconds between two looks at the progress of the cells."""


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
        counts = len(cells), done, len(cells) - len(left)
        table.add_row(*key, *map(str, counts), ", ".join(others))
    return table


class Estimate:
    """Estimate of the time that the rest of a launch takes, from its speed so far; all cells count alike."""

    def __init__(self, cells: Iterable[str], now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.begun = now()
        self.first: dict[str, float] = {}
        self.share = dict.fromkeys(cells, 0.0)
        self.ended = 0

    def update(self, cell: str, share: float, resumed_at: float = 0.0) -> None:
        """Record how much of a cell is done, 0 to 1; what was done when it was resumed is no work of this launch."""
        self.first[cell] = resumed_at
        self.share[cell] = share

    def end(self, cell: str) -> None:
        """Record that a cell has ended, done or not."""
        self.first.setdefault(cell, 0.0)
        self.share[cell] = 1.0
        self.ended += 1

    def seconds(self) -> float | None:
        """Return the seconds left; None before `LEAST_WORK` of a cell was done."""
        worked = sum(self.share[cell] - first for cell, first in self.first.items())
        left = sum(1 - share for share in self.share.values())
        return (self.now() - self.begun) * left / worked if worked >= LEAST_WORK else None

    def __str__(self) -> str:
        seconds = self.seconds()
        return "" if seconds is None else f"about {duration(seconds)} left"


class Display:
    """Bars, lines and counts of one launch, for people."""

    def __init__(self, console: Console, launch: Launch, workspace: Workspace) -> None:
        self.console, self.launch, self.workspace = console, launch, workspace
        self.cells = {cell.id: cell for cell in launch.to_run}
        self.estimate = Estimate(self.cells)
        self.last_estimate = time.monotonic() - ESTIMATE_INTERVAL + FIRST_ESTIMATE
        self.bars: dict[str, Any] = {}
        self.ended_before = len(launch.plan.cells) - len(self.cells)
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def planned(self) -> None:
        """Print what is to be computed."""
        self.console.print(plan_table(self.launch), markup=False)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the bars until the block ends."""
        over = threading.Event()
        cells = len(self.launch.plan.cells)
        self.total = self.progress.add_task("cells", total=cells, completed=self.ended_before, state="")
        follower = threading.Thread(target=self._follow, args=(over,), daemon=True)
        with self.progress:
            follower.start()
            try:
                yield
            finally:
                over.set()
                follower.join()

    def ended(self, result: JobResult) -> None:
        """Print the outcome of a cell."""
        cell = self.cells[result.cell_id]
        label = cell_label(self.launch.plan, cell)
        if result.status == "done":
            colour, what = "green", self._errors(cell, result.metrics or {})
        else:
            colour, what = "red", result.reason or "the next launch continues it"
        line = Text.assemble((f"{result.status:8}", colour), plain(f"{label}: {what}"))
        self.progress.print(line, highlight=False, soft_wrap=True)
        if result.status == "stopped":
            return  # it has not ended, and the launch is about to
        self.estimate.end(result.cell_id)
        self.progress.advance(self.total)
        if not self.console.is_terminal:
            self._print_estimate()

    def stopping(self) -> None:
        """Print that the launch waits for checkpoints."""
        text = "stopping: the cells that run save what they have done (Ctrl-C again: stop at once)"
        self.progress.print(text, highlight=False)

    def over(self, summary: str) -> None:
        """Print how the launch ended."""
        self.console.print(summary, markup=False, highlight=False, soft_wrap=True)

    def _errors(self, cell: Cell, metrics: dict[str, float]) -> str:
        """Return the task's primary metric and the set error on test bags as text; those not measured are left out."""
        shown = dict.fromkeys([self.launch.plan.tasks[cell.task].primary, "set_error"])
        known = [
            f"{when}{describe(name).label} {_number(name, metrics[key])}"
            for name in shown
            for when, key in (("", f"test/{name}"), ("on some bags: ", f"{INTERIM}test/{name}"))
            if key in metrics
        ]
        return ", ".join(known)

    def _follow(self, over: threading.Event) -> None:
        while not over.wait(FOLLOW_INTERVAL):
            running = self._running()
            for cell_id, state in running.items():
                self.estimate.update(cell_id, state.share, state.resumed_at)
            self.progress.update(self.total, state=str(self.estimate))
            if self.console.is_terminal:
                self._show(running)
            elif time.monotonic() - self.last_estimate > ESTIMATE_INTERVAL:
                self._print_estimate()

    def _running(self) -> dict[str, CellProgress]:
        """Return the progress of the cells of this launch that some process computes."""
        found = {}
        for path in self.workspace.checkpoints.glob("*.progress"):
            state = CellProgress.read(path)
            if state is not None and path.stem in self.cells:
                found[path.stem] = state
        return found

    def _show(self, running: dict[str, CellProgress]) -> None:
        """Draw one bar for each cell that is being computed."""
        for cell_id in set(self.bars) - set(running):
            self.progress.remove_task(self.bars.pop(cell_id))
        for cell_id, state in running.items():
            cell = self.cells[cell_id]
            if cell_id not in self.bars:
                self.bars[cell_id] = self.progress.add_task(plain(cell_label(self.launch.plan, cell)), state="")
            loss = "" if state.loss is None else f"loss {state.loss:.4g}"
            self.progress.update(
                self.bars[cell_id],
                completed=max(state.epoch - 1, 0) * state.steps + state.step,
                total=state.epochs * state.steps or None,
                state=f"epoch {state.epoch} {loss} {self._errors(cell, state.errors)}",
            )

    def _print_estimate(self) -> None:
        """Print how many cells of the comparison have ended and how long the rest takes."""
        self.last_estimate = time.monotonic()
        cells = len(self.launch.plan.cells)
        ended, left = self.ended_before + self.estimate.ended, str(self.estimate)
        if left and ended < cells:
            self.progress.print(f"        {ended} of {cells} cells, {left}", highlight=False)


def duration(seconds: float) -> str:
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
