"""Integrated segmentation and recognition: the odds of a class in a bag are the sum of its odds at the positions."""

from torch import Tensor

from ._pooling import PooledLoss
from ._positions import exclude_masked


class Isr(PooledLoss):
    """Binary cross-entropy of the presence of each class by the sum of its odds, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),  P_c = S_c / (1 + S_c),  S_c = sum_k exp(z_{c,k}),

    without a background channel. With independent detectors p_{c,k} = sigmoid(z_{c,k}),
    exp(z_{c,k}) are the odds of one, and P_c the probability that the class occurs once, given that
    it does so at one position at most. The odds S_c grow with the size of the bag.

    Args:
        weight: what the cost of a class is multiplied by: a number, or one for each class. None: 1.
        pos_weight: what it is multiplied by in bags that have the class: a number, one for each
            class, or `balanced`. None: 1. `balanced` is (N - n_c) / n_c, where n_c of the N
            training bags have the class, and 1 for a class that all of them have, or none.

    Source: J. D. Keeler, D. E. Rumelhart and W.-K. Leow, "Integrated Segmentation and Recognition
    of Hand-Printed Numerals", NIPS 1990 (Advances in Neural Information Processing Systems 3,
    1991).
    """

    name = "isr"

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        return exclude_masked(detectors, mask).logsumexp(dim=2)
