"""Simulated comparisons of losses whose true errors are known.

Tests count in them how often statements about the best loss are right. A scene is a way in which
errors vary between losses and seeds. A loss is left out, or excluded, if it is no contender: if it
is shown to be worse than the best.
"""

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
"""The standard deviation of logits between seeds: an error of 10 % is mostly 9.1 % to 11 %."""
HOPELESS = 20.0
"""The number of standard deviations by which a hopeless loss is worse."""
ERRATIC = 8.0
"""How many times as much as other losses a hopeless loss varies."""
ITEMS = 400
"""The number of test items, where test items are simulated."""
Size = tuple[int, int, int]
"""The numbers of comparisons, losses and seeds."""
Floats = NDArray[np.float64]


def _scaled(rng: np.random.Generator, size: Size, losses: int | slice, factor: float) -> Floats:
    """Return normal errors; the errors of some losses are multiplied by a factor."""
    errors = rng.normal(size=size)
    errors[:, losses] *= factor
    return errors


def _unequal(rng: np.random.Generator, size: Size) -> Floats:
    """Return normal errors of losses with standard deviations from 0.5 to 2.

    The deviations have another order in each comparison.
    """
    comparisons, losses, _ = size
    deviations = np.tile(np.geomspace(0.5, 2, losses), (comparisons, 1))
    errors = rng.normal(size=size)
    return np.asarray(errors * rng.permuted(deviations, axis=1)[:, :, None])


def _with_seed_effects(rng: np.random.Generator, size: Size) -> Floats:
    """Return normal errors plus larger ones that all losses of a seed have in common."""
    comparisons, _, seeds = size
    own = rng.normal(size=size)
    return own + 3 * rng.normal(size=(comparisons, 1, seeds))


def _collapsing(rng: np.random.Generator, size: Size, share: float) -> Floats:
    """Return errors of seeds, of which a share collapses: their errors are far larger."""
    noise = 0.3 * rng.normal(size=size)
    collapses = rng.random(size) < share
    # The mean over all seeds is 0.
    return noise + 4 * (collapses - share)


def _third_erratic(rng: np.random.Generator, size: Size) -> Floats:
    """Return normal errors; the last third of the losses varies 8 times as much as the others."""
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
"""Name of a scene -> a function that returns errors, (comparisons, losses, seeds).

The errors have the mean 0; their unit is the standard deviation between seeds.
"""


def most_by_chance(repetitions: int, promised: float = 0.05) -> float:
    """Return the largest share of failures that chance explains, by a binomial distribution.

    A method that fails with the promised probability exceeds it once in ten thousand tests.
    """
    return float(stats.binom.isf(1e-4, repetitions, promised)) / repetitions


def sample_logits(
    scene: str, means: Floats, seeds: int, comparisons: int, erratic: int = 0, error: float = 0.1
) -> Floats:
    """Return the logits of errors in simulated comparisons, (comparisons, losses, seeds).

    Args:
        scene: one of SCENES.
        means: (losses,), by how many standard deviations between seeds each loss is worse than a
            loss with the error `error`.
        seeds: the number of seeds.
        comparisons: the number of comparisons.
        erratic: how many of the last losses are HOPELESS deviations worse instead, and vary ERRATIC
            times as much.
        error: the error of a loss whose mean is 0.
    """
    rng = np.random.default_rng([list(SCENES).index(scene), len(means), seeds, erratic])
    errors = SCENES[scene](rng, (comparisons, len(means), seeds))
    means = means.copy()
    if erratic:
        errors[:, -erratic:] *= ERRATIC
        means[-erratic:] = HOPELESS
    return np.asarray(special.logit(error) + SPREAD * (means[:, None] + errors))


def left_out(scene: str, losses: int, seeds: int, comparisons: int, erratic: int = 0) -> float:
    """Return how often the first loss, which no loss is better than, is no contender."""
    values = sample_logits(scene, np.zeros(losses), seeds, comparisons, erratic)
    is_contender = many_contenders(values)[:, 0]
    return float((~is_contender).mean())


def power(worse: float, losses: int, seeds: int, comparisons: int) -> float:
    """Return how often the second loss is no contender.

    It is worse than all other losses, which are equal, by `worse` standard deviations.
    """
    means = np.zeros(losses)
    means[1] = worse
    return _second_left_out(means, seeds, comparisons)


def power_of_one(
    worse: float, losses: int, seeds: int, comparisons: int, erratic: int = 0
) -> float:
    """Return how often the second loss is no contender, where the first loss leads alone.

    The first loss leads all others by `worse` standard deviations.
    """
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
    """Return how often a loss is worse than the best by more than its bound.

    Losses are up to `far` deviations apart. The true error of a loss may be the error at its mean
    logit, or its mean error over a thousand further seeds: the first share is for the former, the
    second for the latter.
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
    """Return how many seeds would separate two losses (median), and how often they do.

    A comparison with few seeds says how many seeds would separate the first two losses. Its
    findings are then taken for the truth: its variances, and the lead of the first loss over the
    second, which is now its lead over all others. Further comparisons have that many seeds.
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
        # A comparison may give no number, or find that the worse loss is ahead. Beyond 100 seeds
        # further comparisons would take too long.
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
    """Return how often the first of equal losses is no contender, with simulated test items.

    An item is wrong with a probability that differs between items and losses. Its distribution is
    a beta distribution with the mean `error`, by a normal score: half of the variance of the score
    is common to all losses, since some items are hard for all. Training adds an error of its own to
    every network, on the probit scale, which does not change the mean.
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
    """Return the outcomes of a loss with each seed.

    Args:
        wrong: (seeds, items), 1 where an item is wrong.
        own_items: whether each seed has items of its own.
    """
    weights = np.ones(ITEMS, np.float32)
    outcomes = []
    for seed, of_seed in enumerate(wrong):
        # Outcomes with equal names of items are on the same items.
        items = str(seed) if own_items else "0"
        outcomes.append(Outcomes(of_seed, weights, items))
    return outcomes


def _wrong_items(
    rng: np.random.Generator, error: float, losses: int, seeds: int, own_items: bool
) -> Floats:
    """Return 1 for items that are wrong and 0 for others, (losses, seeds, items)."""
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
    """Return which losses may be the best, (comparisons, losses).

    This is the rule of `milbench.report.statistics` once more, in a form that judges thousands of
    comparisons at once in a hundredth of the time. It knows no missing seeds, no test items and no
    overlap. A test compares the two forms.

    Args:
        values: errors, (comparisons, losses, seeds).
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
        # One loss is compared with each loss, itself included: the difference from itself is 0.
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
    """Return moderated variances, their degrees of freedom, and the usual degrees of freedom.

    The first two have the shape (comparisons, losses). The usual degrees of freedom are those of a
    loss that varies no more than others, (comparisons,). The method is described in
    `milbench.report.statistics.variances`.
    """
    _, losses, seeds = values.shape
    own_freedom = seeds - 1
    own = _own_variances(values)
    if losses == 2:
        own_of_each = np.full(own.shape, float(own_freedom))
        return own, own_of_each, np.full(len(own), float(own_freedom))
    # The effect of a seed is the median over losses. With three losses the median may be the same
    # loss with every seed; its variance is then 0.
    positive = np.where(own > 0, own, np.nan)
    own = np.maximum(own, 1e-5 * np.nanmedian(positive, axis=1, keepdims=True))
    # How far the logarithms of the variances spread, beyond what chance explains for a variance
    # that is estimated from `seeds` values.
    logs = np.log(own)
    middle = np.median(logs, axis=1)
    deviation = np.median(np.abs(logs - middle[:, None]), axis=1) * losses / (losses - 1)
    by_chance = special.polygamma(1, own_freedom / 2)
    spread = by_chance * ((deviation / _typical_deviation(own_freedom)) ** 2 - 1)
    is_wide = spread >= 1e-3
    prior_freedom = _freedom_of_prior(spread)
    # The median of a variance is divided by this to give its expectation.
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
    """Return the variance of each loss between seeds, (comparisons, losses).

    Seed effects, which all losses have in common, are taken away.
    """
    losses = values.shape[1]
    without_means = values - values.mean(axis=2, keepdims=True)
    without_seed_effects = without_means - np.median(without_means, axis=1, keepdims=True)
    # Subtracting the median over losses takes a share of the variance away, as subtracting a mean
    # would: it is put back.
    return np.asarray(without_seed_effects.var(axis=2, ddof=1) * losses / (losses - 1))


def _freedom_of_prior(spread: Floats) -> Floats:
    """Return the degrees of freedom of the prior: twice the x whose trigamma is the spread."""
    log_spread = np.log(np.maximum(spread, 1e-3))
    log_half = np.interp(-log_spread, -np.log(_TRIGAMMA), np.log(_HALVES))
    return np.asarray(2 * np.exp(log_half))


def _typical_deviation(freedom: int) -> float:
    """Return the median absolute deviation of the logarithm of a sample variance.

    It is computed from a fine grid of the quantiles of the variance.
    """
    levels = (np.arange(100_000) + 0.5) / 100_000
    quantiles = np.log(stats.chi2.ppf(levels, freedom))
    return float(np.median(np.abs(quantiles - math.log(stats.chi2.median(freedom)))))
