"""Wilson's interval of a share of test items, for one trained network."""

from __future__ import annotations

import numpy as np
from scipy.stats import binomtest

from milbench.api.outcomes import Outcomes
from milbench.report.statistics.differences import LEVEL


def share_interval(outcomes: Outcomes, level: float = LEVEL) -> tuple[float, float]:
    """Return Wilson's interval of a metric that counts test items, each of which is right or wrong.

    It says how far the share may lie from that of all items of this kind, with this very network. What another
    training seed would give is not in it.

    Args:
        outcomes: of one network.
        level: the coverage, about which Wilson's interval has it.

    Returns:
        The lower and the upper bound; (nan, nan) where items count for more or less than one.

    Examples:
        >>> low, high = share_interval(Outcomes([1] * 8 + [0] * 92, [1] * 100, "3f2c"))
        >>> round(low, 4), round(high, 4)
        (0.0411, 0.15)
        >>> share_interval(Outcomes([0.5, 1], [1, 1], "3f2c"))
        (nan, nan)

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22, 1927.
    """
    if not (outcomes.weights == 1).all() or not np.isin(outcomes.sums, (0, 1)).all():
        return float("nan"), float("nan")
    bounds = binomtest(int(outcomes.sums.sum(dtype=np.int64)), len(outcomes)).proportion_ci(level, method="wilson")
    return float(bounds.low), float(bounds.high)
