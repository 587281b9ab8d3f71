"""Whether values fall into two groups, by a simple rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from milbench.report.statistics.sampling import Floats

FEWEST_TO_SPLIT = 5
GAP = 4.0
"""How many times the range of the wider group the gap between two groups has to be, at least.

By this rule 3.2 % of samples of 5 normal values fall into two groups, 0.9 % of 6, and fewer than 0.1 % of 8
(simulated); of exponential ones, with a long tail, 10, 5 and 2 %.
"""


def two_groups(values: ArrayLike, least: float = 0.0) -> tuple[Floats, Floats] | None:
    """Return the lower and the higher values where these are two groups, None where they are one.

    The values are two groups where the largest gap between neighbours is more than `GAP` times as wide as the wider of
    the parts that it leaves, and wider than `least`. One value may be a group.

    Args:
        values: (n,), finite; fewer than FEWEST_TO_SPLIT are one group.
        least: gaps up to this width divide nothing, whatever the parts.

    Examples:
        >>> two_groups([0.49, 0.90, 0.48, 0.50, 0.88])
        (array([0.48, 0.49, 0.5 ]), array([0.88, 0.9 ]))
        >>> two_groups([0.1, 0.2, 0.4, 0.5, 0.6]) is None
        True
    """
    ordered = np.sort(np.asarray(values, float))
    if ordered.size < FEWEST_TO_SPLIT:
        return None
    gaps = np.diff(ordered)
    first = int(gaps.argmax()) + 1
    low, high = ordered[:first], ordered[first:]
    gap = gaps[first - 1]
    return (low, high) if gap > max(GAP * float(np.ptp(low)), GAP * float(np.ptp(high)), least) else None
