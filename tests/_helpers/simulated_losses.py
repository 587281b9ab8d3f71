"""Losses of known error, drawn again and again: the truth against which statements about the best loss are counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special, stats

from milbench.api.outcomes import Outcomes
from milbench.report.statistics.contenders import contenders
from milbench.report.statistics.sampling import sampling_noise
from tests._helpers.many_comparisons import Floats, many_contenders

SPREAD = 0.1
"""The standard deviation between seeds, of logits of an error of 10 %: between 9.1 and 11 % as a rule."""
HOPELESS, ERRATIC = 20.0, 8.0
"""A hopeless loss is so many standard deviations worse, and varies so many times as much."""
Size = tuple[int, int, int]


def _one_scaled(loss: int, factor: float) -> Callable[[np.random.Generator, Size], Floats]:
    def errors(rng: np.random.Generator, size: Size) -> Floats:
        result = rng.normal(size=size)
        result[:, loss] *= factor
        return result

    return errors


def _last_third_scaled(rng: np.random.Generator, size: Size) -> Floats:
    errors = rng.normal(size=size)
    errors[:, size[1] - size[1] // 3 :] *= 8
    return errors


def _unequal(rng: np.random.Generator, size: Size) -> Floats:
    factors = np.tile(np.geomspace(0.5, 2, size[1]), (size[0], 1))
    return np.asarray(rng.normal(size=size) * rng.permuted(factors, axis=1)[:, :, None])


def _collapsing(rng: np.random.Generator, size: Size, share: float) -> Floats:
    """Return seeds in two groups, with the mean taken away."""
    return 0.3 * rng.normal(size=size) + 4 * ((rng.random(size) < share) - share)


SCENES: dict[str, Callable[[np.random.Generator, Size], Floats]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "with seed effects": lambda rng, size: rng.normal(size=size) + 3 * rng.normal(size=(size[0], 1, size[2])),
    "variances from 1 to 16": _unequal,
    "skewed to large errors": lambda rng, size: rng.exponential(size=size) - 1,
    "skewed to small errors": lambda rng, size: 1 - rng.exponential(size=size),
    "heavy tails (t, 3)": lambda rng, size: rng.standard_t(3, size=size) / np.sqrt(3),
    "the best varies 4 times as much": _one_scaled(0, 4),
    "the best varies 8 times as much": _one_scaled(0, 8),
    "another varies 4 times as much": _one_scaled(-1, 4),
    "another varies 8 times as much": _one_scaled(-1, 8),
    "the best varies a quarter as much": _one_scaled(0, 0.25),
    "half of the seeds collapse": lambda rng, size: _collapsing(rng, size, 0.5),
    "a fifth of the seeds collapse": lambda rng, size: _collapsing(rng, size, 0.2),
    "a third of the losses vary 8 times as much": _last_third_scaled,
}
"""By name, errors of mean 0 on the scale of logits, (draws, losses, seeds)."""


def draw(scene: str, means: Floats, seeds: int, draws: int, erratic: int = 0, error: float = 0.1) -> Floats:
    """Return the logits of losses in many comparisons, (draws, losses, seeds); the last few are hopeless and erratic.

    Args:
        means: (losses,), by how many standard deviations between seeds each is worse than a loss of this `error`.
        erratic: how many are HOPELESS deviations worse instead, and vary ERRATIC times as much.
    """
    rng = np.random.default_rng([list(SCENES).index(scene), len(means), seeds, erratic])
    errors, means = SCENES[scene](rng, (draws, len(means), seeds)), means.copy()
    if erratic:
        errors[:, -erratic:], means[-erratic:] = errors[:, -erratic:] * ERRATIC, HOPELESS
    return np.asarray(special.logit(error) + SPREAD * (means[:, None] + errors))


def left_out(scene: str, losses: int, seeds: int, draws: int, erratic: int = 0) -> float:
    """Return how often the first loss, as good as any, is no contender."""
    return float((~many_contenders(draw(scene, np.zeros(losses), seeds, draws, erratic))[:, 0]).mean())


def power(worse: float, losses: int, seeds: int, draws: int, erratic: int = 0, alone: bool = False) -> float:
    """Return how often the second loss, worse than the first, is no contender; `alone`: as all others but the first."""
    means = np.full(losses, worse if alone else 0.0)
    means[:2] = 0, worse
    return float((~many_contenders(draw("normal", means, seeds, draws, erratic))[:, 1]).mean())


def missed(
    scene: str, far: float, losses: int, seeds: int, draws: int, error: float = 0.1, erratic: int = 0
) -> tuple[float, float]:
    """Return how often a loss is worse than the best by more than its bound, of losses up to `far` deviations apart.

    Returns:
        For errors whose logit is the mean logit, and for mean errors (of a thousand further seeds).
    """
    means, count = np.linspace(0, far, losses), np.zeros(2)
    typical = special.logit(error) + SPREAD * np.r_[means[: losses - erratic], [HOPELESS] * erratic]
    for logits in draw(scene, means, seeds + 1000, draws, erratic, error):
        truths = np.stack([special.expit(typical), special.expit(logits[:, seeds:]).mean(axis=1)])
        bounds = contenders(special.expit(logits[:, :seeds])).worse_by
        count += (truths - truths.min(axis=1, keepdims=True) > bounds + 1e-12).any(axis=1)
    return float(count[0] / draws), float(count[1] / draws)


def separated(worse: float, losses: int, seeds: int, draws: int) -> tuple[float, float]:
    """Return how many seeds would separate two losses (median), and how often so many do.

    A comparison with few seeds says how many are needed. Then the differences and variances that it found are the true
    ones, and all losses but the better one are as bad as the worse one.
    """
    rng, found, numbers = np.random.default_rng([losses, seeds]), [], []
    for logits in draw("normal", np.r_[0.0, np.full(losses - 1, worse)], seeds, draws):
        first = contenders(special.expit(logits))
        number, ahead = first.seeds_to_separate(0, 1), first.pairs.difference[1, 0]
        if number is not None and number <= 100 and ahead > 0:
            spread = np.sqrt(first.pairs.variances.values)[:, None]
            further = spread * rng.normal(size=(50, losses, number))
            further[:, 0] -= ahead
            numbers.append(number)
            found.append((~many_contenders(further)[:, 1]).mean())
    return float(np.median(numbers)), float(np.mean(found))


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
        count += not contenders(wrong.mean(axis=2), noise=sampling_noise(outcomes)).contender[0]
    return count / repetitions


def _wrong_items(rng: np.random.Generator, error: float, losses: int, seeds: int, own_items: bool) -> Floats:
    sets = seeds if own_items else 1
    score = np.sqrt(0.5) * (rng.normal(size=(1, sets, 400)) + rng.normal(size=(losses, sets, 400)))
    probit = special.ndtri(np.clip(stats.beta.ppf(special.ndtr(score), error, 1 - error), 1e-9, 1 - 1e-9))
    training = np.sqrt(0.02) * rng.normal(size=(losses, seeds, 1))
    chance = special.ndtr((probit - training) / np.sqrt(0.98))
    return np.asarray(rng.random((losses, seeds, 400)) < chance, float)
