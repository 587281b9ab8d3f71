"""The outcomes of test bags behind the values of a comparison, as far as they were kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from milbench.api.outcomes import Outcomes, load_outcomes

EXCESS = "excess_"
"""Before the name of a metric, for its distance from an optimum that is the same for every loss."""
_CLOSE = 1e-5
"""How far a metric from outcomes may lie from the logged one, relative to it: sums are rounded in single precision."""


def read_outcomes(path: Path, metric: str, values: Mapping[str, float]) -> Outcomes | None:
    """Return the outcomes of one cell from which differences in a metric follow, None where it has none.

    Differences in an excess are those of the metric itself, since every loss is compared with the same optimum.

    Args:
        path: of the cell's file.
        metric: without the split, such as "set_error" or "excess_set_error".
        values: the test metrics of the cell at the epoch that counts, by their names without the split. Outcomes of
            another evaluation do not give these values, and are no use.

    Raises:
        UsageError: the file cannot be read.
    """
    name = metric.removeprefix(EXCESS)
    found = load_outcomes(path).get(name)
    value = values.get(name, math.nan)
    return found if found is not None and math.isclose(found.value, value, rel_tol=_CLOSE, abs_tol=1e-9) else None
