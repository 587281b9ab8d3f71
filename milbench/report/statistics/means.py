"""Student's interval of a mean over training seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL


def student_interval(values: ArrayLike, level: float = LEVEL, overlap: float = 0.0) -> tuple[float, float]:
    """Return Student's t interval of the mean, where seeds split the same bags with the correction for that.

    It is the one of Nadeau and Bengio (2003), see `differences`.

    Args:
        values: (n,), one value a seed.
        level: the coverage, for normal values.
        overlap: how many bags are tested on for each that is trained on where seeds split the same bags, else 0; the
            variance of the mean is then 1/n + overlap times that of the values.

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
    error = sample.std(ddof=1) * np.sqrt(1 / sample.size + overlap)
    half = stats.t.ppf((1 + level) / 2, sample.size - 1) * error
    return float(sample.mean() - half), float(sample.mean() + half)
