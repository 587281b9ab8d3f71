"""How far a cell is that some process computes: a small file beside its checkpoint, for displays and `status`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from milbench._utils.files import write_atomically

LEAST_WORK = 0.02
"""The share of a cell that has to be done before its speed is known: its start is slow."""


@dataclass(frozen=True)
class Progress:
    """The progress of one cell.

    Args:
        epochs: how many epochs there are.
        epoch: the one that is trained, from 1; 0 while the data are read.
        step: how many of its steps are done.
        steps: how many steps it has; 0 while that is not known.
        loss: the mean loss of the steps that are done; None before the first report.
        errors: the last metrics that are errors, by `split/metric`.
        begun: when this process began with the cell, in seconds since 1970.
        resumed_at: the share of the cell that was done then.
    """

    epochs: int
    epoch: int = 0
    step: int = 0
    steps: int = 0
    loss: float | None = None
    errors: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.time)
    resumed_at: float = 0.0

    @property
    def share(self) -> float:
        """How much of the training is done, 0 to 1."""
        return (max(self.epoch - 1, 0) + (self.step / self.steps if self.steps else 0.0)) / self.epochs

    def seconds_left(self, now: float) -> float | None:
        """Return how long the rest takes at the speed so far; None before `LEAST_WORK` was done."""
        worked = self.share - self.resumed_at
        return (now - self.begun) * (1 - self.share) / worked if worked >= LEAST_WORK else None

    def resumed(self, epoch: int, step: int, steps: int) -> Progress:
        """Return the progress of a cell that continues after `step` of the `steps` of an epoch (from 1)."""
        found = replace(self, epoch=epoch, step=step, steps=steps)
        return replace(found, resumed_at=found.share)

    def write(self, path: Path) -> None:
        """Write the file, completely or not at all."""
        write_atomically(path, lambda temporary: temporary.write_text(json.dumps(asdict(self))))

    @classmethod
    def read(cls, path: Path) -> Progress | None:
        """Return what a file holds; None where there is none, or something else in it."""
        try:
            found = cls(**json.loads(path.read_text("utf-8")))
            return found if 0 <= found.share <= 1 and found.begun > 0 else None
        except (OSError, ValueError, TypeError, ArithmeticError):
            return None
