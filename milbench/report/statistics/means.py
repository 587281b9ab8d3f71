"""Student's interval of a mean over training seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL


def student_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Return Student's t interval of the mean.

    Args:
        values: (n,), one value a seed.
        level: the coverage, for normal values.

    Returns:
        The lower and the upper bound; (nan, nan) for fewer than three values, and where one is not finite.

    Examples:
        >>> low, high = student_interval([1.0, 2.0, 3.0])  # 2 -+ 4.303 / sqrt(3)
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
        >>> student_interval([1.0, 2.0])
        (nan, nan)
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < FEWEST_SEEDS or not np.isfinite(sample).all():
        return float("nan"), float("nan")
    half = stats.t.ppf((1 + level) / 2, sample.size - 1) * stats.sem(sample)
    return float(sample.mean() - half), float(sample.mean() + half)
