"""Mean: the presence of a class is the mean probability of its detectors."""

import torch
from torch import Tensor

from ._pooling import PooledLoss, weighted_mean_log_odds


class Mean(PooledLoss):
    """Binary cross-entropy of the mean probability of each class, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = (1 / K) sum_k p_{c,k},

    where L is the label set of the bag, K its number of positions, and the detector
    p_{c,k} = sigmoid(z_{c,k}) is the probability of class c at position k, independent of the other
    classes. The background channel is not used.

    The larger a bag, the smaller the share of its positions that one instance takes, and so P_c.

    Args:
        weight: the factor of the cost of a class: one number for all classes, or a list of one
            number for each class. None means 1.
        pos_weight: a further factor, in bags that have the class: one number, a list, or
            `balanced`. None means 1. `balanced` is (N - n_c) / n_c, where N is the number of
            training bags, and n_c how many of them have the class. It is 1 for a class that all
            training bags have, or none.

    Source: "average pooling" in Y. Wang, J. Li and F. Metze, "A Comparison of Five Multiple
    Instance Learning Pooling Functions for Sound Event Detection with Weak Labeling", ICASSP 2019,
    arXiv:1810.09050.
    """

    name = "mean"

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        return weighted_mean_log_odds(torch.zeros_like(detectors), detectors, mask)
