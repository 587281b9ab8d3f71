"""How much data of one kind is worth a given amount of another kind, read off the learning curves of both."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL

_GRID = 2001
"""Amounts at which two curves are compared, evenly spaced in the logarithm."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The amount at which one curve reaches the value of another.

    Args:
        amount: where the means are equal for the first time; inf where the curve stays above, and 0 where it starts
            below, so that the amount lies outside those that were measured.
        interval: the amounts at which the difference may be zero, from the least to the largest; 0 and inf as bounds
            where it may be zero at the least or the largest measured amount, and thus beyond; (inf, inf) and (0, 0)
            where the two are told apart at every measured amount, the curve above the target or below it.
    """

    amount: float
    interval: tuple[float, float]


def equivalent_amount(
    amounts: ArrayLike, curve: ArrayLike, target: ArrayLike, lower_is_better: bool = True, overlap: float = 0.0
) -> Equivalent:
    """Return the amount at which a learning curve reaches a target, with the amounts that the data do not exclude.

    Every seed has a curve, linear between measured amounts in their logarithm, and a target; seed by seed, both come
    from the same data. An amount belongs to the interval if Student's interval of the mean difference between curve and
    target there holds zero: a test inverted at every amount, as in Fieller's interval, so that no distribution of the
    amount itself is assumed. The coverage is that of Student's interval, for this pair alone.

    Args:
        amounts: (k,), ascending and positive.
        curve: (n, k), the values of n seeds at each amount.
        target: (n,), the values to be reached, of the same seeds.
        lower_is_better: whether smaller values are better.
        overlap: how many bags are tested on for each that is trained on where seeds split the same bags, else 0.

    Returns:
        The amount, with (nan, nan) as its interval for fewer than three seeds.

    Examples:
        An error that falls by 10 points for each tenfold amount, and a target reached at 1,000.

        >>> found = equivalent_amount([100, 1000, 10000], [[0.3, 0.2, 0.1]] * 2, [0.2, 0.2])
        >>> round(found.amount), found.interval
        (1000, (nan, nan))
    """
    at = np.log(np.asarray(amounts, dtype=float))
    values, wanted = np.asarray(curve, dtype=float), np.asarray(target, dtype=float)
    sign = 1.0 if lower_is_better else -1.0
    grid = np.linspace(at[0], at[-1], _GRID)
    left = sign * (np.stack([np.interp(grid, at, line) for line in values]) - wanted[:, None])
    mean = left.mean(axis=0)
    reached = np.flatnonzero(mean <= 0)
    amount = math.inf if not len(reached) else 0.0 if mean[0] < 0 else float(np.exp(grid[reached[0]]))
    n = len(values)
    if n < FEWEST_SEEDS:
        return Equivalent(amount, (math.nan, math.nan))
    half = stats.t.ppf((1 + LEVEL) / 2, n - 1) * left.std(axis=0, ddof=1) * math.sqrt(1 / n + overlap)
    open_ = np.flatnonzero(np.abs(mean) <= half)
    if not len(open_):  # the two are told apart everywhere that they were compared
        return Equivalent(amount, (amount, amount))
    low = 0.0 if open_[0] == 0 else float(np.exp(grid[open_[0]]))
    high = math.inf if open_[-1] == _GRID - 1 else float(np.exp(grid[open_[-1]]))
    return Equivalent(amount, (low, high))
