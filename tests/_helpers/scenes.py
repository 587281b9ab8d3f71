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
    """Return seeds in two groups, of which one with a share of the seeds is far worse; the mean is taken away."""
    noise = 0.3 * rng.normal(size=size)
    collapses = rng.random(size) < share
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


def draw(
    scene: str, means: Floats, seeds: int, draws: int, erratic: int = 0, error: float = 0.1
) -> Floats:
    """Return the logits of losses in `draws` comparisons, (draws, losses, seeds).

    `means` (losses,) are by how many standard deviations between seeds each is worse than a loss of this `error`. The
    last `erratic` ones are HOPELESS deviations worse instead, and vary ERRATIC times as much.
    """
    rng = np.random.default_rng([list(SCENES).index(scene), len(means), seeds, erratic])
    errors = SCENES[scene](rng, (draws, len(means), seeds))
    means = means.copy()
    if erratic:
        errors[:, -erratic:] *= ERRATIC
        means[-erratic:] = HOPELESS
    return np.asarray(special.logit(error) + SPREAD * (means[:, None] + errors))


def left_out(scene: str, losses: int, seeds: int, draws: int, erratic: int = 0) -> float:
    """Return how often the first loss, as good as any, is no contender."""
    values = draw(scene, np.zeros(losses), seeds, draws, erratic)
    is_contender = many_contenders(values)[:, 0]
    return float((~is_contender).mean())


def power(
    worse: float, losses: int, seeds: int, draws: int, erratic: int = 0, alone: bool = False
) -> float:
    """Return how often the second loss, worse than the first, is no contender; `alone`: as all others but the first."""
    means = np.zeros(losses)
    means[1] = worse
    if alone:
        means[1:] = worse
    values = draw("normal", means, seeds, draws, erratic)
    is_contender = many_contenders(values)[:, 1]
    return float((~is_contender).mean())


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
    means = np.linspace(0, far, losses)
    deviations = np.concatenate([means[: losses - erratic], [HOPELESS] * erratic])
    typical = special.expit(special.logit(error) + SPREAD * deviations)
    missed_typical = 0
    missed_mean = 0
    for logits in draw(scene, means, seeds + 1000, draws, erratic, error):
        seen = special.expit(logits[:, :seeds])
        mean = special.expit(logits[:, seeds:]).mean(axis=1)
        bounds = contenders(seen).worse_by
        missed_typical += _is_beyond(typical, bounds)
        missed_mean += _is_beyond(mean, bounds)
    return missed_typical / draws, missed_mean / draws


def _is_beyond(errors: Floats, bounds: Floats) -> bool:
    """Return whether any loss is worse than the best by more than its bound."""
    worse_by = errors - errors.min()
    rounding = 1e-12
    return bool((worse_by > bounds + rounding).any())


def separated(worse: float, losses: int, seeds: int, draws: int) -> tuple[float, float]:
    """Return how many seeds would separate two losses (median), and how often so many do.

    A comparison with few seeds says how many; what it found is then the truth, all losses but one as bad as the worse.
    """
    rng = np.random.default_rng([losses, seeds])
    means = np.full(losses, worse)
    means[0] = 0
    numbers = []
    found = []
    for logits in draw("normal", means, seeds, draws):
        first = contenders(special.expit(logits))
        number = first.seeds_to_separate(0, 1)
        ahead = first.pairs.difference[1, 0]
        # Where it says nothing, or that the worse loss is ahead, there is nothing to try.
        if number is None or number > 100 or ahead <= 0:
            continue
        spread = np.sqrt(first.pairs.variances.values)[:, None]
        further = spread * rng.normal(size=(50, losses, number))
        further[:, 0] -= ahead
        is_contender = many_contenders(further)[:, 1]
        numbers.append(number)
        found.append((~is_contender).mean())
    return float(np.median(numbers)), float(np.mean(found))


def left_out_by_items(
    error: float, losses: int, seeds: int, own_items: bool, repetitions: int
) -> float:
    """Return how often the first of equal losses is no contender where 400 test items are simulated as well.

    An item is wrong with a probability that differs between items and losses, of a beta distribution of this mean. Half
    of the variance of the normal score behind it is common to all losses, since some items are hard for all. Training
    adds an error of its own to every network, on the probit scale, that leaves the mean as it is.
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
    sets = seeds if own_items else 1
    common = rng.normal(size=(1, sets, ITEMS))
    own = rng.normal(size=(losses, sets, ITEMS))
    score = np.sqrt(0.5) * (common + own)
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

    The rule of `milbench.report.statistics` once more, for thousands of comparisons at once, which takes a hundredth of
    the time: it knows no missing seeds, no test items and no overlap. A test holds the two against each other.
    """
    variances, freedom, usual_freedom = _moderated(values)
    _, losses, seeds = values.shape
    means = values.mean(axis=2)
    # Dunnett's quantile takes long, and is computed once for each tenth of a degree of freedom.
    tenths, which = np.unique(np.floor(10 * usual_freedom) / 10, return_inverse=True)
    levels = [stats.t.sf(dunnett(losses - 1, float(tenth)), tenth) for tenth in tenths]
    level = np.array(levels)[which]
    result = np.ones(means.shape, bool)
    for i in range(losses):
        own_variance = variances[:, [i]]
        own_freedom = freedom[:, [i]]
        both = own_variance + variances
        shared_freedom = both / (own_variance / own_freedom + variances / freedom)
        quantile = -special.stdtrit(shared_freedom, level[:, None])
        width = quantile * np.sqrt(both / seeds)
        result[:, i] = (means[:, [i]] - means <= width).all(axis=1)
    return result


def _moderated(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return moderated variances and their degrees of freedom, (comparisons, losses), and the usual ones of these.

    The usual degrees of freedom (comparisons,) are those of a loss that varies no more than others. The method is in
    `milbench.report.statistics.variances`.
    """
    _, losses, seeds = values.shape
    d = seeds - 1
    # What is left without the means of losses and the effects of seeds.
    left = values - values.mean(axis=2, keepdims=True)
    left = left - np.median(left, axis=1, keepdims=True)
    own = left.var(axis=2, ddof=1) * losses / (losses - 1)
    if losses == 2:
        return own, np.full(own.shape, float(d)), np.full(len(own), float(d))
    # The middle one of three losses takes the seed effects along, and is left with a variance of 0.
    positive = np.where(own > 0, own, np.nan)
    own = np.maximum(own, 1e-5 * np.nanmedian(positive, axis=1, keepdims=True))
    # How far the logarithms of the variances spread, beyond what a sample of `seeds` values explains.
    logs = np.log(own)
    place = np.median(logs, axis=1)
    deviation = np.median(np.abs(logs - place[:, None]), axis=1) * losses / (losses - 1)
    spread = special.polygamma(1, d / 2) * ((deviation / _typical_deviation(d)) ** 2 - 1)
    is_wide = spread >= 1e-3
    # The degrees of freedom of the prior are twice where the trigamma function is the spread.
    log_half = np.interp(-np.log(np.maximum(spread, 1e-3)), -np.log(_TRIGAMMA), np.log(_HALVES))
    prior = 2 * np.exp(log_half)
    # From the median of a variance to its expectation.
    of_prior = np.where(is_wide, stats.chi2.median(prior) / prior, 1)
    typical = np.exp(place) * d / stats.chi2.median(d) * of_prior
    posterior = (prior[:, None] * typical[:, None] + d * own) / (prior[:, None] + d)
    posterior = np.where(is_wide[:, None], posterior, typical[:, None])
    most_added = (2 / 3 * (losses - 1) - 1) * d
    added = np.minimum(np.where(is_wide, prior, np.inf), most_added)
    freedom = d + np.minimum(1, typical[:, None] / own) * added[:, None]
    # A loss that varies more than others keeps its own variance.
    return np.maximum(posterior, own), freedom, d + added


def _typical_deviation(d: int) -> float:
    """Return the median absolute deviation of the logarithm of a sample variance, from a fine grid of its quantiles."""
    quantiles = np.log(stats.chi2.ppf((np.arange(100_000) + 0.5) / 100_000, d))
    return float(np.median(np.abs(quantiles - math.log(stats.chi2.median(d)))))
