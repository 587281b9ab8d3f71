"""Tests of a mean, or of the best of several runs, against another of which only a summary is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from milbench.report.statistics.differences import LEVEL

_ROUNDING = 1e-12  # a standard deviation or a difference below it is one of floating point
_DRAWS = 100_000


@dataclass(frozen=True, slots=True)
class Unpaired:
    """The difference between a mean and another that shares no seeds with it, its interval, and p for no difference."""

    difference: float
    interval: tuple[float, float]
    p: float


def welch(
    values: ArrayLike, mean: float, spread: float = 0.0, runs: float = math.inf, level: float = LEVEL
) -> Unpaired:
    """Compare the mean of values with another mean of which only a summary is known, by Welch's t test.

    Without `spread` and `runs`, the other mean is taken as exact, and the test is Student's for one sample.

    Args:
        values: (n,), two values at least.
        mean: the other mean.
        spread: the standard deviation (n - 1) of the values behind it.
        runs: their number.
        level: the coverage of the interval.

    Returns:
        The mean of `values` minus `mean`, with its interval and two-sided p value.
    """
    sample = np.asarray(values, dtype=float)
    difference, own = float(sample.mean()) - mean, float(sample.std(ddof=1))
    variances = np.array([own**2 / sample.size, spread**2 / runs])
    error = math.sqrt(variances.sum())
    if error <= _ROUNDING:
        return Unpaired(difference, (difference, difference), 1.0 if abs(difference) <= _ROUNDING else 0.0)
    freedom = error**4 / float((variances**2 / np.array([sample.size - 1, runs - 1])).sum())
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    test = stats.ttest_ind_from_stats(float(sample.mean()), own, sample.size, mean, spread, runs, equal_var=False)
    return Unpaired(difference, (difference - half, difference + half), float(test.pvalue))


def best_of(values: ArrayLike, best: float, runs: int, lower_is_better: bool = True, level: float = LEVEL) -> Unpaired:
    """Compare the best of further draws from the distribution of values with a published best.

    The distance of the best of the further draws from the mean of the values, in units of their standard deviation, has
    one distribution for all normal distributions from which both may come. It is simulated, the same at every call. A t
    test would be wrong, since the best of ten draws is not near the mean. The difference is that of the median best.

    Args:
        values: (n,), two values at least.
        best: the published best.
        runs: the number of runs of which it is the best, and of further draws.
        lower_is_better: whether the best is the smallest.
        level: the coverage of the interval.

    Returns:
        The difference from the published best, with its interval and two-sided p value.
    """
    sample = np.asarray(values, dtype=float)
    mean, spread, sign = sample.mean(), sample.std(ddof=1), 1 if lower_is_better else -1
    rng = np.random.default_rng(0)
    # The smallest of n lies above x with probability sf(x)^n; mean and variance of a normal sample are independent.
    smallest = stats.norm.isf(rng.random(_DRAWS) ** (1 / runs))
    means = rng.normal(size=_DRAWS) / math.sqrt(sample.size)
    spreads = np.sqrt(rng.chisquare(sample.size - 1, size=_DRAWS) / (sample.size - 1))
    differences = mean - best + sign * spread * (smallest - means) / spreads
    low, middle, high = np.quantile(differences, [(1 - level) / 2, 0.5, (1 + level) / 2])
    p = 2 * min(np.mean(differences <= _ROUNDING), np.mean(differences >= -_ROUNDING))
    return Unpaired(float(middle), (float(low), float(high)), min(1.0, float(p)))
