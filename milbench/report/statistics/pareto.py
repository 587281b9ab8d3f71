"""The Pareto front: what nothing else beats in two quantities at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def pareto_front(first: ArrayLike, second: ArrayLike) -> list[int]:
    """Return the indices of the points that no other dominates, by ascending `first`; smaller is better in both.

    A point dominates another where it is no worse in both quantities and better in one. Equal points do not dominate
    one another.

    Args:
        first: (n,), finite.
        second: (n,), finite.

    Examples:
        >>> pareto_front([1, 2, 3], [5, 6, 4])  # the second point is slower and worse than the first
        [0, 2]
    """
    x, y = np.asarray(first, float), np.asarray(second, float)
    front: list[int] = []
    for i in np.lexsort((y, x)).tolist():
        last = front[-1] if front else None
        if last is None or y[i] < y[last] or (x[i], y[i]) == (x[last], y[last]):
            front.append(i)
    return front
