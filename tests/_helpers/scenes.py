"""Simulated comparisons of losses of known error: the truth against which statements about the best are counted."""

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
HOPELESS = 20.0
"""A hopeless loss is worse by so many standard deviations."""
ERRATIC = 8.0
"""A hopeless loss varies so many times as much as others."""
ITEMS = 400
"""The test items that losses are judged on, where these are simulated."""
Size = tuple[int, int, int]
"""The numbers of comparisons, losses and seeds."""
Floats = NDArray[np.float64]


def _scaled(rng: np.random.Generator, size: Size, losses: int | slice, factor: float) -> Floats:
    """Return normal errors, of which those of some losses are multiplied."""
    errors = rng.normal(size=size)
    errors[:, losses] *= factor
    return errors


def _unequal(rng: np.random.Generator, size: Size) -> Floats:
    """Return normal errors with standard deviations from 0.5 to 2, in another order in each comparison."""
    comparisons, losses, _ = size
    deviations = np.tile(np.geomspace(0.5, 2, losses), (comparisons, 1))
    errors = rng.normal(size=size)
    return np.asarray(errors * rng.permuted(deviations, axis=1)[:, :, None])


def _with_seed_effects(rng: np.random.Generator, size: Size) -> Floats:
    """Return normal errors, and larger ones that all losses of a seed have in common."""
    comparisons, _, seeds = size
    own = rng.normal(size=size)
    return own + 3 * rng.normal(size=(comparisons, 1, seeds))


def _collapsing(rng: np.random.Generator, size: Size, share: float) -> Floats:
    """Return errors of which a share is far larger, since these seeds collapse."""
    noise = 0.3 * rng.normal(size=size)
    collapses = rng.random(size) < share
    # The mean over all seeds is 0.
    return noise + 4 * (collapses - share)


def _third_erratic(rng: np.random.Generator, size: Size) -> Floats:
    """Return normal errors, of which those of the last third of the losses vary 8 times as much."""
    _, losses, _ = size
    first_erratic = losses - losses // 3
    return _scaled(rng, size, slice(first_erratic, None), 8)


SCENES: dict[str, Callable[[np.random.Generator, Size], Floats]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "with seed effects": _with_seed_effects,
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
    "a third of the losses vary 8 times as much": _third_erratic,
}
"""By name, errors of mean 0 on the scale of logits, (comparisons, losses, seeds)."""


def most_by_chance(repetitions: int, promised: float = 0.05) -> float:
    """Return the largest share of repetitions in which a method may fail that fails with the promised probability.

    It is exceeded once in ten thousand counts.
    """
    return float(stats.binom.isf(1e-4, repetitions, promised)) / repetitions


def sample_logits(
    scene: str, means: Floats, seeds: int, comparisons: int, erratic: int = 0, error: float = 0.1
) -> Floats:
    """Return the logits of errors in simulated comparisons, (comparisons, losses, seeds).

    Args:
        scene: one of SCENES.
        means: (losses,), by how many standard deviations between seeds each loss is worse than one
            with this error.
        seeds: their number.
        comparisons: their number.
        erratic: so many of the last losses are HOPELESS deviations worse instead, and vary ERRATIC
            times as much.
        error: that of a loss whose mean is 0.
    """
    rng = np.random.default_rng([list(SCENES).index(scene), len(means), seeds, erratic])
    errors = SCENES[scene](rng, (comparisons, len(means), seeds))
    means = means.copy()
    if erratic:
        errors[:, -erratic:] *= ERRATIC
        means[-erratic:] = HOPELESS
    return np.asarray(special.logit(error) + SPREAD * (means[:, None] + errors))


def left_out(scene: str, losses: int, seeds: int, comparisons: int, erratic: int = 0) -> float:
    """Return how often the first loss, as good as any, is no contender."""
    values = sample_logits(scene, np.zeros(losses), seeds, comparisons, erratic)
    is_contender = many_contenders(values)[:, 0]
    return float((~is_contender).mean())


def power(worse: float, losses: int, seeds: int, comparisons: int) -> float:
    """Return how often the second loss, so many deviations worse than all others, is no contender."""
    means = np.zeros(losses)
    means[1] = worse
    return _second_left_out(means, seeds, comparisons)


def power_of_one(
    worse: float, losses: int, seeds: int, comparisons: int, erratic: int = 0
) -> float:
    """Return how often the second loss is no contender where the first one leads all by so many deviations."""
    means = np.full(losses, worse)
    means[0] = 0
    return _second_left_out(means, seeds, comparisons, erratic)


def _second_left_out(means: Floats, seeds: int, comparisons: int, erratic: int = 0) -> float:
    values = sample_logits("normal", means, seeds, comparisons, erratic)
    is_contender = many_contenders(values)[:, 1]
    return float((~is_contender).mean())


def bounds_missed(
    scene: str,
    far: float,
    losses: int,
    seeds: int,
    comparisons: int,
    error: float = 0.1,
    erratic: int = 0,
) -> tuple[float, float]:
    """Return in which share of comparisons a loss is worse than the best by more than its bound.

    Losses are up to `far` deviations apart. The first share is of errors whose logit is the mean
    logit, the second one of mean errors, over a thousand further seeds.
    """
    means = np.linspace(0, far, losses)
    deviations = np.concatenate([means[: losses - erratic], [HOPELESS] * erratic])
    typical = special.expit(special.logit(error) + SPREAD * deviations)
    missed_typical = 0
    missed_mean = 0
    for logits in sample_logits(scene, means, seeds + 1000, comparisons, erratic, error):
        seen = special.expit(logits[:, :seeds])
        mean = special.expit(logits[:, seeds:]).mean(axis=1)
        bounds = contenders(seen).worse_by
        missed_typical += _is_beyond(typical, bounds)
        missed_mean += _is_beyond(mean, bounds)
    return missed_typical / comparisons, missed_mean / comparisons


def _is_beyond(errors: Floats, bounds: Floats) -> bool:
    """Return whether any loss is worse than the best by more than its bound."""
    worse_by = errors - errors.min()
    rounding = 1e-12
    return bool((worse_by > bounds + rounding).any())


def separated(worse: float, losses: int, seeds: int, comparisons: int) -> tuple[float, float]:
    """Return how many seeds would separate two losses (median), and how often so many do.

    A comparison with few seeds says how many. What it found is then taken for the truth: its
    variances, and by how much the first loss is ahead of the second one, and now of all others.
    """
    rng = np.random.default_rng([losses, seeds])
    means = np.full(losses, worse)
    means[0] = 0
    numbers = []
    shares = []
    for logits in sample_logits("normal", means, seeds, comparisons):
        found = contenders(special.expit(logits))
        number = found.seeds_to_separate(0, 1)
        ahead = found.pairs.difference[1, 0]
        # Where it says nothing, or that the worse loss is ahead, there is nothing to try.
        if number is None or number > 100 or ahead <= 0:
            continue
        spread = np.sqrt(found.pairs.variances.values)[:, None]
        further = spread * rng.normal(size=(50, losses, number))
        further[:, 0] -= ahead
        is_contender = many_contenders(further)[:, 1]
        numbers.append(number)
        shares.append((~is_contender).mean())
    return float(np.median(numbers)), float(np.mean(shares))


def left_out_by_items(
    error: float, losses: int, seeds: int, own_items: bool, repetitions: int
) -> float:
    """Return how often the first of equal losses is no contender where 400 test items are simulated as well.

    An item is wrong with a probability that differs between items and losses, of a beta
    distribution of this mean. Half of the variance of the normal score behind it is common to all
    losses, since some items are hard for all. Training adds an error of its own to every network,
    on the probit scale, that leaves the mean as it is.
    """
    rng = np.random.default_rng([losses, seeds, own_items, round(1000 * error)])
    count = 0
    for _ in range(repetitions):
        wrong = _wrong_items(rng, error, losses, seeds, own_items)
        outcomes = [_outcomes(of_loss, own_items) for of_loss in wrong]
        found = contenders(wrong.mean(axis=2), noise=sampling_noise(outcomes))
        if not found.contender[0]:
            count += 1
    return count / repetitions


def _outcomes(wrong: Floats, own_items: bool) -> list[Outcomes]:
    """Return the outcomes of a loss, one for each seed, from which items are wrong (seeds, items)."""
    weights = np.ones(ITEMS, np.float32)
    outcomes = []
    for seed, of_seed in enumerate(wrong):
        # Outcomes on the same items have the same name of the items.
        items = str(seed) if own_items else "0"
        outcomes.append(Outcomes(of_seed, weights, items))
    return outcomes


def _wrong_items(
    rng: np.random.Generator, error: float, losses: int, seeds: int, own_items: bool
) -> Floats:
    """Return which items are wrong, (losses, seeds, items)."""
    sets_of_items = seeds if own_items else 1
    hard_for_all = rng.normal(size=(1, sets_of_items, ITEMS))
    hard_for_one = rng.normal(size=(losses, sets_of_items, ITEMS))
    score = np.sqrt(0.5) * (hard_for_all + hard_for_one)
    prob = stats.beta.ppf(special.ndtr(score), error, 1 - error)
    probit = special.ndtri(np.clip(prob, 1e-9, 1 - 1e-9))
    # The mean of ndtr((probit - x) / sqrt(1 - v)) over normal x of variance v is ndtr(probit).
    variance = 0.02
    training = np.sqrt(variance) * rng.normal(size=(losses, seeds, 1))
    chance = special.ndtr((probit - training) / np.sqrt(1 - variance))
    return np.asarray(rng.random((losses, seeds, ITEMS)) < chance, float)


_HALVES = np.geomspace(1e-4, 1e4, 20_000)
_TRIGAMMA = special.zeta(2, _HALVES)
"""The trigamma function at _HALVES, a table for its inverse."""


def many_contenders(values: Floats) -> NDArray[np.bool_]:
    """Return which losses may be the best, (comparisons, losses), from errors (comparisons, losses, seeds).

    The rule of `milbench.report.statistics` once more, for thousands of comparisons at once, which
    takes a hundredth of the time: it knows no missing seeds, no test items and no overlap. A test
    holds the two against each other.
    """
    variances, freedom, usual_freedom = _moderated(values)
    _, losses, seeds = values.shape
    means = values.mean(axis=2)
    # Dunnett's quantile takes long, and is computed once for each tenth of a degree of freedom.
    tenths, which = np.unique(np.floor(10 * usual_freedom) / 10, return_inverse=True)
    levels = [stats.t.sf(dunnett(losses - 1, float(tenth)), tenth) for tenth in tenths]
    level = np.array(levels)[which]
    is_contender = np.ones(means.shape, bool)
    for loss in range(losses):
        # One loss against each, itself included: from that it does not differ.
        own_variance = variances[:, [loss]]
        own_freedom = freedom[:, [loss]]
        both = own_variance + variances
        shared_freedom = both / (own_variance / own_freedom + variances / freedom)
        quantile = -special.stdtrit(shared_freedom, level[:, None])
        width = quantile * np.sqrt(both / seeds)
        difference = means[:, [loss]] - means
        is_contender[:, loss] = (difference <= width).all(axis=1)
    return is_contender


def _moderated(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return moderated variances and their degrees of freedom, (comparisons, losses), and the usual ones of these.

    The usual degrees of freedom (comparisons,) are those of a loss that varies no more than others.
    The method is in `milbench.report.statistics.variances`.
    """
    _, losses, seeds = values.shape
    own_freedom = seeds - 1
    own = _own_variances(values)
    if losses == 2:
        own_of_each = np.full(own.shape, float(own_freedom))
        return own, own_of_each, np.full(len(own), float(own_freedom))
    # The middle one of three losses takes the seed effects along, and is left with a variance of 0.
    positive = np.where(own > 0, own, np.nan)
    own = np.maximum(own, 1e-5 * np.nanmedian(positive, axis=1, keepdims=True))
    # How far the logarithms of the variances spread, beyond what a sample of `seeds` values
    # explains.
    logs = np.log(own)
    middle = np.median(logs, axis=1)
    deviation = np.median(np.abs(logs - middle[:, None]), axis=1) * losses / (losses - 1)
    by_chance = special.polygamma(1, own_freedom / 2)
    spread = by_chance * ((deviation / _typical_deviation(own_freedom)) ** 2 - 1)
    is_wide = spread >= 1e-3
    prior_freedom = _freedom_of_prior(spread)
    # From the median of a variance to its expectation.
    of_prior = np.where(is_wide, stats.chi2.median(prior_freedom) / prior_freedom, 1)
    typical = np.exp(middle) * own_freedom / stats.chi2.median(own_freedom) * of_prior
    # The mean of the typical and of a loss's own variance, weighted by their degrees of freedom.
    weighted = prior_freedom[:, None] * typical[:, None] + own_freedom * own
    posterior = weighted / (prior_freedom[:, None] + own_freedom)
    posterior = np.where(is_wide[:, None], posterior, typical[:, None])
    most_added = (2 / 3 * (losses - 1) - 1) * own_freedom
    added = np.minimum(np.where(is_wide, prior_freedom, np.inf), most_added)
    freedom = own_freedom + np.minimum(1, typical[:, None] / own) * added[:, None]
    # A loss that varies more than others keeps its own variance.
    return np.maximum(posterior, own), freedom, own_freedom + added


def _own_variances(values: Floats) -> Floats:
    """Return the variance of each loss between seeds, (comparisons, losses), without what a seed does to all losses."""
    losses = values.shape[1]
    without_means = values - values.mean(axis=2, keepdims=True)
    without_seed_effects = without_means - np.median(without_means, axis=1, keepdims=True)
    # The median takes a share of the variance along.
    return np.asarray(without_seed_effects.var(axis=2, ddof=1) * losses / (losses - 1))


def _freedom_of_prior(spread: Floats) -> Floats:
    """Return twice where the trigamma function is the spread."""
    log_spread = np.log(np.maximum(spread, 1e-3))
    log_half = np.interp(-log_spread, -np.log(_TRIGAMMA), np.log(_HALVES))
    return np.asarray(2 * np.exp(log_half))


def _typical_deviation(freedom: int) -> float:
    """Return the median absolute deviation of the logarithm of a sample variance, from a fine grid of its quantiles."""
    levels = (np.arange(100_000) + 0.5) / 100_000
    quantiles = np.log(stats.chi2.ppf(levels, freedom))
    return float(np.median(np.abs(quantiles - math.log(stats.chi2.median(freedom)))))
