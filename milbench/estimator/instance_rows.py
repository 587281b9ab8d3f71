"""Reading the bags of a classifier in any form, as one table of all instances."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from milbench.errors import UsageError, unknown


def read_rows(X: Any) -> tuple[Any, list[int] | None]:
    """Return the instances (N, D) of all bags, and the size of each bag.

    The instances are a data frame if the bags are data frames. If X is a matrix, each of its rows
    is a bag of one instance, and the sizes are None. Raises UsageError where bags differ in their
    features, or a bag is empty.
    """
    # scikit-learn allows objects that can be converted to an array but have no shape themselves.
    if hasattr(X, "__array__") and not hasattr(X, "shape"):
        X = np.asarray(X)
    if _is_sequence_of_bags(X):
        return _concatenated(list(X))
    return X, None


def select_columns(frame: pd.DataFrame, columns: Iterable[Any]) -> pd.DataFrame:
    """Return some columns of a data frame by name. Raises UsageError where one is missing."""
    columns = list(columns)
    for name in columns:
        if name not in frame:
            raise unknown("column", str(name), map(str, frame.columns))
    return frame[columns]


def _is_sequence_of_bags(X: Any) -> bool:
    """Return whether the items of X are bags, rather than instances.

    X is then a list, an array (B, K, D), or an array (B,) of objects.
    """
    if not hasattr(X, "shape"):
        return True
    if len(X.shape) == 3:
        return True
    return len(X.shape) == 1 and X.dtype == object


def _concatenated(bags: list[Any]) -> tuple[Any, list[int]]:
    """Return the instances (N, D) of all bags, and the size of each bag, as `read_rows` says."""
    if bags and all(isinstance(bag, pd.DataFrame) for bag in bags):
        bags = [select_columns(bag, bags[0].columns) for bag in bags]
        rows: Any = pd.concat(bags)
    else:
        bags = [np.atleast_2d(np.asarray(bag)) for bag in bags]
        _check_shapes(bags)
        rows = np.concatenate(bags)
    for number, bag in enumerate(bags):
        if len(bag) == 0:
            raise UsageError(f"bag {number} has no instances: leave it out")
    return rows, [len(bag) for bag in bags]


def _check_shapes(bags: list[Any]) -> None:
    """Raise UsageError unless there are bags, and all of them are (K, D) with the same D."""
    features = {bag.shape[1:] for bag in bags}
    if len(features) == 1 and bags[0].ndim == 2:
        return
    shapes = sorted({str(bag.shape) for bag in bags})
    listed = ", ".join(shapes[:5]) or "none"
    raise UsageError(
        f"bags must be arrays (K, D) of instances with the same D features, got {listed}"
    )
