"""What each test bag adds to macro F1, average precision and AUROC, which are not means over bags.

Statistical tests need a value for each bag. For average precision and AUROC, the value of a bag
comes from the metric without this bag. Let m be the metric of all n bags, m(-b) the metric without
bag b, and m' the mean of all m(-b). The value of bag b is

    m + (n - 1) (m' - m(-b))

The mean of these values is the metric, and the variance of their mean is the jackknife estimate of
the metric's variance (B. Efron and C. Stein, "The jackknife estimate of variance", Annals of
Statistics 9, 1981, pp. 586-596). So tests can use them like the values of a metric that is a mean.

For F1, the value of a bag is the metric plus the derivative of the metric by the weight of the bag,
which is simpler: no bag has to be left out. For average precision and AUROC the derivative gives
the same values where every class is in many bags, but only a third of the variance where a class is
in one or two bags.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Scores = NDArray[np.floating]


def macro_f1_by_bag(predicted: Bools, labels: Bools) -> Floats | None:
    """Return what each of n bags adds to macro F1, (n,); None where no class occurs.

    F1 is the ratio of two means over bags, 2 TP and 2 TP + FP + FN. The value of a bag is the first
    order of how it moves this ratio. As in the metric, the mean is over the classes that occur.

    Args:
        predicted: (n, C), the predicted label sets.
        labels: (n, C), the true label sets.
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
    """Return what each of n bags adds to macro average precision, (n,).

    None where no class is in some bags and missing in others. `presence` are the scores (n, C) of
    classes, `labels` the true label sets (n, C).
    """
    return _macro(presence, labels, _average_precision)


def auroc_by_bag(presence: Scores, labels: Bools) -> Floats | None:
    """Return what each of n bags adds to the macro area under ROC curves, (n,).

    Arguments are as in `average_precision_by_bag`, and so is when None is returned.
    """
    return _macro(presence, labels, _auroc)


def _macro(
    presence: Scores, labels: Bools, of_class: Callable[[Scores, Bools], tuple[float, Floats]]
) -> Floats | None:
    """Return the values of bags for the mean of a metric over classes; None where it is undefined.

    `of_class` returns the metric of one class, and the metric without each bag. The mean is over
    the classes that some bags have and some do not have.
    """
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
    """Return the values of bags, (n,), by the formula of this module.

    Args:
        whole: the metric of all bags, m.
        without: (n, C), the metric of each class without each bag; NaN where it is undefined,
            which leaves this class out of the mean m(-b).
    """
    is_defined = np.isfinite(without)
    classes = is_defined.sum(axis=1)
    sums = np.where(is_defined, without, 0).sum(axis=1)
    # Where the metric is undefined for all classes without a bag, `whole` stands for m(-b).
    means = np.divide(sums, classes, out=np.full(len(without), whole), where=classes > 0)
    return np.asarray(whole + (len(without) - 1) * (means.mean() - means))


def _average_precision(scores: Scores, is_present: Bools) -> tuple[float, Floats]:
    """Return the average precision of a class, and the average precision without each bag, (n,).

    The precision at a score is the share of bags with the class among the bags that score at least
    as much. Average precision is the mean, over the bags with the class, of the precision at their
    score. Leaving out a bag changes the precision at its own score and at lower scores.
    """
    # Bags are ranked from the largest score down, and equal scores have equal ranks. The arrays
    # that follow have a value for each rank; indexing by `rank` gives a value for each bag.
    rank = np.unique(-scores, return_inverse=True)[1]
    bags = np.bincount(rank)
    present = np.bincount(rank, weights=is_present)
    all_above = np.cumsum(bags)
    present_above = np.cumsum(present)
    positives = float(present.sum())

    precision = present_above / all_above
    whole = float((present * precision).sum() / positives)

    # The next arrays are sums of precision over bags with the class, when a bag of this rank is
    # left out. Bags that score more keep their precision.
    before = np.cumsum(present * precision) - present * precision
    others = np.maximum(all_above - 1, 1)
    # If the bag lacks the class: the bags at its rank and below.
    without_absent = _sum_from(present * present_above / others)
    # If the bag has the class: the bags below its rank, and the other bags at its rank.
    without_present = present * (present_above - 1) / others
    after = _sum_from(without_present) - without_present
    own_rank = (present - 1) * (present_above - 1) / others

    # The average precision without a bag, if the bag lacks the class and if it has the class.
    if_absent = (before + without_absent)[rank] / positives
    if_present = np.full(len(scores), np.nan)
    if positives > 1:
        if_present = (before + own_rank + after)[rank] / (positives - 1)
    # If only one bag lacks the class, the metric is undefined without this bag.
    is_only_absent = len(scores) - positives == 1
    if is_only_absent:
        if_absent = np.full(len(scores), np.nan)
    return whole, np.where(is_present, if_present, if_absent)


def _auroc(scores: Scores, is_present: Bools) -> tuple[float, Floats]:
    """Return the area under the ROC curve of a class, and the area without each bag, (n,).

    Consider all pairs of a bag with the class and a bag without it. The area is the share of pairs
    in which the bag with the class scores higher; a pair of equal scores counts as half.
    """
    rank = np.unique(scores, return_inverse=True)[1]
    present = np.bincount(rank, weights=is_present)
    absent = np.bincount(rank, weights=~is_present)
    # By rank: how many bags without the class score less, and how many bags with it score more.
    # Bags with an equal score count as half.
    absent_below = np.cumsum(absent) - absent / 2
    present_above = present.sum() - np.cumsum(present) + present / 2
    positives = float(present.sum())
    negatives = float(absent.sum())
    # By bag: in how many of its pairs the bag with the class scores higher.
    won = np.where(is_present, absent_below[rank], present_above[rank])
    pairs_won = float(won[is_present].sum())
    whole = pairs_won / (positives * negatives)

    pairs_left = np.where(is_present, (positives - 1) * negatives, positives * (negatives - 1))
    without = np.divide(
        pairs_won - won, pairs_left, out=np.full(len(scores), np.nan), where=pairs_left > 0
    )
    return whole, without


def _sum_from(values: Floats) -> Floats:
    """Return for each index the sum of the values from this index on."""
    return np.asarray(np.cumsum(values[::-1])[::-1])
