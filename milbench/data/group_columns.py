"""Tell whether a column may say which bags belong together, such as the bags of one patient."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MISSING = -1
"""The number that stands for an empty field. Bags with empty fields share no value."""


def is_shared_and_unsplit(values: NDArray[np.int64], bags: NDArray[np.int64]) -> bool:
    """Return whether several bags share a value of a column, and no bag has two.

    Args:
        values: (N,), the number of the value of each row, -1 where the field is empty.
        bags: (N,), the number of the bag of each row.

    Examples:
        >>> is_shared_and_unsplit(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2]))
        True
        >>> is_shared_and_unsplit(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
        False
        >>> is_shared_and_unsplit(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]))
        False
    """
    first_rows = np.unique(bags, return_index=True)[1]
    of_bags = values[first_rows]
    is_unsplit = bool((values == of_bags[bags]).all())
    known = of_bags[of_bags != MISSING]
    different = len(np.unique(known))
    return is_unsplit and 1 < different < len(known)


def stands_in_train_and_test(
    values: NDArray[np.int64],
    train: Sequence[int] | NDArray[np.int64],
    test: Sequence[int] | NDArray[np.int64],
) -> bool:
    """Return whether a bag to train on and a bag to test on share a value of a column.

    Args:
        values: (B,), the number of the value of each bag, -1 where it has none.
        train: the numbers of the bags to train on.
        test: the numbers of the bags to test on.

    Examples:
        >>> stands_in_train_and_test(np.array([0, 0, 1, 1]), [0, 1], [2, 3])
        False
        >>> stands_in_train_and_test(np.array([0, 0, 1, 1]), [0, 2], [3])
        True
    """
    both = np.intersect1d(values[train], values[test])
    return bool((both != MISSING).any())
