"""Intervals of one value: Student's of a mean over training seeds, Wilson's of a share of test items."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL


def student_interval(values: ArrayLike, overlap: float = 0.0) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean of (n,) values, one a seed.

    Where seeds split the same bags, `overlap` is the number of test bags for each training bag, and the variance of the
    mean is 1/n + overlap times that of the values (Nadeau and Bengio, 2003, see `differences`).

    Returns:
        The lower and the upper bound; (nan, nan) for fewer than three values, and where one is not finite.

    Examples:
        >>> low, high = student_interval([1.0, 2.0, 3.0])  # 2 -+ 4.303 / sqrt(3)
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < FEWEST_SEEDS or not np.isfinite(sample).all():
        return math.nan, math.nan
    error = sample.std(ddof=1) * np.sqrt(1 / sample.size + overlap)
    half = stats.t.ppf((1 + LEVEL) / 2, sample.size - 1) * error
    return float(sample.mean() - half), float(sample.mean() + half)


def share_interval(wrong: int, items: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of test items of one network.

    It says how far the share may lie from that of all items of this kind, with this very network. What another
    training seed would give is not in it.

    Examples:
        >>> low, high = share_interval(8, 100)
        >>> round(low, 4), round(high, 4)
        (0.0411, 0.15)

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22, 1927.
    """
    bounds = stats.binomtest(wrong, items).proportion_ci(LEVEL, method="wilson")
    return float(bounds.low), float(bounds.high)
