"""Exponential softmax: the mean of a detector's probabilities, weighted by their exponentials."""

from torch import Tensor

from ._pooling import PooledLoss, weighted_mean_log_odds


class ExponentialSoftmax(PooledLoss):
    """Binary cross-entropy of each class's mean with exponential weights, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = sum_k p_{c,k} exp(p_{c,k}) / sum_k exp(p_{c,k}),

    where L is the label set of the bag, and the detector p_{c,k} = sigmoid(z_{c,k}) is the
    probability of class c at position k, independent of the other classes. The background channel
    is not used.

    The largest weight is at most e times the smallest. So, as with `mean`, P_c falls with the size
    of the bag where few positions show the class.

    Args:
        weight: the factor of the cost of a class: one number for all classes, or a list of one
            number for each class. None means 1.
        pos_weight: a further factor, in bags that have the class: one number, a list, or
            `balanced`. None means 1. `balanced` is (N - n_c) / n_c, where N is the number of
            training bags, and n_c how many of them have the class. It is 1 for a class that all
            training bags have, or none.

    Source: Y. Wang, J. Li and F. Metze, "A Comparison of Five Multiple Instance Learning Pooling
    Functions for Sound Event Detection with Weak Labeling", ICASSP 2019, arXiv:1810.09050.
    """

    name = "exponential-softmax"

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        return weighted_mean_log_odds(detectors.sigmoid(), detectors, mask)
