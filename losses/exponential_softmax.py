"""Exponential softmax: the mean of a detector's probabilities, weighted by their exponentials."""

from torch import Tensor

from ._pooling import PooledLoss, weighted_mean_log_odds


class ExponentialSoftmax(PooledLoss):
    """Binary cross-entropy of the mean probability of each class with exponential weights, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = sum_k p_{c,k} exp(p_{c,k}) / sum_k exp(p_{c,k}),

    with p_{c,k} = sigmoid(z_{c,k}), independent detectors without a background channel. No weight
    is more than e times another: as with `mean`, P_c falls with the size of the bag where few
    positions show the class.

    Args:
        weight: what the cost of a class is multiplied by: a number, or one for each class. None: 1.
        pos_weight: what it is multiplied by in bags that have the class: a number, one for each
            class, or `balanced`. None: 1. `balanced` is (N - n_c) / n_c, where n_c of the N
            training bags have the class, and 1 for a class that all of them have, or none.

    Source: Y. Wang, J. Li and F. Metze, "A Comparison of Five Multiple Instance Learning Pooling
    Functions for Sound Event Detection with Weak Labeling", ICASSP 2019, arXiv:1810.09050.
    """

    name = "exponential-softmax"

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        return weighted_mean_log_odds(detectors.sigmoid(), detectors, mask)
