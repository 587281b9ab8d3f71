"""What a launch shows: bars on a terminal and lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from milbench._utils.console import console, plain, table_of, write_line
from milbench.api.metric_info import describe
from milbench.api.plan import Cell, Plan
from milbench.engine.cell import State
from milbench.engine.folders import Root

FOLLOW_INTERVAL = 0.5  # seconds between two looks at the progress of the cells
LINE_INTERVALS = (5.0, 60.0, 300.0)
"""Seconds until the first, the second and every further line about the progress where there are no bars."""
LEAST_WORK = 0.02  # the share of a cell that has to be done before its speed is known: its start is slow


class Display:
    """Shows a launch to people: tables, lines, and bars on a terminal; if `quiet`, failures alone on standard error."""

    def __init__(
        self, plan: Plan, states: Mapping[str, State], to_run: Sequence[Cell], root: Root, *, quiet: bool = False
    ) -> None:
        self.console = Console(quiet=True, force_terminal=False) if quiet else console
        self.plan, self.states, self.root, self.quiet = plan, states, root, quiet
        self.to_run = {cell.id: cell for cell in to_run}
        self.ended_cells: set[str] = set()
        self.begun = time.monotonic()
        self.bars: dict[str, Any] = {}
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def planned(self, words: Sequence[str]) -> None:
        """Print what is to be computed: a row a task, loss and recipe, and lines below."""
        self.console.print(self._table(), markup=False)
        for line in words:
            self.over(line)

    def _table(self) -> Table:
        groups: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.plan.cells:
            groups.setdefault(self.plan.labels[cell.id], []).append(cell)
        rows = []
        for key, cells in groups.items():
            left = [cell for cell in cells if cell.id not in self.to_run]
            others = [cell for cell in left if self.states[cell.id].status != "done"]
            named = ", ".join(f"{self.states[cell.id].status} (seed {cell.seed})" for cell in others)
            rows.append((*key, str(len(cells)), str(len(left) - len(others)), str(len(cells) - len(left)), named))
        title = f"{self.plan.name}: {len(self.plan.cells)} cells, {len(self.to_run)} to run"
        return table_of(title, ("task", "loss", "network", "recipe", "seeds", "done", "to run", "other"), rows)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show how far the cells are until the block ends."""
        over = threading.Event()
        self.total = self.progress.add_task("cells", total=len(self.to_run), state="")
        follower = threading.Thread(target=self._follow, args=(over,), daemon=True)
        with self.progress:
            follower.start()
            try:
                yield
            finally:
                over.set()
                follower.join()

    def ended(self, cell_id: str, state: State) -> None:
        """Print what has become of a cell."""
        cell = self.to_run[cell_id]
        self.ended_cells.add(cell.id)
        if state.status == "done":
            colour, what = "green", self._errors(cell, self.root.cell(cell.id).last_metrics())
        else:
            colour, what = "red", state.reason
            if self.quiet:
                write_line(sys.stderr, plain(f"{state.status}  {self.plan.label(cell)}: {what}"))
        line = Text.assemble((f"{state.status:10}", colour), plain(f"{self.plan.label(cell)}: {what}"))
        self.progress.print(line, highlight=False, soft_wrap=True)
        self.progress.advance(self.total)

    def over(self, summary: str) -> None:
        """Print a line."""
        self.console.print(summary, markup=False, highlight=False, soft_wrap=True)

    def _errors(self, cell: Cell, metrics: Mapping[str, float]) -> str:
        """Return the task's primary metric and the set error on test bags as text; those not measured are left out."""
        names = dict.fromkeys([self.plan.tasks[cell.task_key].primary, "set_error"])
        known = {name: metrics[f"test/{name}"] for name in names if f"test/{name}" in metrics}
        return ", ".join(f"{describe(name).label} {number(name, value)}" for name, value in known.items())

    def _follow(self, over: threading.Event) -> None:
        intervals = [*LINE_INTERVALS]
        due = time.monotonic() + intervals[0]
        while not over.wait(FOLLOW_INTERVAL):
            if self.console.is_terminal:
                self._show(self._running())
            elif time.monotonic() > due:
                intervals = intervals[1:] or intervals
                due = time.monotonic() + intervals[0]
                self._print_progress(self._running())

    def _running(self) -> dict[str, Mapping[str, Any]]:
        """Return how far the cells of this launch are that some process computes."""
        states = self.root.states(cell for cell_id, cell in self.to_run.items() if cell_id not in self.ended_cells)
        return {cell_id: state.progress for cell_id, state in states.items() if state.progress}

    def _left(self, running: Mapping[str, Mapping[str, Any]]) -> str:
        """Return how long the rest takes at the speed so far, "" while that is not known; all cells count alike."""
        if not running and not self.ended_cells:
            return "starting"
        shares = {cell: share(progress) for cell, progress in running.items()}
        worked = len(self.ended_cells) + sum(now - running[cell].get("at", 0.0) for cell, now in shares.items())
        left = len(self.to_run) - len(self.ended_cells) - sum(shares.values())
        if worked < LEAST_WORK:
            return ""
        return f"about {duration((time.monotonic() - self.begun) * left / worked)} left"

    def _show(self, running: Mapping[str, Mapping[str, Any]]) -> None:
        """Draw one bar for each cell that is being computed."""
        self.progress.update(self.total, state=self._left(running))
        for cell_id in set(self.bars) - set(running):
            self.progress.remove_task(self.bars.pop(cell_id))
        for cell_id, progress in running.items():
            cell = self.to_run[cell_id]
            if cell_id not in self.bars:
                self.bars[cell_id] = self.progress.add_task(plain(self.plan.label(cell)), total=1.0, state="")
            state = f"{where(progress)} {self._errors(cell, progress.get('errors', {}))}"
            self.progress.update(self.bars[cell_id], completed=share(progress), state=state)

    def _print_progress(self, running: Mapping[str, Mapping[str, Any]]) -> None:
        """Print in one line how many cells have ended, what is computed now, and how long the rest takes."""
        now = "; ".join(f"{self.plan.label(self.to_run[cell])}: {where(p)}" for cell, p in [*running.items()][:2])
        parts = [f"{len(self.ended_cells)} of {len(self.to_run)} cells", self._left(running), now]
        self.progress.print(plain(f"        {', '.join(filter(None, parts))}"), highlight=False, soft_wrap=True)


def share(progress: Mapping[str, Any]) -> float:
    """Return how much of a cell's training is done, from 0 to 1."""
    steps = progress.get("steps") or 0
    done = max(progress.get("epoch", 1) - 1, 0) + (progress.get("step", 0) / steps if steps else 0.0)
    return float(min(done / max(progress.get("epochs", 1), 1), 1.0))


def where(progress: Mapping[str, Any]) -> str:
    """Return in words how far a cell is."""
    if "epoch" not in progress:
        return str(progress.get("doing", ""))
    loss = progress.get("loss")
    doing = f"{progress['step']} of {progress['steps']} steps" if progress["doing"] == "training" else progress["doing"]
    return f"epoch {progress['epoch']} of {progress['epochs']}, {doing}" + (f", loss {loss:.4g}" if loss else "")


def duration(seconds: float) -> str:
    """Format a duration in the largest unit of which it has at least two."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def number(name: str, value: float) -> str:
    """Format a value of a metric, a share in percent."""
    return f"{100 * value:.2f} %" if describe(name).percent else f"{value:.4g}"
