"""Whether one loss is better than another, worse, or equivalent within a margin that was given in advance."""

from __future__ import annotations

import math
from typing import Literal

from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL, Parts

Verdict = Literal["better", "equivalent", "worse", "open"]


def verdict(parts: Parts, margin: float, lower_is_better: bool = True, overlap: float = 0.0) -> Verdict:
    """Return what the difference of two losses, first less second, says about the first.

    They are equivalent where both one-sided tests at 5 % reject a difference of the margin or more: where the 90 %
    interval lies within the margin. Otherwise the first is better or worse where the 95 % interval leaves out 0. A
    difference that is not 0 but smaller than the margin counts as none.

    Args:
        parts: of seeds in pairs.
        margin: the largest difference that counts as none.
        lower_is_better: whether smaller values are better.
        overlap: test bags for each training bag where seeds split the same bags, else 0.

    Examples:
        Ten seeds with a mean difference of half a point, which varies by half a point, and a margin of one point.

        >>> verdict(Parts(10, 0.005, 0.005**2), margin=0.01)
        'equivalent'
        >>> verdict(Parts(10, 0.015, 0.005**2), margin=0.01), verdict(Parts(10, -0.015, 0.005**2), margin=0.01)
        ('worse', 'better')

    Source: D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for assessing
    the equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15, 1987, pp. 657-680.
    """
    if parts.seeds < FEWEST_SEEDS or not math.isfinite(parts.variance):
        return "open"
    if abs(parts.difference) + parts.half_width(2 * (1 - LEVEL), overlap) < margin:
        return "equivalent"
    if abs(parts.difference) <= parts.half_width(1 - LEVEL, overlap):
        return "open"
    return "better" if (parts.difference < 0) == lower_is_better else "worse"
