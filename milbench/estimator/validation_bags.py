"""Choosing the bags that early stopping sets aside, to see when training no longer improves."""

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from milbench.errors import UsageError
from milbench.estimator.label_forms import Bools

Numbers = NDArray[np.intp]
FEWEST = 2
"""The least number of bags that are set aside. With a single bag each score would be 0 or 1."""


def set_bags_aside(
    numbers: Numbers, fraction: float, seed: int, classes: Bools | None
) -> tuple[Numbers, Numbers]:
    """Return the indices of the bags to train on, and of those for validation, both in order.

    Args:
        numbers: the indices of all bags.
        fraction: the share of the bags that is set aside.
        seed: the seed of the choice.
        classes: a class for each bag, so that both parts get the same share of each class. None:
            the parts are chosen regardless of classes.

    Raises:
        UsageError: there are too few bags to set some aside.
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
