"""The folds of a cross-validation; needs no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Folds:
    """Repeated cross-validation of a task: seed s tests on fold s % count of repetition s // count.

    Folds share training bags, for which statistics correct by `Task.overlap`.
    """

    count: int
    """How many folds a repetition has, at least 2."""
    repeats: int | None = 1
    """How many times the bags are split anew; None: as many as are asked for, all with the same folds."""

    @property
    def seeds(self) -> int:
        """The number of seeds that take every fold of every repetition once."""
        return self.count * (self.repeats or 1)
