"""The displays of a launch for scripts: one JSON object a line, or nothing but failures."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from milbench._utils.console import plain, write_line
from milbench.engine.runner import Launch
from milbench.engine.worker import JobResult
from milbench.launch.progress import cell_label


class Events:
    """Prints one JSON object for every event; its key `event` is planned, ended, stopping or over."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.cells = {cell.id: cell for cell in launch.plan.cells}

    def planned(self) -> None:
        """Print what is to be computed."""
        self._print("planned", name=self.launch.plan.name, cells=len(self.cells), to_run=len(self.launch.to_run))

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show nothing between events."""
        yield

    def ended(self, result: JobResult) -> None:
        """Print the outcome of a cell."""
        cell = self.cells[result.cell_id]
        self._print(
            "ended",
            cell=cell.id,
            status=result.status,
            loss=cell.loss,
            task=cell.task,
            seed=cell.seed,
            label=cell_label(self.launch.plan, cell),
            run=result.run_id,
            reason=result.reason,
            metrics={k: v if math.isfinite(v) else None for k, v in (result.metrics or {}).items()},
        )

    def stopping(self) -> None:
        """Print that the launch waits for checkpoints."""
        self._print("stopping")

    def over(self, summary: str) -> None:
        """Print how the launch ended."""
        self._print("over", summary=summary)

    @staticmethod
    def _print(event: str, **values: Any) -> None:
        write_line(sys.stdout, json.dumps({"event": event, **values}))


class Failures:
    """Prints the cells that are not done, on standard error, and nothing else."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.cells = {cell.id: cell for cell in launch.plan.cells}

    def planned(self) -> None:
        """Print nothing."""

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show nothing."""
        yield

    def ended(self, result: JobResult) -> None:
        """Print the reason why a cell is not done."""
        if result.status != "done":
            label = cell_label(self.launch.plan, self.cells[result.cell_id])
            write_line(sys.stderr, plain(f"{result.status}  {label}: {result.reason}"))

    def stopping(self) -> None:
        """Print nothing."""

    def over(self, summary: str) -> None:
        """Print nothing: the exit code tells."""
