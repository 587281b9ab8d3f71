"""Training of small cells in this process, and what is seen of it from outside."""

from __future__ import annotations

from pathlib import Path

import torch

from milbench.api.plan import Cell
from milbench.engine.callback import Callback
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.engine.trainer import TrainedCell, Trainer
from tests._helpers.command_line import TINY


class Stop(Exception):  # noqa: N818
    """Raised in the middle of training, as a kill would end it."""


class Recorder(Callback):
    """A callback that keeps what it receives.

    Args:
        stop_after: the epoch and the step after which it raises Stop; None: never.
        stop_at: the number of the question from which on it asks the training to stop.
    """

    def __init__(self, stop_after: tuple[int, int] | None = None, stop_at: int = 10**9) -> None:
        self.stop_after, self.left = stop_after, stop_at
        self.epochs: dict[int, dict[str, float]] = {}
        self.sizes: list[tuple[int, int, int]] = []
        """Of every change of the size of micro-batches: the size, the epoch and the step."""
        self.resumed_at: tuple[int, int] | None = None
        self.has_started_over = False

    def resumed(self, epoch: int, step: int, steps: int) -> None:
        self.resumed_at = (epoch, step)

    def started_over(self) -> None:
        self.has_started_over = True

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        if self.stop_after is not None and (epoch, step) > self.stop_after:
            raise Stop

    def epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        self.epochs[epoch] = metrics

    def micro_batch(self, size: int, epoch: int, step: int) -> None:
        self.sizes.append((size, epoch, step))

    def stop_requested(self) -> bool:
        self.left -= 1
        return self.left <= 0


def small_cell(loss: str = "exact", /, seed: int = 0, task_name: str = TINY, **values: object) -> Cell:
    """Return a cell; `values` are further keys of its spec, such as `recipe`."""
    spec = make_spec({"name": "t", "losses": [loss], "tasks": [task_name], "seeds": seed, **values})
    return make_plan(spec, None).cells[0]


def train(cell: Cell, checkpoint: Path, callback: Callback | None = None) -> TrainedCell:
    """Train a cell on the CPU, from its checkpoint where there is one."""
    return Trainer(cell, torch.device("cpu"), None, callback or Callback(), checkpoint).run()


def without_clock(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the metrics of every epoch without those that differ each time: costs."""
    return [{k: v for k, v in row.items() if not k.startswith("cost/")} for row in history]
