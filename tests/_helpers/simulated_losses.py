"""Losses of known error on simulated test items: the truth against which intervals and verdicts are counted.

An item is wrong with a probability that differs between items and losses, of a beta distribution whose mean is the true
error of the loss. Half of the variance of the normal score behind it is common to all losses, since some items are hard
for all. Training adds an error of its own to every network, on the probit scale, such that the mean stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from milbench.api.outcomes import Outcomes
from milbench.report.statistics.differences import Difference, compare_all
from milbench.report.statistics.sampling import sampling_noise

Differences = dict[tuple[int, int], Difference]
Method = Callable[["Drawn"], Differences]
_GRID = np.linspace(-6, 6, 2001)


@dataclass(frozen=True)
class Design:
    """A comparison of m losses with n seeds.

    Args:
        seeds: n.
        errors: m true errors.
        training: m shares of the variance, on the probit scale, that training has in an outcome.
        nested: whether each seed has test items of its own.
        items: how many a seed is tested on.
    """

    seeds: int
    errors: tuple[float, ...]
    training: tuple[float, ...]
    nested: bool
    items: int = 400


@dataclass(frozen=True)
class Drawn:
    """Outcomes (m, n, items), 1 for a wrong one, of one repetition of a design."""

    wrong: NDArray[np.float32]
    nested: bool


@dataclass(frozen=True)
class Counts:
    """What went wrong in how many repetitions.

    Args:
        repetitions: their number.
        uncovered: those where some interval does not hold its true difference.
        wrong: those with a wrong verdict: a difference between equal losses, or one of the wrong sign.
    """

    repetitions: int
    uncovered: int
    wrong: int


def drawn(rng: np.random.Generator, design: Design) -> Drawn:
    """Return one repetition."""
    m, n, sets = len(design.errors), design.seeds, design.seeds if design.nested else 1
    common = rng.normal(size=(1, sets, design.items))
    score = np.sqrt(0.5) * (common + rng.normal(size=(m, sets, design.items)))
    hardness = np.stack([np.interp(score[i], _GRID, _probits(error)) for i, error in enumerate(design.errors)])
    share = np.array(design.training)[:, None, None]
    training = np.sqrt(share) * rng.normal(size=(m, n, 1))
    wrong = rng.random((m, n, design.items)) < special.ndtr((hardness - training) / np.sqrt(1 - share))
    return Drawn(wrong.astype(np.float32), design.nested)


@cache
def _probits(error: float) -> NDArray[np.float64]:
    """Return the probit of the probability of an item by the score of the item, for probabilities of mean `error`."""
    probability = stats.beta.ppf(special.ndtr(_GRID), error, 1 - error)
    return np.asarray(special.ndtri(np.clip(probability, 1e-9, 1 - 1e-9)))


def compared(found: Drawn) -> Differences:
    """Return the differences as a report finds them, from outcomes."""
    ones = np.ones(found.wrong.shape[2], np.float32)
    outcomes = [
        [Outcomes(wrong, ones, f"set {seed if found.nested else 0}") for seed, wrong in enumerate(of_loss)]
        for of_loss in found.wrong
    ]
    return compare_all(found.wrong.mean(axis=2, dtype=float), sampling_noise(outcomes))


def repeat(design: Design, repetitions: int, method: Method = compared, seed: Sequence[int] = (0,)) -> Counts:
    """Count what goes wrong in repetitions of a design."""
    rng = np.random.default_rng(list(seed))
    uncovered = wrong = 0
    for _ in range(repetitions):
        missed = false = False
        for (i, j), difference in method(drawn(rng, design)).items():
            true, (low, high) = design.errors[i] - design.errors[j], difference.interval
            missed |= not low - 1e-9 <= true <= high + 1e-9
            false |= (low > 0 and true <= 0) or (high < 0 and true >= 0)
        uncovered, wrong = uncovered + missed, wrong + false
    return Counts(repetitions, uncovered, wrong)
