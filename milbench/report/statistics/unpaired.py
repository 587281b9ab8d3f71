"""The difference of two losses that have no seeds in common, or were trained and tested on other bags.

Welch's interval covers the seeds of both. To the square of its half width is added what the draw of the test items
gives to the difference and more seeds do not take away: from the items that all seeds of a loss share, less what both
losses have in common. The parts are those of `milbench.report.statistics.differences`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import special

from milbench.api.outcomes import Outcomes
from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL, Difference
from milbench.report.statistics.sampling import SamplingNoise, sampling_noise
from milbench.report.statistics.summaries import welch


def compare_unpaired(
    first: pd.Series[float],
    second: pd.Series[float],
    outcomes: tuple[Mapping[int, Outcomes], Mapping[int, Outcomes]] = ({}, {}),
    level: float = LEVEL,
    overlaps: tuple[float, float] = (0.0, 0.0),
) -> Difference:
    """Compare the means of two groups of seeds that are independent of each other.

    Args:
        first: the finite values of the group from which the other is subtracted, indexed by seed.
        second: those of that other group.
        outcomes: for each group, seed -> the outcomes of its test items. Where one is missing the interval covers the
            seeds alone.
        level: the probability with which the interval holds the true difference.
        overlaps: for each group, how many bags are tested on for each that is trained on where its seeds split the same
            bags, else 0. The variance of its mean is then larger, see `half_width`.

    Returns:
        The difference; `seeds` is the number of the smaller group. There is no interval for fewer than FEWEST_SEEDS
        seeds in one of the groups, and where neither seeds nor items vary.

    Examples:
        >>> a, b = pd.Series([0.20, 0.22, 0.21, 0.21]), pd.Series([0.10, 0.12, 0.11, 0.13])
        >>> found = compare_unpaired(a, b)
        >>> round(found.difference, 3), [round(bound, 3) for bound in found.interval]
        (0.095, [0.075, 0.115])
    """
    groups = (first, second)
    sizes = [len(values) for values in groups]
    difference = float(first.mean() - second.mean())
    noise = _noise(groups, outcomes)
    items = int(min(noise.items[k, : sizes[k]].min() for k in (0, 1))) if noise else 0
    unknown = Difference(min(sizes), difference, (math.nan, math.nan), items)
    if min(sizes) < FEWEST_SEEDS:
        return unknown
    # A mean of n overlapping splits varies like one of fewer independent ones: 1/n + r in place of 1/n.
    spreads = [float(v.std(ddof=1)) * math.sqrt(1 + n * r) for v, n, r in zip(groups, sizes, overlaps, strict=True)]
    if noise is None and max(spreads) <= 1e-12:
        return unknown
    of_seeds = _half_width(first, second, spreads, level)
    z = -float(special.ndtri((1 - level) / 2))
    own, shared = _of_items(noise, sizes, overlaps) if noise else (0.0, 0.0)
    half = math.sqrt(max(of_seeds**2, z**2 * own) + z**2 * shared)
    return Difference(min(sizes), difference, (difference - half, difference + half), items)


def _half_width(first: pd.Series[float], second: pd.Series[float], spreads: list[float], level: float) -> float:
    """Return the half width of Welch's interval for groups of these standard deviations."""
    centred = first - first.mean()
    inflated = centred * (spreads[0] / float(first.std(ddof=1))) if spreads[0] else centred * 0.0
    low, high = welch(inflated, 0.0, spreads[1], len(second), level).interval
    return (high - low) / 2


def _noise(groups: tuple[pd.Series[float], ...], outcomes: tuple[Mapping[int, Outcomes], ...]) -> SamplingNoise | None:
    """Return what the draw of the items adds to the values, in the order of their seeds; None where it is not known."""
    rows = [[found.get(int(seed)) for seed in values.index] for values, found in zip(groups, outcomes, strict=True)]
    if any(found is None or len(found) < 2 for row in rows for found in row) or not all(rows):
        return None
    most = max(map(len, rows))
    return sampling_noise([row + [None] * (most - len(row)) for row in rows])


def _of_items(noise: SamplingNoise, sizes: list[int], overlaps: tuple[float, float]) -> tuple[float, float]:
    """Return the variance that test items give to the difference of the means: what more seeds reduce, and the rest."""
    own = shared = 0.0
    for k, (n, overlap) in enumerate(zip(sizes, overlaps, strict=True)):
        block = noise.covariance[k, :n, k, :n]
        of_one = float(np.trace(block)) / n
        common = max((float(block.sum()) - n * of_one) / (n * (n - 1)), 0.0)
        # An item more on which the loss alone is wrong, as in `pair_parts`.
        own += max(of_one - common, 0.0) * (1 / n + overlap)
        shared += common + float((noise.unit[k, :n] ** 2).mean())
    return own, max(shared - 2 * float(noise.covariance[0, : sizes[0], 1, : sizes[1]].mean()), 0.0)
