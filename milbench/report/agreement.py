"""Whether our runs agree with a published value: the interval of the difference, and the verdict that follows."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from milbench.api.published import Published
from milbench.report.statistics.differences import LEVEL

Agreement = Literal["agrees", "better", "worse", "open"]
Bounds = tuple[float, float]
FEWEST_TO_DIFFER, FEWEST_TO_AGREE = 3, 5
"""The number of seeds from which on a run may count as better or worse, and as agreeing."""
_ROUNDING = 1e-12  # a standard error below it is one of floating point
_DRAWS = 100_000


def difference(values: ArrayLike, published: Published, lower_is_better: bool = True) -> Bounds:
    """Return the 95 % interval of our values, (n,) with two at least, minus a published one.

    The best of N runs is compared with the best of N further ones, by simulation. Means are compared by Welch's
    interval where mean, standard deviation and number of the published runs are known, and otherwise by Student's, as
    if these runs (one, where their number is unknown) had the standard deviation of ours.

    Raises:
        ValueError: the published value is the best of an unknown number of runs.
    """
    runs, spread = published.count, published.deviation
    if published.statistic == "best":
        if runs is None:
            raise ValueError("the best of an unknown number of runs cannot be compared")
        return best_of(values, published.value, runs, lower_is_better)
    if spread is not None and runs is not None and runs > 1:
        return welch(values, published.mean, spread, runs)
    return of_one_spread(values, published.mean, runs or 1)


def welch(values: ArrayLike, mean: float, spread: float, runs: int) -> Bounds:
    """Return Welch's interval of the mean of values less another, of `runs` values with standard deviation `spread`."""
    sample = np.asarray(values, dtype=float)
    variances = np.array([float(sample.std(ddof=1)) ** 2 / sample.size, spread**2 / runs])
    error = math.sqrt(variances.sum())
    if error <= _ROUNDING:
        return _around(float(sample.mean()) - mean, 0.0)
    freedom = error**4 / float((variances**2 / np.array([sample.size - 1, runs - 1])).sum())
    return _around(float(sample.mean()) - mean, float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error)


def of_one_spread(values: ArrayLike, mean: float, runs: int) -> Bounds:
    """Return Student's interval of the mean of values less another, of `runs` values with the spread of these."""
    sample = np.asarray(values, dtype=float)
    error = float(sample.std(ddof=1)) * math.sqrt(1 / sample.size + 1 / runs)
    half = float(stats.t.ppf((1 + LEVEL) / 2, sample.size - 1)) * error if error > _ROUNDING else 0.0
    return _around(float(sample.mean()) - mean, half)


def best_of(values: ArrayLike, best: float, runs: int, lower_is_better: bool = True) -> Bounds:
    """Return the interval of the best of `runs` further draws from the distribution of values less a published best.

    The distance of the best of the further draws from the mean of the values, in units of their standard deviation, has
    one distribution for all normal distributions from which both may come. It is simulated, the same at every call. A t
    interval would be wrong, since the best of ten draws is not near the mean.
    """
    sample = np.asarray(values, dtype=float)
    mean, spread, sign = sample.mean(), sample.std(ddof=1), 1 if lower_is_better else -1
    rng = np.random.default_rng(0)
    # The smallest of n lies above x with probability sf(x)^n; mean and variance of a normal sample are independent.
    smallest = stats.norm.isf(rng.random(_DRAWS) ** (1 / runs))
    means = rng.normal(size=_DRAWS) / math.sqrt(sample.size)
    spreads = np.sqrt(rng.chisquare(sample.size - 1, size=_DRAWS) / (sample.size - 1))
    low, high = np.quantile(
        mean - best + sign * spread * (smallest - means) / spreads, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    )
    return float(low), float(high)


def judge(interval: Bounds, seeds: int, margin: float | None, lower_is_better: bool = True) -> tuple[Agreement, str]:
    """Return the verdict that follows from the interval of ours less the published value, and what it rests on.

    The margin is the largest difference that counts as agreement; without one none does.

    Returns:
        agrees: five seeds at least, and the interval lies within the margin, whether it holds zero or not. better,
        worse: otherwise, three seeds at least, and it does not hold zero. open: everything else.
    """
    low, high = interval
    within = margin is not None and -margin <= low and high <= margin
    differs = low > 0 or high < 0
    if within and seeds >= FEWEST_TO_AGREE:
        return "agrees", "a difference, but within the margin" if differs else "within the margin"
    if differs and seeds >= FEWEST_TO_DIFFER:
        return ("better" if (high < 0) == lower_is_better else "worse"), ""
    if seeds < FEWEST_TO_DIFFER:
        return "open", f"no verdict from fewer than {FEWEST_TO_DIFFER} seeds"
    if margin is None:
        return "open", "no margin of agreement was stated"
    if within:
        return "open", f"within the margin, but agreement needs {FEWEST_TO_AGREE} seeds"
    return "open", "the interval contains zero and exceeds the margin"


def _around(middle: float, half: float) -> Bounds:
    return middle - half, middle + half
