"""What each test bag adds to a metric that is no mean over bags: macro F1, average precision and AUROC.

To a ranking a bag adds what the metric loses without it. With m of n bags and m(-b) without bag b,
the value of b is

    m + (n - 1) (m' - m(-b)),    m': the mean of all m(-b)

These values have the metric as their mean, and the variance of their mean is the jackknife's of the
metric (B. Efron and C. Stein, "The jackknife estimate of variance", Annals of Statistics 9, 1981,
pp. 586-596). So they can stand for the outcomes of a metric that is a mean.

The derivative of the metric by the weight of a bag would be simpler. For a ranking it gives the
same values where every class is in many bags, but only a third of the variance where a class is in
one or two. For F1 it has no such fault, and is used: no bag has to be left out.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Scores = NDArray[np.floating]


def macro_f1_by_bag(predicted: Bools, labels: Bools) -> Floats | None:
    """Return what each of n bags adds to macro F1, (n,); None where no class occurs.

    F1 is a ratio of two means over bags, 2 TP and 2 TP + FP + FN, and to first order moves as they
    do.

    `predicted` and `labels` are label sets (n, C). The mean is over the classes that occur, as in
    the metric.
    """
    occurs = labels.any(axis=0)
    if not occurs.any():
        return None
    true_positives = (predicted & labels)[:, occurs].astype(float)
    # FP + FN.
    errors = (predicted != labels)[:, occurs].astype(float)
    numerators = 2.0 * true_positives
    denominators = numerators + errors
    f1 = numerators.sum(axis=0) / denominators.sum(axis=0)
    gains = (numerators - f1 * denominators) / denominators.mean(axis=0)
    return np.asarray((f1 + gains).mean(axis=1))


def average_precision_by_bag(presence: Scores, labels: Bools) -> Floats | None:
    """Return what each of n bags adds to macro average precision, (n,); None where that is not defined.

    `presence` are the scores (n, C) of classes.
    """
    return _macro(presence, labels, _average_precision)


def auroc_by_bag(presence: Scores, labels: Bools) -> Floats | None:
    """Return what each of n bags adds to the macro area below ROC curves; see `average_precision_by_bag`."""
    return _macro(presence, labels, _auroc)


def _macro(
    presence: Scores, labels: Bools, of_class: Callable[[Scores, Bools], tuple[float, Floats]]
) -> Floats | None:
    """Return the values of bags for a mean over the classes that some bags have and some not."""
    wholes = []
    withouts = []
    for c in range(labels.shape[1]):
        is_present = labels[:, c]
        if is_present.any() and not is_present.all():
            whole, without = of_class(presence[:, c], is_present)
            wholes.append(whole)
            withouts.append(without)
    if not wholes:
        return None
    return _values(float(np.mean(wholes)), np.stack(withouts, axis=1))


def _values(whole: float, without: Floats) -> Floats:
    """Return the values of bags from a metric, and what each class has without each bag, (n, C).

    A class that is not defined without a bag, NaN, is then not in the mean over classes.
    """
    is_defined = np.isfinite(without)
    classes = is_defined.sum(axis=1)
    sums = np.where(is_defined, without, 0).sum(axis=1)
    # Without the bag, no class may be left: it then changes nothing that is known.
    means = np.divide(sums, classes, out=np.full(len(without), whole), where=classes > 0)
    return np.asarray(whole + (len(without) - 1) * (means.mean() - means))


def _average_precision(scores: Scores, is_present: Bools) -> tuple[float, Floats]:
    """Return the average precision of a class, and that without each bag.

    It is the mean over the bags with the class of the precision at their score: the share of bags
    with the class among all that score at least as much. Without a bag, both numbers fall by one at
    its own score and below.
    """
    # Ranks from the largest score down; bags with equal scores have one, and count together.
    # Below, arrays have a value for each rank until `[rank]` gives each bag that of its own.
    rank = np.unique(-scores, return_inverse=True)[1]
    bags = np.bincount(rank)
    present = np.bincount(rank, weights=is_present)
    all_above = np.cumsum(bags)
    present_above = np.cumsum(present)
    positives = float(present.sum())

    precision = present_above / all_above
    whole = float((present * precision).sum() / positives)

    # Sums of precision over the bags with the class. Without a bag, those that score more keep
    # their precision.
    before = np.cumsum(present * precision) - present * precision
    others = np.maximum(all_above - 1, 1)
    # Without a bag that lacks the class: the bags at its rank and below.
    without_absent = _sum_from(present * present_above / others)
    # Without a bag that has the class: the bags below its rank, and the other ones at its rank.
    without_present = present * (present_above - 1) / others
    after = _sum_from(without_present) - without_present
    own_rank = (present - 1) * (present_above - 1) / others

    # The average precision without a bag, if it lacks the class and if it has it.
    if_absent = (before + without_absent)[rank] / positives
    if_present = np.full(len(scores), np.nan)
    if positives > 1:
        if_present = (before + own_rank + after)[rank] / (positives - 1)
    # Without the only bag that lacks the class, all have it, and nothing is ranked.
    is_only_absent = len(scores) - positives == 1
    if is_only_absent:
        if_absent = np.full(len(scores), np.nan)
    return whole, np.where(is_present, if_present, if_absent)


def _auroc(scores: Scores, is_present: Bools) -> tuple[float, Floats]:
    """Return the area below the ROC curve of a class, and that without each bag.

    It is the share of pairs, of a bag with the class and one without, in which the first scores
    higher; equal scores count as half. A bag is left out with all its pairs.
    """
    rank = np.unique(scores, return_inverse=True)[1]
    present = np.bincount(rank, weights=is_present)
    absent = np.bincount(rank, weights=~is_present)
    # Equal scores count as half, here and in the next line.
    absent_below = np.cumsum(absent) - absent / 2
    present_above = present.sum() - np.cumsum(present) + present / 2
    positives = float(present.sum())
    negatives = float(absent.sum())
    won = np.where(is_present, absent_below[rank], present_above[rank])
    pairs_won = float(won[is_present].sum())
    whole = pairs_won / (positives * negatives)

    pairs_left = np.where(is_present, (positives - 1) * negatives, positives * (negatives - 1))
    without = np.divide(
        pairs_won - won, pairs_left, out=np.full(len(scores), np.nan), where=pairs_left > 0
    )
    return whole, without


def _sum_from(values: Floats) -> Floats:
    """Return for each place the sum of the values from there on."""
    return np.asarray(np.cumsum(values[::-1])[::-1])
