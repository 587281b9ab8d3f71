"""Compare two ways to choose a threshold by few bags: the set errors on 20,000 new bags.

One way is that of `milbench.evaluation.thresholds`, and the other takes the threshold with the
fewest errors on the few bags. The bags are made up: presence scores are normal. The means of
present and absent classes differ by some standard deviations, and all scores of a bag share a
random offset.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milbench.evaluation.thresholds import choose_threshold, predicted_sets

REPETITIONS = 200
"""How often thresholds are chosen in each case, every time by other bags."""
NEW_BAGS = 20_000
COMMON = 0.5
"""The standard deviation of the offset that the scores of one bag share."""


class Case(NamedTuple):
    """The settings of one row of the table."""

    bags: int
    """By how many bags a threshold is chosen."""
    classes: int
    """The number of classes."""
    share: float
    """The share of bags that have a class, the same for every class."""
    distance: float
    """The mean score of present classes minus that of absent classes, in standard deviations."""


CASES = [
    Case(26, 19, 0.12, 1.6),
    Case(26, 19, 0.12, 5.0),
    Case(26, 5, 0.30, 4.0),
    Case(26, 5, 0.30, 7.0),
    Case(26, 19, 0.12, 8.0),
    Case(100, 10, 0.20, 4.0),
    Case(500, 10, 0.20, 4.0),
]

Array = NDArray[Any]


def set_error(presence: Array, labels: Array, threshold: float) -> float:
    """Return the share of bags whose label set is wrong."""
    is_wrong = (predicted_sets(presence, threshold) != labels).any(axis=1)
    return float(is_wrong.mean())


def with_fewest_errors(presence: Array, labels: Array) -> float:
    """Return the threshold with the fewest wrong label sets: the middle one of several."""
    tried = np.append(np.unique(presence), math.inf)
    errors = np.array([set_error(presence, labels, threshold) for threshold in tried])
    best = np.flatnonzero(errors == errors.min())
    return float(tried[best[len(best) // 2]])


def row_of(case: Case, rng: np.random.Generator) -> str:
    """Return a row of the table.

    It has the smallest error of any threshold, and for each way to choose a threshold the mean and
    the 95 % quantile of its errors.
    """
    labels = rng.random((NEW_BAGS, case.classes)) < case.share
    common = COMMON * rng.normal(size=(NEW_BAGS, 1))
    means = np.where(labels, case.distance, 0.0)
    presence = means + rng.normal(size=labels.shape) + common
    chosen = []
    fewest = []
    for _ in range(REPETITIONS):
        few = rng.integers(NEW_BAGS, size=case.bags)
        threshold = choose_threshold(presence[few], labels[few], by="sets")
        chosen.append(set_error(presence, labels, threshold))
        threshold = with_fewest_errors(presence[few], labels[few])
        fewest.append(set_error(presence, labels, threshold))
    grid = np.linspace(-1, case.distance + 2, 400)
    least = min(set_error(presence, labels, threshold) for threshold in grid)
    settings = f"{case.bags}|{case.classes}|{case.distance}"
    return f"|{settings}|{least:.1%}|{mean_and_quantile(chosen)}|{mean_and_quantile(fewest)}|"


def mean_and_quantile(errors: list[float]) -> str:
    return f"{np.mean(errors):.1%} / {np.quantile(errors, 0.95):.1%}"


def main() -> None:
    """Print a row for each case."""
    rng = np.random.default_rng(1)
    print("|bags|classes|distance|best possible|chosen|fewest errors|")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        print(row_of(case, rng))


if __name__ == "__main__":
    main()
