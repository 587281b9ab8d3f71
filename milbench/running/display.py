"""The display of a launch: bars on a terminal, lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from milbench._utils.console import console, plain, table_of, write_line
from milbench._utils.words import counted, readable
from milbench.contracts.metric_info import describe
from milbench.experiment.cell import Cell
from milbench.experiment.plan import Plan
from milbench.store.cell_folder import State
from milbench.store.folders import Root

FOLLOW_INTERVAL = 0.5
"""Seconds between two readings of the cells' progress."""
LINE_INTERVALS = (5.0, 60.0, 300.0)
"""Seconds until the first, the second and every further line of progress.

Lines are printed where the display is no terminal with bars.
"""
LEAST_SHARE = 0.2
"""The share of a running cell that must be done before its speed counts.

The first steps of a cell are slow.
"""
LONG_CELL = 120.0
"""Seconds of training after which `LEAST_SHARE_OF_LONG` is enough in place of `LEAST_SHARE`."""
LEAST_SHARE_OF_LONG = 0.02
"""The share of a cell that must be done if it has trained for `LONG_CELL` seconds."""
BAR_WIDTH = 15
"""The width of a bar in characters."""


class OneLine(ProgressColumn):
    """A text beside a bar. On a narrow terminal its end is cut off, and the bar stays whole."""

    def __init__(self, field: str) -> None:
        # Rich makes only columns narrower whose text may wrap. `render` then cuts the text off.
        super().__init__(table_column=Column(no_wrap=False))
        self.field = field

    def render(self, task: Task) -> Text:
        """Return the text of the field."""
        is_description = self.field == "description"
        text = task.description if is_description else task.fields[self.field]
        return Text(text, no_wrap=True, overflow="ellipsis")


class Display:
    """Shows a launch: tables and lines, and bars where standard output is a terminal.

    If it is `quiet`, it prints nothing but failures, on standard error.
    """

    def __init__(
        self,
        plan: Plan,
        states: Mapping[str, State],
        to_run: Sequence[Cell],
        root: Root,
        *,
        quiet: bool = False,
    ) -> None:
        self.console = Console(quiet=True, force_terminal=False) if quiet else console
        self.plan = plan
        self.states = states
        self.root = root
        self.quiet = quiet
        self.to_run = {cell.id: cell for cell in to_run}
        self.ended_cells: set[str] = set()
        self.begun = time.monotonic()
        # Cell id -> the number by which rich knows the bar of the cell.
        self.bars: dict[str, TaskID] = {}
        # Cell id -> when the cell was first seen running, by time.monotonic().
        self.first_seen: dict[str, float] = {}
        # Cell id -> the share of the cell that was done before this launch.
        self.done_before: dict[str, float] = {}
        # The seconds that this launch spent on the cells that are done.
        self.seconds_of_done = 0.0
        # How many cells were done in these seconds. A cell counts 0.5 if half of it was done before
        # this launch.
        self.work_of_done = 0.0
        columns = (
            SpinnerColumn(table_column=Column(no_wrap=True)),
            OneLine("description"),
            BarColumn(BAR_WIDTH, table_column=Column(no_wrap=True)),
            OneLine("state"),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
        )
        has_no_bars = not self.console.is_terminal
        self.progress = Progress(
            *columns, console=self.console, transient=True, disable=has_no_bars
        )
        # The number by which rich knows the bar of all cells together. `live` sets it.
        self.bar_of_all: TaskID

    def print_plan(self, notes: Sequence[str]) -> None:
        """Print the plan as a table, and notes below it.

        The table has a row for each combination of task, loss, network and recipe.
        """
        cells_by_label: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.plan.cells:
            cells_by_label.setdefault(self.plan.labels[cell.id], []).append(cell)
        rows = []
        for label, cells in cells_by_label.items():
            names = [readable(name) for name in label]
            rows.append((*names, *self._counts(cells)))
        title = (
            f"{self.plan.name}: {counted(len(self.plan.cells), 'cell')}, {len(self.to_run)} to run"
        )
        headings = ("task", "loss", "network", "recipe", "seeds", "done", "to run", "other")
        self.console.print(table_of(title, headings, rows), markup=False)
        for note in (*self.plan.for_use, *notes):
            self.print_line(note)

    def _counts(self, cells: Sequence[Cell]) -> tuple[str, str, str, str]:
        """Return four entries of the table of a plan.

        They are the number of cells, how many are done and how many will run, and the states of all
        other cells with their seeds.
        """
        skipped = [cell for cell in cells if cell.id not in self.to_run]
        undone = [cell for cell in skipped if self.states[cell.id].status != "done"]
        states_of_undone = [f"{self.states[cell.id].status} (seed {cell.seed})" for cell in undone]
        done = len(skipped) - len(undone)
        to_run = len(cells) - len(skipped)
        return str(len(cells)), str(done), str(to_run), ", ".join(states_of_undone)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the progress of the cells until the block ends."""
        stop = threading.Event()
        self.bar_of_all = self.progress.add_task("cells", total=len(self.to_run), state="")
        follower = threading.Thread(target=self._follow, args=(stop,), daemon=True)
        with self.progress:
            follower.start()
            try:
                yield
            finally:
                stop.set()
                follower.join()

    def print_end(self, cell_id: str, state: State) -> None:
        """Print the state in which a cell ended."""
        cell = self.to_run[cell_id]
        self.ended_cells.add(cell.id)
        if state.status == "done":
            first_seen = self.first_seen.get(cell.id, self.begun)
            self.seconds_of_done += time.monotonic() - first_seen
            self.work_of_done += 1.0 - self.done_before.get(cell.id, 0.0)
            colour = "green"
            detail = errors(self.plan, cell, self.root.cell(cell.id).last_metrics()) or cell.id
        else:
            colour = "red"
            detail = state.reason
            if self.quiet:
                write_line(sys.stderr, plain(f"{state.status}  {self.plan.label(cell)}: {detail}"))
        # `plain` escapes control characters here, since `PlainConsole` escapes them in strings, but
        # not in a `Text`.
        described = plain(f"{self.plan.label(cell)}: {detail}")
        line = Text.assemble((f"{state.status:10}", colour), described)
        self.progress.print(line, highlight=False, soft_wrap=True)
        self.progress.advance(self.bar_of_all)

    def print_line(self, line: str) -> None:
        """Print a line."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _follow(self, stop: threading.Event) -> None:
        """Show the progress until `stop` is set: by bars on a terminal, else by a few lines."""
        intervals = list(LINE_INTERVALS)
        due = time.monotonic() + intervals[0]
        while not stop.wait(FOLLOW_INTERVAL):
            running = self._running()
            self.observe(running)
            if self.console.is_terminal:
                self._show(running)
            elif time.monotonic() > due:
                # The last interval is used for all further lines.
                intervals = intervals[1:] or intervals
                due = time.monotonic() + intervals[0]
                self._print_progress(running)

    def _running(self) -> dict[str, Mapping[str, Any]]:
        """Return the progress of the cells of this launch that are running."""
        open_cells = [
            cell for cell_id, cell in self.to_run.items() if cell_id not in self.ended_cells
        ]
        states = self.root.states(open_cells)
        return {cell_id: state.progress for cell_id, state in states.items() if state.progress}

    def observe(self, running: Mapping[str, Mapping[str, Any]]) -> None:
        """Note when cells were first seen, and how much of each was done before this launch."""
        for cell_id, progress in running.items():
            self.first_seen.setdefault(cell_id, time.monotonic())
            # A cell that reads its data has no epoch yet.
            if "epoch" in progress:
                self.done_before.setdefault(cell_id, progress.get("at", 0.0))

    def time_left(self, running: Mapping[str, Mapping[str, Any]]) -> str:
        """Return an estimate of the time left in words, "" while it is unknown.

        The estimate assumes that all cells take equally long. The speed, in cells a second, is
        measured on the cells that are done, and on the cells that have run for long enough.
        """
        if not running and not self.ended_cells:
            return f"starting, {duration(time.monotonic() - self.begun)}"
        seconds = self.seconds_of_done
        worked = self.work_of_done
        shares = {cell_id: share_done(progress) for cell_id, progress in running.items()}
        for cell_id, progress in running.items():
            # The share that earlier launches have done took none of the seconds of this launch.
            share = shares[cell_id] - self.done_before.get(cell_id, shares[cell_id])
            # Another process has written "begun", so it is a time of the system clock, which is the
            # same for all processes.
            trained_for = time.time() - progress.get("begun", time.time())
            if _is_telling(share, trained_for):
                seconds += trained_for
                worked += share
        if not worked:
            return ""
        left = len(self.to_run) - len(self.ended_cells) - sum(shares.values())
        at_a_time = max(1, len(running))
        seconds_of_cell = seconds / worked
        return f"about {duration(seconds_of_cell * left / at_a_time)} left"

    def _show(self, running: Mapping[str, Mapping[str, Any]]) -> None:
        """Draw a bar for each running cell, and the time left beside the bar of all cells."""
        self.progress.update(self.bar_of_all, state=self.time_left(running))
        for cell_id in set(self.bars) - set(running):
            self.progress.remove_task(self.bars.pop(cell_id))
        for cell_id, progress in running.items():
            cell = self.to_run[cell_id]
            if cell_id not in self.bars:
                name = plain(self._name_of_bar(cell))
                self.bars[cell_id] = self.progress.add_task(name, total=1.0, state="")
            errors_so_far = errors(self.plan, cell, progress.get("errors", {}))
            state = f"{describe_progress(progress)} {errors_so_far}"
            self.progress.update(self.bars[cell_id], completed=share_done(progress), state=state)

    def _name_of_bar(self, cell: Cell) -> str:
        """Return the label of a cell, without its task if the plan has a single one.

        A bar has little room for a name.
        """
        label = self.plan.label(cell)
        if len(self.plan.tasks) > 1:
            return label
        return label.removeprefix(f"{self.plan.labels[cell.id].task}, ")

    def _print_progress(self, running: Mapping[str, Mapping[str, Any]]) -> None:
        """Print in one line how many cells have ended, which are running, and the time left."""
        ended = f"{len(self.ended_cells)} of {counted(len(self.to_run), 'cell')}"
        examples = []
        # Two running cells are enough for one line.
        for cell_id, progress in islice(running.items(), 2):
            label = self.plan.label(self.to_run[cell_id])
            examples.append(f"{label}: {describe_progress(progress)}")
        parts = [ended, self.time_left(running), "; ".join(examples)]
        line = ", ".join(part for part in parts if part)
        self.progress.print(plain(f"        {line}"), highlight=False, soft_wrap=True)


def _is_telling(share: float, seconds: float) -> bool:
    """Return whether a cell has trained long enough to tell how long it takes.

    `share` is the part of the cell that is done, which took `seconds`.
    """
    if seconds >= LONG_CELL:
        return share >= LEAST_SHARE_OF_LONG
    return share >= LEAST_SHARE


def errors(plan: Plan, cell: Cell, metrics: Mapping[str, float]) -> str:
    """Return a cell's primary metric and its set error on test bags, as text.

    A metric that was not measured is left out.
    """
    # The primary metric may be the set error, which is then named once.
    names = dict.fromkeys([plan.info(cell).primary, "set_error"])
    texts = []
    for name in names:
        value = metrics.get(f"test/{name}")
        if value is not None:
            texts.append(f"{describe(name).label} {value_text(name, value)}")
    return ", ".join(texts)


def share_done(progress: Mapping[str, Any]) -> float:
    """Return how much of a cell's training is done, from 0 to 1."""
    # "epoch" is the one in progress, counted from 1.
    epochs_done = max(progress.get("epoch", 1) - 1, 0)
    steps = progress.get("steps")
    if steps:
        epochs_done += progress.get("step", 0) / steps
    epochs = max(progress.get("epochs", 1), 1)
    return float(min(epochs_done / epochs, 1.0))


def describe_progress(progress: Mapping[str, Any]) -> str:
    """Return the progress of a cell in words, such as "epoch 2 of 5, 10 of 40 steps, loss 0.3"."""
    if "epoch" not in progress:
        return str(progress.get("doing", ""))
    doing = progress["doing"]
    if doing == "training":
        doing = f"{progress['step']} of {progress['steps']} steps"
    described = f"epoch {progress['epoch']} of {progress['epochs']}, {doing}"
    loss = progress.get("loss")
    if loss:
        described += f", loss {loss:.4g}"
    return described


def duration(seconds: float) -> str:
    """Return a duration as text, in the largest unit that fits into it at least twice."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return counted(max(1, round(seconds)), "second")


def value_text(name: str, value: float) -> str:
    """Return the value of a metric as text. A share is given in percent."""
    if describe(name).percent:
        return f"{100 * value:.2f} %"
    return f"{value:.4g}"
