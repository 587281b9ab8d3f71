"""Losses of known error, drawn again and again: the truth against which statements about the best loss are counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from milbench.api.outcomes import Outcomes
from milbench.report.statistics.contenders import contenders
from milbench.report.statistics.sampling import sampling_noise

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SPREAD = 0.1
"""The standard deviation between seeds, of logits of an error of 10 %: between 9.1 and 11 % as a rule."""


def _standard(rng: np.random.Generator, losses: int, seeds: int) -> Floats:
    return rng.normal(size=(losses, seeds))


def _one_scaled(loss: int, factor: float) -> Callable[[np.random.Generator, int, int], Floats]:
    def draw(rng: np.random.Generator, losses: int, seeds: int) -> Floats:
        errors = rng.normal(size=(losses, seeds))
        errors[loss] *= factor
        return errors

    return draw


def _unequal(rng: np.random.Generator, losses: int, seeds: int) -> Floats:
    return np.asarray(rng.normal(size=(losses, seeds)) * rng.permutation(np.geomspace(0.5, 2, losses))[:, None])


def _collapsing(rng: np.random.Generator, losses: int, seeds: int, share: float) -> Floats:
    """Return seeds in two groups, with the mean taken away."""
    return 0.3 * rng.normal(size=(losses, seeds)) + 4 * ((rng.random((losses, seeds)) < share) - share)


SCENES: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "normal": _standard,
    "with seed effects": lambda rng, m, n: rng.normal(size=(m, n)) + 3 * rng.normal(size=n),
    "variances from 1 to 16": _unequal,
    "skewed to large errors": lambda rng, m, n: rng.exponential(size=(m, n)) - 1,
    "skewed to small errors": lambda rng, m, n: 1 - rng.exponential(size=(m, n)),
    "heavy tails (t, 3)": lambda rng, m, n: rng.standard_t(3, size=(m, n)) / np.sqrt(3),
    "the best varies 4 times as much": _one_scaled(0, 4),
    "another varies 4 times as much": _one_scaled(-1, 4),
    "the best varies a quarter as much": _one_scaled(0, 0.25),
    "half of the seeds collapse": lambda rng, m, n: _collapsing(rng, m, n, 0.5),
    "a fifth of the seeds collapse": lambda rng, m, n: _collapsing(rng, m, n, 0.2),
}
"""By name, errors of mean 0 on the scale of logits, (losses, seeds)."""


def shares(rng: np.random.Generator, scene: str, losses: int, seeds: int, worse: float = 0.0) -> Floats:
    """Return the errors of losses that are equal, (losses, seeds), but for the last one, `worse` deviations worse."""
    logits = SCENES[scene](rng, losses, seeds)
    logits[-1] += worse
    return np.asarray(special.expit(special.logit(0.1) + SPREAD * logits))


def left_out(scene: str, losses: int, seeds: int, repetitions: int) -> float:
    """Return how often the first loss, as good as any, is no contender."""
    rng = np.random.default_rng([losses, seeds, list(SCENES).index(scene)])
    return float(np.mean([not contenders(shares(rng, scene, losses, seeds))[0] for _ in range(repetitions)]))


def power(worse: float, losses: int, seeds: int, repetitions: int) -> tuple[float, float]:
    """Return how often a worse loss is no contender, and how often all pairs exclude it."""
    rng = np.random.default_rng([losses, seeds, 1000])
    found = 0, 0
    for _ in range(repetitions):
        drawn = shares(rng, "normal", losses, seeds, worse)
        found = found[0] + (not contenders(drawn)[-1]), found[1] + (not better_by_pairs(drawn)[-1])
    return found[0] / repetitions, found[1] / repetitions


def better_by_pairs(errors: Floats) -> Flags:
    """Return which losses no other one is better than by simultaneous paired intervals of all differences.

    The rule of earlier reports: Student's statistic of every pair, with the quantile of the largest of them.
    """
    losses, seeds = errors.shape
    differences = errors[:, None] - errors[None]
    deviations = differences.std(axis=2, ddof=1) + np.eye(losses)
    return np.asarray((differences.mean(axis=2) / deviations * np.sqrt(seeds) <= _largest(losses, seeds)).all(axis=1))


@cache
def _largest(losses: int, seeds: int) -> float:
    rng, draws = np.random.default_rng(0), 5000
    errors = rng.normal(size=(draws, losses, seeds))
    largest = np.zeros(draws)
    for i, j in combinations(range(losses), 2):
        difference = errors[:, i] - errors[:, j]
        statistic = np.abs(difference.mean(axis=1)) / difference.std(axis=1, ddof=1) * np.sqrt(seeds)
        largest = np.maximum(largest, statistic)
    return float(np.quantile(largest, 0.95))


def left_out_by_items(error: float, losses: int, seeds: int, own_items: bool, repetitions: int) -> float:
    """Return how often the first of equal losses is no contender where 400 test items are drawn as well.

    An item is wrong with a probability that differs between items and losses, of a beta distribution of this mean. Half
    of the variance of the normal score behind it is common to all losses, since some items are hard for all. Training
    adds an error of its own to every network, on the probit scale, that leaves the mean as it is.
    """
    rng = np.random.default_rng([losses, seeds, own_items, round(1000 * error)])
    ones, count = np.ones(400, np.float32), 0
    for _ in range(repetitions):
        wrong = _wrong_items(rng, error, losses, seeds, own_items)
        outcomes = [[Outcomes(w, ones, str(s if own_items else 0)) for s, w in enumerate(row)] for row in wrong]
        count += not contenders(wrong.mean(axis=2), noise=sampling_noise(outcomes))[0]
    return count / repetitions


def _wrong_items(rng: np.random.Generator, error: float, losses: int, seeds: int, own_items: bool) -> Floats:
    sets = seeds if own_items else 1
    score = np.sqrt(0.5) * (rng.normal(size=(1, sets, 400)) + rng.normal(size=(losses, sets, 400)))
    probit = special.ndtri(np.clip(stats.beta.ppf(special.ndtr(score), error, 1 - error), 1e-9, 1 - 1e-9))
    training = np.sqrt(0.02) * rng.normal(size=(losses, seeds, 1))
    chance = special.ndtr((probit - training) / np.sqrt(0.98))
    return np.asarray(rng.random((losses, seeds, 400)) < chance, float)
