"""The folds of a cross-validation. This module does not import torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Folds:
    """Repeated cross-validation of a task: seed s tests on fold s % count of repetition s // count.

    Different folds train on partly the same bags. `Task.overlap` lets statistics correct for that.
    """

    count: int
    """How many folds a repetition has, at least 2."""
    repeats: int | None = 1
    """How many times the bags are split into folds.

    None: the seeds of a run may go through any number of repetitions, all of which have the same
    folds.
    """

    @property
    def seeds(self) -> int:
        """The number of seeds that test once on every fold of every repetition."""
        return self.count * (self.repeats or 1)
