"""What each test bag adds to a metric that is no mean over bags: macro F1, average precision and AUROC.

With other test bags such a metric moves, to first order, by the mean of its influence over these bags: what the metric
gains for each unit of weight that a bag gets (F. R. Hampel, "The influence curve and its role in robust estimation",
Journal of the American Statistical Association 69, 1974, pp. 383-393). The influences of the bags at hand have the mean
zero. So a metric plus its influences has the metric as its mean, and varies as the metric does: it can stand for the
outcomes of a metric that is a mean.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def macro_f1_by_bag(predicted: Bools, labels: Bools) -> Floats | None:
    """Return macro F1 plus the influence of each of n bags, (n,); None where no class occurs.

    `predicted` and `labels` are label sets (n, C). The mean is over the classes that occur, as in the metric.
    """
    occurs = labels.any(axis=0)
    if not occurs.any():
        return None
    hits = 2.0 * (predicted & labels)[:, occurs]
    counted = hits + (predicted != labels)[:, occurs]
    f1 = hits.sum(axis=0) / counted.sum(axis=0)
    # F1 is a ratio of two means over bags.
    influences = (hits - f1 * counted) / counted.mean(axis=0)
    return np.asarray((f1 + influences).mean(axis=1))


def average_precision_by_bag(presence: NDArray[np.floating], labels: Bools) -> Floats | None:
    """Return macro average precision plus the influence of each of n bags, (n,); None where it is not defined.

    `presence` are the scores (n, C) of classes.
    """
    return _mean_over_classes(presence, labels, _average_precision)


def auroc_by_bag(presence: NDArray[np.floating], labels: Bools) -> Floats | None:
    """Return the macro area below ROC curves plus the influence of each of n bags; see `average_precision_by_bag`."""
    return _mean_over_classes(presence, labels, _auroc)


def _mean_over_classes(
    presence: NDArray[np.floating],
    labels: Bools,
    of_class: Callable[[NDArray[np.floating], Bools], Floats],
) -> Floats | None:
    """Return the mean over the classes that some bags have and some not; None where there is none."""
    by_class = []
    for c in range(labels.shape[1]):
        is_present = labels[:, c]
        if is_present.any() and not is_present.all():
            by_class.append(of_class(presence[:, c], is_present))
    if not by_class:
        return None
    return np.asarray(np.mean(by_class, axis=0))


def _average_precision(scores: NDArray[np.floating], is_present: Bools) -> Floats:
    """Return average precision of a class plus the influence of each bag.

    It is the mean over bags with the class of the precision p(s) at their score s, the share of bags with the class
    among the share h(s) of all bags that score at least s. A bag has two influences. If it has the class, it is one of
    those that the mean is over. And where it scores at least s, it raises p(s) if it has the class, and else lowers it.
    """
    n = len(scores)
    share = is_present.mean()
    # Scores from the largest to the smallest; equal ones have the same rank, and count together.
    rank = np.unique(-scores, return_inverse=True)[1]
    of_rank = np.bincount(rank)
    present_of_rank = np.bincount(rank, weights=is_present)
    at_least = np.cumsum(of_rank) / n
    precision = np.cumsum(present_of_rank) / np.cumsum(of_rank)
    average = float(precision[rank][is_present].mean())
    as_one_of_the_mean = np.where(is_present, precision[rank] - average, 0) / share
    # A bag moves the precision at its own score and at all smaller ones.
    weight = present_of_rank / at_least / n
    raised = _sum_from(weight)[rank]
    lowered = _sum_from(weight * precision)[rank]
    as_one_above = (is_present * raised - lowered) / share
    return np.asarray(average + as_one_of_the_mean + as_one_above)


def _auroc(scores: NDArray[np.floating], is_present: Bools) -> Floats:
    """Return the area below the ROC curve of a class plus the influence of each bag.

    The area is the share of pairs, of a bag with the class and one without, in which the first one scores higher; equal
    scores count as half. The share of its own pairs is the placement of a bag (E. R. DeLong, D. M. DeLong and D. L.
    Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating characteristic curves",
    Biometrics 44, 1988, pp. 837-845).
    """
    rank = np.unique(scores, return_inverse=True)[1]
    present_of_rank = np.bincount(rank, weights=is_present)
    absent_of_rank = np.bincount(rank, weights=~is_present)
    absent_below = np.cumsum(absent_of_rank) - absent_of_rank / 2
    present_below = np.cumsum(present_of_rank) - present_of_rank / 2
    present = is_present.sum()
    absent = len(scores) - present
    placement = np.where(is_present, absent_below[rank] / absent, 1 - present_below[rank] / present)
    area = float(placement[is_present].mean())
    share_of_kind = np.where(is_present, present, absent) / len(scores)
    return np.asarray(area + (placement - area) / share_of_kind)


def _sum_from(values: Floats) -> Floats:
    """Return for each place the sum of the values from there on."""
    return np.asarray(np.cumsum(values[::-1])[::-1])
