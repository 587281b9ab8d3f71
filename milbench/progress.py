"""What a person sees while cells are computed: live bars on a terminal, a line a finished cell elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from milbench.cells import Cell, Plan
from milbench.definitions import describe
from milbench.files import Root
from milbench.runner import Launch
from milbench.worker import Report


def plan_table(launch: Launch) -> Table:
    """Return one row a loss and task: how many cells are done, left, failed or running elsewhere."""
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


class Display:
    """Follows a launch; give it every report."""

    def __init__(self, console: Console, launch: Launch, root: Root) -> None:
        self.console, self.launch, self.root = console, launch, root
        self.cells = {cell.id: cell for cell in launch.to_run}
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
        """Show the bars while the block lasts."""
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

    def report(self, report: Report) -> None:
        """Count a finished cell and say how it went."""
        self.counts[report.status] += 1
        cell = self.cells[report.cell_id]
        what = name(self.launch.plan, cell)
        if report.status == "done":
            line = f"[green]done[/]    {what}: {self._errors(cell, report.metrics or {})}"
            self.progress.print(line, highlight=False, soft_wrap=True)
        else:
            self.progress.print(f"[red]{report.status}[/]  {what}: ", end="")
            self.progress.print(report.reason, markup=False, highlight=False, soft_wrap=True)
        self.progress.advance(self.total)

    def _errors(self, cell: Cell, metrics: dict[str, float]) -> str:
        """Write the task's primary metric and the set error on test bags, as far as they are known."""
        shown = dict.fromkeys([self.launch.plan.tasks[cell.task].primary, "set_error"])
        known = {name: metrics[f"test/{name}"] for name in shown if f"test/{name}" in metrics}
        return ", ".join(f"{describe(name).label} {_number(name, value)}" for name, value in known.items())

    def _follow(self, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            for cell_id, cell in self.cells.items():
                state = _read(self.root, cell_id)
                if state is None:
                    if cell_id in self.bars:
                        self.progress.remove_task(self.bars.pop(cell_id))
                    continue
                if cell_id not in self.bars:
                    self.bars[cell_id] = self.progress.add_task(name(self.launch.plan, cell), state="")
                done = (state["epoch"] - 1) * state["steps"] + state["step"]
                self.progress.update(
                    self.bars[cell_id],
                    completed=done,
                    total=state["epochs"] * state["steps"],
                    state=f"epoch {state['epoch']} loss {state['loss']:.4g} {self._errors(cell, state)}",
                )


def name(plan: Plan, cell: Cell) -> str:
    """Return how to call a cell of a plan in one line."""
    loss, task, recipe = plan.labels[cell.id]
    return f"{task}, {loss}, {recipe + ', ' if recipe else ''}seed {cell.seed}"


def _number(name: str, value: float) -> str:
    return f"{100 * value:.2f} %" if describe(name).percent else f"{value:.4g}"


def _read(root: Root, cell_id: str) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(root.progress(cell_id).read_text())
    except (OSError, ValueError):
        return None
    return state
