"""Cross-validation as seeds: every seed tests on another fold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Folds:
    """Repeated cross-validation of a task: seed s tests on fold s % count of repetition s // count.

    Folds share training bags, which statistics correct for by the `ratio`, or by what `Task.overlap` returns where some
    bags are for validation (C. Nadeau and Y. Bengio, "Inference for the
    Generalization Error", Machine Learning 52, 2003, pp. 239-281).

    Args:
        count: the number of folds of a repetition, at least 2.
        repeats: the number of repetitions.

    Examples:
        >>> folds = Folds(count=10, repeats=5)
        >>> folds.seeds, round(folds.ratio, 3)
        (50, 0.111)
    """

    count: int
    repeats: int = 1

    @property
    def seeds(self) -> int:
        """The number of folds of all repetitions, one a seed."""
        return self.count * self.repeats

    @property
    def ratio(self) -> float:
        """How many bags are tested on for each that is trained on."""
        return 1 / (self.count - 1)
