"""The ratio of two paired means with Fieller's interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two means over the common seeds, with its interval."""

    seeds: int
    value: float
    interval: tuple[float, float]


def paired_ratio(
    numerator: pd.Series[float], denominator: pd.Series[float], level: float = LEVEL, overlap: float = 0.0
) -> Ratio:
    """Return the ratio of two means on the common seeds.

    Fieller's interval ("Some problems in interval estimation", Journal of the Royal Statistical Society B 16, 1954,
    pp. 175-185) holds every ratio r for which Student's test does not reject that numerator - r denominator has mean
    zero; it is exact where these are normal.

    Args:
        numerator: a value a seed, indexed by seed.
        denominator: the same.
        level: the coverage of the interval.
        overlap: how many bags are tested on for each that is trained on, where seeds split the same bags: means then
            vary by 1/n + overlap in place of 1/n (Nadeau and Bengio, 2003).

    Returns:
        The ratio, with its interval and the number of common seeds. The interval is (nan, nan) for fewer than three
        seeds, and where it would not be bounded, since the mean of the denominator may be zero.

    Examples:
        >>> paired_ratio(pd.Series([1.0, 1.1, 1.2]), pd.Series([2.0, 2.2, 2.4])).interval
        (0.5, 0.5)
    """
    both = pd.concat([numerator, denominator], axis=1, join="inner").dropna()
    above, below = (both.iloc[:, i].to_numpy(dtype=float) for i in (0, 1))
    n, nan = above.size, math.nan
    value = float(above.mean() / below.mean()) if n and below.mean() != 0 else nan
    if n < FEWEST_SEEDS:
        return Ratio(n, value, (nan, nan))
    # (above - r below)^2 <= t^2 Var(above - r below) (1/n + overlap) is  a r^2 - 2 b r + c <= 0.
    spread = np.cov(above, below) * float(stats.t.isf((1 - level) / 2, n - 1)) ** 2 * (1 / n + overlap)
    a = below.mean() ** 2 - spread[1, 1]
    b = above.mean() * below.mean() - spread[0, 1]
    c = above.mean() ** 2 - spread[0, 0]
    if a <= 0:
        return Ratio(n, value, (nan, nan))
    root = math.sqrt(max(b**2 - a * c, 0.0))
    return Ratio(n, value, (float((b - root) / a), float((b + root) / a)))
