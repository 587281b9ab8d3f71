"""Whether our runs agree with a published value: the interval of the difference, and the verdict that follows."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from milbench.api.published import Published
from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.summaries import Unpaired, best_of, welch

Agreement = Literal["agrees", "better", "worse", "open"]
FEWEST_TO_DIFFER, FEWEST_TO_AGREE = 3, 5
"""The number of seeds from which on a run may count as better or worse, and as agreeing."""
_ROUNDING = 1e-12  # a standard error or a difference below it is one of floating point


def difference(values: ArrayLike, published: Published, lower_is_better: bool = True) -> tuple[Unpaired, str]:
    """Return what our runs are better or worse by than a published value, and the name of the test.

    The best of N runs is compared with the best of N further ones, by simulation. Means are compared by Welch's test
    where mean, standard deviation and number of the published runs are known, and otherwise by Student's, as if these
    runs (one, where their number is unknown) had the standard deviation of ours.

    Args:
        values: (n,), one value a seed, at least two.
        published: the published value; where it is the best of several runs, their number is known.
        lower_is_better: whether the best is the smallest.

    Returns:
        Ours minus the published value with its 95 % interval and p, and "Welch's p", "Student's p" or "p".
    """
    runs, spread = published.count, published.deviation
    if published.statistic == "best":
        if runs is None:
            raise ValueError("the best of an unknown number of runs cannot be compared")
        return best_of(values, published.value, runs, lower_is_better), "p"
    if spread is not None and runs is not None and runs > 1:
        return welch(values, published.mean, spread, runs), "Welch's p"
    return of_one_spread(values, published.mean, runs or 1), "Student's p"


def of_one_spread(values: ArrayLike, mean: float, runs: int) -> Unpaired:
    """Compare values with others of which only mean and number are known, by Student's test for one common spread.

    Args:
        values: (n,), two values at least.
        mean: of the other values.
        runs: their number.

    Returns:
        The mean of `values` minus `mean`, with its 95 % interval and two-sided p value.

    Examples:
        >>> found = of_one_spread([7.0, 8.0, 9.0], 8.5, runs=1)  # 4.303 sqrt(1/3 + 1) = 4.968
        >>> [round(bound, 3) for bound in found.interval]
        [-5.468, 4.468]
    """
    sample = np.asarray(values, dtype=float)
    gap, freedom = float(sample.mean()) - mean, sample.size - 1
    error = float(sample.std(ddof=1)) * math.sqrt(1 / sample.size + 1 / runs)
    if error <= _ROUNDING:
        return Unpaired(gap, (gap, gap), 1.0 if abs(gap) <= _ROUNDING else 0.0)
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    return Unpaired(gap, (gap - half, gap + half), float(2 * stats.t.sf(abs(gap) / error, freedom)))


def judge(
    interval: tuple[float, float], seeds: int, margin: float | None, lower_is_better: bool = True
) -> tuple[Agreement, str]:
    """Return the verdict that follows from the interval of a difference, and what it lacks or rests on.

    Args:
        interval: of ours minus the published value.
        seeds: the number of our runs.
        margin: the largest difference that counts as agreement; None: none does.
        lower_is_better: whether a smaller value is a better one.

    Returns:
        agrees: five seeds at least, and the interval lies within the margin, whether it holds zero or not. better,
        worse: otherwise, three seeds at least, and it does not hold zero. open: everything else.

    Examples:
        >>> judge((-0.01, 0.02), seeds=5, margin=0.03)[0], judge((-0.01, 0.02), seeds=4, margin=0.03)[0]
        ('agrees', 'open')
        >>> judge((0.01, 0.05), seeds=4, margin=0.03)[0], judge((0.01, 0.05), seeds=2, margin=0.03)[0]
        ('worse', 'open')
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
