"""Simultaneous intervals of all differences between losses, over training seeds and test items.

The difference of two losses is the mean over their common seeds of their difference with one seed. Its error has two
parts. One differs from seed to seed: the training, and what the test items add with one seed alone. The n differences
show its variance S^2 with n - 1 degrees of freedom. The other part is common to all seeds, as they share test items; it
does not shrink with more seeds, and the n differences do not show it. The outcomes of the items do.

The half width of an interval of level a is

    sqrt( max(t^2 S^2, z^2 own) / n  +  z^2 shared ),      t, z: the quantiles 1 - a/2 of Student's t with n - 1
                                                            degrees of freedom and of the normal distribution

where `shared` is the covariance that the test items give to the differences with two seeds, and `own` what their
variance has beyond it. Without the maximum this is Banerjee's interval (Sankhya 22, 1960, pp. 357-358), which for
normal errors covers at least 1 - a of the time whatever the shares of the two parts are. The maximum can only widen it:
three seeds may agree by luck, but never better than their test items allow. Where each seed has items of its own,
`shared` is 0.

Where every seed splits the same bags in another way, into folds of a cross-validation or at random, 1/n becomes
1/n + r, with r test bags for each training bag: splits share bags, so that their mean varies by about r S^2 more than
that of independent ones (C. Nadeau and Y. Bengio, "Inference for the Generalization Error", Machine Learning 52, 2003,
pp. 239-281: the corrected resampled t-test).

All pairs of a family are compared with one level, the largest at which no more than 5 % of parametric bootstrap draws
of their losses have a difference outside its interval (`common_level`; the largest statistic as in Westfall and Young,
"Resampling-Based Multiple Testing", Wiley 1993). It never falls below Sidak's, which is right for independent pairs. A
family is all pairs of losses, or the few that were named in advance, whose intervals are then narrower.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from milbench.report.statistics.sampling import Floats, SamplingNoise

LEVEL = 0.95
FEWEST_SEEDS = 3
"""With fewer common seeds there is no interval: one or two differences do not show how much they vary."""
MOST_SEEDS = 10_000
"""More seeds than these are not looked at when the number of seeds that would resolve a difference is sought."""
_ROUNDING = 1e-12  # a difference or a standard deviation below it is one of floating point
DRAWS = 5000
CAUTION = 4
"""How many times the variance that the seeds show the bootstrap gives to training, see `common_level`."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The difference of two losses and the parts of its variance.

    Args:
        first: the index of the loss from which the other is subtracted.
        second: the index of that other.
        common: (n,) booleans, the seeds that both have.
        difference: the mean over these of first minus second.
        variance: S^2, between seeds (n - 1); nan for fewer than two.
        own: the variance that the test items give to the difference with one seed alone; 0 where they are not known.
        shared: the variance that they give to the differences with all seeds; 0 where seeds do not share items.
        items: the least number of test items, 0 where they are not known.
    """

    first: int
    second: int
    common: NDArray[np.bool_]
    difference: float
    variance: float
    own: float
    shared: float
    items: int

    @property
    def seeds(self) -> int:
        """The number of common seeds."""
        return int(self.common.sum())


def half_width(
    level: float, seeds: ArrayLike, variance: ArrayLike, own: ArrayLike, shared: ArrayLike, overlap: float = 0.0
) -> Floats:
    """Return the half width of intervals that each miss with probability `level` at most; see the top of this file.

    Args:
        level: such as 0.05.
        seeds: their number n.
        variance: S^2, like the next two of `Parts`; all of shapes that fit together.
        own: the part from test items that differs between seeds.
        shared: the part from test items that all seeds share.
        overlap: r, how many bags are tested on for each that is trained on where seeds split the same bags, else 0.

    Examples:
        >>> round(float(half_width(0.05, 3, 0.01, 0.0, 0.0)), 3)  # Student's: 4.303 * 0.1 / sqrt(3)
        0.248
    """
    n, spread = np.asarray(seeds, float), np.asarray(variance, float)
    t, z = -special.stdtrit(n - 1, level / 2), -special.ndtri(level / 2)
    of_seeds = np.maximum(t**2 * spread, z**2 * np.asarray(own, float))
    widest = of_seeds * (1 / n + overlap) + z**2 * np.asarray(shared, float)
    return np.asarray(np.sqrt(widest))


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two losses with its simultaneous interval.

    Args:
        seeds: the number of common seeds.
        difference: the mean of the first less that of the second, over these.
        interval: its interval, (nan, nan) for fewer than FEWEST_SEEDS seeds, and where neither seeds nor items vary.
        items: the number of test items that the interval covers the draw of, 0 where it covers the seeds alone.
        shared: whether all seeds were tested on the same items.
        needed: about how many seeds would exclude zero from the interval if the difference stayed as it is, inf where
            no number would: the test items alone do not suffice. nan where it cannot be told, as from fewer than
            FEWEST_SEEDS seeds, and where seeds split the same bags.
    """

    seeds: int
    difference: float
    interval: tuple[float, float]
    items: int = 0
    shared: bool = False
    needed: float = math.nan


def compare_all(
    values: Floats,
    noise: SamplingNoise | None = None,
    level: float = LEVEL,
    overlap: float = 0.0,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> dict[tuple[int, int], Difference]:
    """Compare every two losses, or some pairs of them.

    Args:
        values: (m, n), of m losses with n seeds; nan where there is none.
        noise: what the draw of the test items adds to them; None where that is not known. Intervals then hold for
            these test items alone.
        level: the probability with which all intervals hold together.
        overlap: how many bags are tested on for each that is trained on where seeds split the same bags, else 0.
        pairs: those that are compared, (i, j) for loss i less loss j; None: all, with i < j.

    Returns:
        (i, j) -> loss i less loss j.

    Examples:
        >>> found = compare_all(np.array([[0.10, 0.12, 0.11, 0.13], [0.20, 0.21, 0.22, 0.21]]))[0, 1]
        >>> found.seeds, round(found.difference, 3), [round(bound, 3) for bound in found.interval]
        (4, -0.095, [-0.116, -0.074])
    """
    compared = itertools.combinations(range(len(values)), 2) if pairs is None else pairs
    parts = [pair_parts(values, noise, i, j) for i, j in compared]
    common = common_level(parts, noise, 1 - level, overlap)
    return {(pair.first, pair.second): _difference(pair, noise, common, overlap) for pair in parts}


def pair_parts(values: Floats, noise: SamplingNoise | None, first: int, second: int) -> Parts:
    """Return the difference of two losses and the parts of its variance.

    Args:
        values: (L, S) the value of every loss with every seed, NaN where there is none.
        noise: that of the test items; None: it is not known.
        first: the row of the one loss.
        second: the row of the other.
    """
    common = np.isfinite(values[first]) & np.isfinite(values[second])
    differences = values[first, common] - values[second, common]
    n = differences.size
    mean = float(differences.mean()) if n else math.nan
    variance = float(differences.var(ddof=1)) if n > 1 else math.nan
    items = noise.items[[first, second]][:, common].min(initial=MOST_SEEDS**2) if noise and n else 0
    if noise is None or not items:
        return Parts(first, second, common, mean, variance, 0.0, 0.0, 0)
    c = noise.covariance[:, common][..., common]
    by_seed = c[first, :, first] + c[second, :, second] - c[first, :, second] - c[second, :, first]
    diagonal = float(np.trace(by_seed)) / n
    # An item more for each loss on which it alone is wrong: where losses differ on few items, these show too small a
    # variance, and on none no variance at all. Agresti and Min (Statistics in Medicine 24, 2005, pp. 729-740) add half
    # an item each, for one comparison; the tails that many comparisons reach need more.
    added = 2 * float((noise.unit[[first, second]][:, common] ** 2).mean())
    shared = (float(by_seed.sum()) - n * diagonal) / (n * (n - 1)) if n > 1 else diagonal
    alike = _alike(noise, common, first, second)
    own, shared = max(diagonal - shared, 0.0) + (1 - alike) * added, max(shared, 0.0) + alike * added
    return Parts(first, second, common, mean, variance, own, shared, int(items))


def _alike(noise: SamplingNoise, common: NDArray[np.bool_], first: int, second: int) -> float:
    """Return the share of the pairs of seeds that were tested on the same items; they have an error in common.

    Among small folds of several repetitions a few can be the same by chance.
    """
    tested = noise.sets[[first, second]][:, common]
    n = tested.shape[1]
    same = (tested[:, :, None] == tested[:, None, :]).all(axis=0)
    return float(same.sum() - n) / (n * (n - 1)) if n > 1 else 1.0


def common_level(
    pairs: Sequence[Parts], noise: SamplingNoise | None, level: float = 1 - LEVEL, overlap: float = 0.0
) -> float:
    """Return the level of each pair's interval with which all of them hold together with probability 1 - level.

    In a draw of all losses the error of the test items is normal with its covariance. The errors of training are
    independent and of one variance for all losses: few seeds cannot show more, and among independent normal means equal
    variances are the least favourable (Hayter, Annals of Statistics 12, 1984, pp. 61-75). That variance is taken from
    CAUTION times the mean variance of the pairs: the level falls with it towards Sidak's, and few seeds can show too
    small a one.

    Args:
        pairs: the pairs that are compared.
        noise: as in `compare_all`.
        level: the probability that some interval misses, at most.
        overlap: as in `compare_all`.
    """
    tested = [pair for pair in pairs if pair.seeds >= FEWEST_SEEDS]
    if len(tested) < 2:
        return level
    own, shared, seeds = (np.array([[getattr(pair, name)] for pair in tested]) for name in ("own", "shared", "seeds"))
    means, variances = _draws(tested, noise, overlap)
    most = level - math.sqrt(level * (1 - level) / DRAWS)  # less the standard error of a share of that many draws
    low, high = math.log(1 - (1 - level) ** (1 / len(tested))), math.log(level)
    for _ in range(12):
        middle = (low + high) / 2
        outside = (means > half_width(math.exp(middle), seeds, variances, own, shared, overlap)).any(axis=0)
        low, high = (middle, high) if outside.mean() <= most else (low, middle)
    return math.exp(low)


def _draws(pairs: Sequence[Parts], noise: SamplingNoise | None, overlap: float) -> tuple[Floats, Floats]:
    """Return the size of the mean and S^2 of each pair in every draw, (pairs, draws), for losses that do not differ."""
    losses, seeds = max(max(pair.first, pair.second) for pair in pairs) + 1, pairs[0].common.size
    of_training, of_items, of_overlap = _normal_draws(losses, seeds)
    training = float(np.mean([CAUTION * pair.variance - pair.own for pair in pairs])) / 2  # of one loss
    # What splits of the same bags have in common moves all of them alike.
    errors = math.sqrt(max(training, 0.0)) * (of_training + math.sqrt(overlap) * of_overlap)
    if noise is not None:
        covariance = noise.covariance[:losses, :, :losses].reshape(losses * seeds, -1)
        sizes, directions = np.linalg.eigh(covariance)
        errors += (of_items @ (directions * np.sqrt(np.maximum(sizes, 0))).T).reshape(errors.shape)
    means, variances = np.empty((2, len(pairs), DRAWS))
    for k, pair in enumerate(pairs):
        difference = errors[:, pair.first, pair.common] - errors[:, pair.second, pair.common]
        means[k], variances[k] = np.abs(difference.mean(axis=1)), difference.var(axis=1, ddof=1)
    return means, variances


@cache
def _normal_draws(losses: int, seeds: int) -> tuple[Floats, Floats, Floats]:
    """Return standard normal draws for training, for items and for what folds share, the same at every call."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, DRAWS, losses * seeds))
    return draws[0].reshape(DRAWS, losses, seeds), draws[1], rng.normal(size=(DRAWS, losses, 1))


def _difference(pair: Parts, noise: SamplingNoise | None, level: float, overlap: float) -> Difference:
    bounds = (math.nan, math.nan)
    known = pair.items > 0 or pair.variance > _ROUNDING**2
    if pair.seeds >= FEWEST_SEEDS and known:
        half = float(half_width(level, pair.seeds, pair.variance, pair.own, pair.shared, overlap))
        bounds = (pair.difference - half, pair.difference + half)
    shared = noise is not None and pair.items > 0 and _alike(noise, pair.common, pair.first, pair.second) == 1
    # More splits of the same bags are no answer to how few these are.
    needed = seeds_needed(pair, level) if pair.seeds >= FEWEST_SEEDS and known and not overlap else math.nan
    return Difference(pair.seeds, pair.difference, bounds, pair.items, shared, needed)


def seeds_needed(pair: Parts, level: float) -> float:
    """Return about how many seeds would exclude zero if the difference, its variances and the test items stayed.

    Returns:
        The number, at least FEWEST_SEEDS; inf where the test items alone do not suffice, or where more than
        MOST_SEEDS would be needed.
    """

    def suffice(seeds: int) -> bool:
        return bool(half_width(level, seeds, pair.variance, pair.own, pair.shared) < abs(pair.difference))

    seeds = range(FEWEST_SEEDS, MOST_SEEDS + 1)
    found = bisect.bisect_left(seeds, True, key=suffice)
    return seeds[found] if found < len(seeds) else math.inf
