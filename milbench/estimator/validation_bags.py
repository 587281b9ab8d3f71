"""The bags that early stopping sets aside, to see when training no longer improves."""

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from milbench.errors import UsageError
from milbench.estimator.label_forms import Bools

Numbers = NDArray[np.intp]
FEWEST = 2
"""The least number of bags that are set aside. By a single one an epoch would be all right or all wrong."""


def set_bags_aside(
    numbers: Numbers, fraction: float, seed: int, classes: Bools | None
) -> tuple[Numbers, Numbers]:
    """Return the numbers of the bags to train on, and of those for validation, each in ascending order.

    Args:
        numbers: the numbers of all bags.
        fraction: the share of them that is set aside.
        seed: of the choice.
        classes: a class for each bag; both parts get the same share of each class. None: whatever
            share chance gives them.

    Raises:
        UsageError: there are too few bags for it.
    """
    try:
        training, validation = train_test_split(
            numbers, test_size=fraction, random_state=seed % 2**32, stratify=classes
        )
    except ValueError as error:
        raise UsageError(f"early_stopping cannot set bags aside: {error}") from None
    if len(validation) < FEWEST:
        raise UsageError(
            f"early_stopping sets {len(validation)} of {len(numbers)} bags aside, expected at "
            f"least {FEWEST}: raise validation_fraction"
        )
    return np.sort(training), np.sort(validation)
