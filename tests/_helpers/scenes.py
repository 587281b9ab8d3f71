"""Losses of known error, drawn again and again: the truth against which statements about the best loss are counted."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.contenders import contenders
from milbench.report.statistics.pairs import dunnett
from milbench.report.statistics.sampling import sampling_noise

SPREAD = 0.1
"""The standard deviation between seeds, of logits of an error of 10 %: between 9.1 and 11 % as a rule."""
HOPELESS, ERRATIC = 20.0, 8.0
"""A hopeless loss is so many standard deviations worse, and varies so many times as much."""
Size = tuple[int, int, int]
Floats = NDArray[np.float64]


def _scaled(rng: np.random.Generator, size: Size, losses: int | slice, factor: float) -> Floats:
    errors = rng.normal(size=size)
    errors[:, losses] *= factor
    return errors


def _unequal(rng: np.random.Generator, size: Size) -> Floats:
    factors = np.tile(np.geomspace(0.5, 2, size[1]), (size[0], 1))
    return np.asarray(rng.normal(size=size) * rng.permuted(factors, axis=1)[:, :, None])


def _collapsing(rng: np.random.Generator, size: Size, share: float) -> Floats:
    """Return seeds in two groups, with the mean taken away."""
    return 0.3 * rng.normal(size=size) + 4 * ((rng.random(size) < share) - share)


SCENES: dict[str, Callable[[np.random.Generator, Size], Floats]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "with seed effects": lambda rng, size: (
        rng.normal(size=size) + 3 * rng.normal(size=(size[0], 1, size[2]))
    ),
    "variances from 1 to 16": _unequal,
    "skewed to large errors": lambda rng, size: rng.exponential(size=size) - 1,
    "skewed to small errors": lambda rng, size: 1 - rng.exponential(size=size),
    "heavy tails (t, 3)": lambda rng, size: rng.standard_t(3, size=size) / np.sqrt(3),
    "the best varies 4 times as much": lambda rng, size: _scaled(rng, size, 0, 4),
    "the best varies 8 times as much": lambda rng, size: _scaled(rng, size, 0, 8),
    "another varies 4 times as much": lambda rng, size: _scaled(rng, size, -1, 4),
    "another varies 8 times as much": lambda rng, size: _scaled(rng, size, -1, 8),
    "the best varies a quarter as much": lambda rng, size: _scaled(rng, size, 0, 0.25),
    "half of the seeds collapse": lambda rng, size: _collapsing(rng, size, 0.5),
    "a fifth of the seeds collapse": lambda rng, size: _collapsing(rng, size, 0.2),
    "a third of the losses vary 8 times as much": lambda rng, n: _scaled(
        rng, n, slice(n[1] - n[1] // 3, None), 8
    ),
}
"""By name, errors of mean 0 on the scale of logits, (draws, losses, seeds)."""


def draw(
    scene: str, means: Floats, seeds: int, draws: int, erratic: int = 0, error: float = 0.1
) -> Floats:
    """Return the logits of losses in many comparisons, (draws, losses, seeds).

    `means` (losses,) are by how many standard deviations between seeds each is worse than a loss of this `error`. The
    last `erratic` ones are HOPELESS deviations worse instead, and vary ERRATIC times as much.
    """
    rng = np.random.default_rng([list(SCENES).index(scene), len(means), seeds, erratic])
    errors, means = SCENES[scene](rng, (draws, len(means), seeds)), means.copy()
    if erratic:
        errors[:, -erratic:], means[-erratic:] = errors[:, -erratic:] * ERRATIC, HOPELESS
    return np.asarray(special.logit(error) + SPREAD * (means[:, None] + errors))


def left_out(scene: str, losses: int, seeds: int, draws: int, erratic: int = 0) -> float:
    """Return how often the first loss, as good as any, is no contender."""
    return float(
        (~many_contenders(draw(scene, np.zeros(losses), seeds, draws, erratic))[:, 0]).mean()
    )


def power(
    worse: float, losses: int, seeds: int, draws: int, erratic: int = 0, alone: bool = False
) -> float:
    """Return how often the second loss, worse than the first, is no contender; `alone`: as all others but the first."""
    means = np.full(losses, worse if alone else 0.0)
    means[:2] = 0, worse
    return float((~many_contenders(draw("normal", means, seeds, draws, erratic))[:, 1]).mean())


def missed(
    scene: str,
    far: float,
    losses: int,
    seeds: int,
    draws: int,
    error: float = 0.1,
    erratic: int = 0,
) -> tuple[float, float]:
    """Return how often a loss is worse than the best by more than its bound, of losses up to `far` deviations apart.

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

    A comparison with few seeds says how many; what it found is then the truth, all losses but one as bad as the worse.
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


def left_out_by_items(
    error: float, losses: int, seeds: int, own_items: bool, repetitions: int
) -> float:
    """Return how often the first of equal losses is no contender where 400 test items are drawn as well.

    An item is wrong with a probability that differs between items and losses, of a beta distribution of this mean. Half
    of the variance of the normal score behind it is common to all losses, since some items are hard for all. Training
    adds an error of its own to every network, on the probit scale, that leaves the mean as it is.
    """
    rng = np.random.default_rng([losses, seeds, own_items, round(1000 * error)])
    ones, count = np.ones(400, np.float32), 0
    for _ in range(repetitions):
        wrong = _wrong_items(rng, error, losses, seeds, own_items)
        outcomes = [
            [Outcomes(w, ones, str(s if own_items else 0)) for s, w in enumerate(row)]
            for row in wrong
        ]
        count += not contenders(wrong.mean(axis=2), noise=sampling_noise(outcomes)).contender[0]
    return count / repetitions


def _wrong_items(
    rng: np.random.Generator, error: float, losses: int, seeds: int, own_items: bool
) -> Floats:
    sets = seeds if own_items else 1
    score = np.sqrt(0.5) * (rng.normal(size=(1, sets, 400)) + rng.normal(size=(losses, sets, 400)))
    probit = special.ndtri(
        np.clip(stats.beta.ppf(special.ndtr(score), error, 1 - error), 1e-9, 1 - 1e-9)
    )
    training = np.sqrt(0.02) * rng.normal(size=(losses, seeds, 1))
    chance = special.ndtr((probit - training) / np.sqrt(0.98))
    return np.asarray(rng.random((losses, seeds, 400)) < chance, float)


_HALVES = np.geomspace(1e-4, 1e4, 20_000)
_TRIGAMMA = special.zeta(2, _HALVES)


def many_contenders(values: Floats) -> NDArray[np.bool_]:
    """Return which losses may be the best, (draws, losses), by values (draws, losses, seeds), small is good.

    The rule of `milbench.report.statistics` once more, for thousands of comparisons at once, which takes a hundredth of
    the time: it knows no missing seeds, no test items and no overlap. A test holds the two against each other.
    """
    variances, freedom, usual = _moderated(values)
    rivals, means = values.shape[1] - 1, values.mean(axis=2)
    steps, where = np.unique(np.floor(10 * usual) / 10, return_inverse=True)
    level = np.array([stats.t.sf(dunnett(rivals, float(f)), f) for f in steps])[where]
    result = np.ones(means.shape, bool)
    for i in range(rivals + 1):
        both = variances[:, [i]] + variances
        shared = both / (variances[:, [i]] / freedom[:, [i]] + variances / freedom)
        width = -special.stdtrit(shared, level[:, None]) * np.sqrt(both / values.shape[2])
        result[:, i] = (means[:, [i]] - means <= width).all(axis=1)
    return result


def _moderated(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return variances and degrees of freedom, (draws, losses), and the usual degrees of freedom, (draws,)."""
    _, losses, seeds = values.shape
    d = seeds - 1
    left = values - values.mean(axis=2, keepdims=True)
    left = left - np.median(left, axis=1, keepdims=True)
    own = left.var(axis=2, ddof=1) * losses / (losses - 1)
    if losses == 2:
        return own, np.full(own.shape, float(d)), np.full(len(own), float(d))
    positive = np.where(
        own > 0, own, np.nan
    )  # the middle one of three losses takes the seed effects along
    own = np.maximum(own, 1e-5 * np.nanmedian(positive, axis=1, keepdims=True))
    logs = np.log(own)
    place = np.median(logs, axis=1)
    deviation = np.median(np.abs(logs - place[:, None]), axis=1) * losses / (losses - 1)
    spread = special.polygamma(1, d / 2) * ((deviation / _typical_deviation(d)) ** 2 - 1)
    prior = 2 * np.exp(
        np.interp(-np.log(np.maximum(spread, 1e-3)), -np.log(_TRIGAMMA), np.log(_HALVES))
    )
    wide = spread >= 1e-3
    typical = (
        np.exp(place)
        * d
        / stats.chi2.median(d)
        * np.where(wide, stats.chi2.median(prior) / prior, 1)
    )
    posterior = (prior[:, None] * typical[:, None] + d * own) / (prior[:, None] + d)
    posterior = np.where(wide[:, None], posterior, typical[:, None])
    added = np.minimum(np.where(wide, prior, np.inf), (2 / 3 * (losses - 1) - 1) * d)
    freedom = d + np.minimum(1, typical[:, None] / own) * added[:, None]
    return np.maximum(posterior, own), freedom, d + added


def _typical_deviation(d: int) -> float:
    """Return the median absolute deviation of the logarithm of a sample variance, from a fine grid of its quantiles."""
    quantiles = np.log(stats.chi2.ppf((np.arange(100_000) + 0.5) / 100_000, d))
    return float(np.median(np.abs(quantiles - math.log(stats.chi2.median(d)))))
