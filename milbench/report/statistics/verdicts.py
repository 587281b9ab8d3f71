"""Verdicts: what an interval says beside zero, a margin, a bound or a published value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL, Difference

Bounds = tuple[float, float]
Equivalence = Literal["better", "equivalent", "worse", "open"]
Passing = Literal["pass", "fail", "open"]
Agreement = Literal["agrees", "better", "worse", "open"]
FEWEST_TO_DIFFER, FEWEST_TO_AGREE = 3, 5
"""The number of seeds from which on a run may count as better or worse than a published value, and as agreeing."""


def is_within(bounds: Iterable[float], margin: float) -> bool:
    """Return whether an interval lies within a margin that was given in advance: two one-sided tests at once."""
    return all(-margin <= bound <= margin for bound in bounds)


def passing(bounds: Bounds, bound: float, *, at_most: bool, complete: bool) -> Passing:
    """Return whether the interval of a mean passes a mark, which no mean passes where a planned seed is missing."""
    low, high = sorted((1 if at_most else -1) * (end - bound) for end in bounds)
    if low > 0:
        return "fail"
    return "pass" if high <= 0 and complete else "open"


def equivalence(found: Difference, margin: float, lower_is_better: bool = True) -> Equivalence:
    """Return what the difference of two losses says about the first.

    They are equivalent where both one-sided tests at 5 % reject a difference of the margin or more: where the 90 %
    interval lies within the margin. Otherwise the first is better or worse where the 95 % interval leaves out 0. A
    difference that is not 0 but smaller than the margin counts as none.

    Source: D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for assessing
    the equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15, 1987, pp. 657-680.
    """
    if found.seeds < FEWEST_SEEDS or not math.isfinite(found.variance):
        return "open"
    if abs(found.difference) + found.half_width(2 * (1 - LEVEL)) < margin:
        return "equivalent"
    if abs(found.difference) <= found.half_width():
        return "open"
    return "better" if (found.difference < 0) == lower_is_better else "worse"


def agreement(interval: Bounds, seeds: int, margin: float | None, lower_is_better: bool = True) -> Agreement:
    """Return what the interval of ours less a published value says.

    The margin is the largest difference that counts as agreement; without one none does.

    Returns:
        agrees: five seeds at least, and the interval lies within the margin, whether it holds zero or not. better,
        worse: otherwise, three seeds at least, and it does not hold zero. open: everything else.
    """
    low, high = interval
    if margin is not None and is_within(interval, margin) and seeds >= FEWEST_TO_AGREE:
        return "agrees"
    if (low > 0 or high < 0) and seeds >= FEWEST_TO_DIFFER:
        return "better" if (high < 0) == lower_is_better else "worse"
    return "open"
