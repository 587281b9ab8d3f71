"""Integrated segmentation and recognition: the odds of a class are summed over positions."""

from torch import Tensor

from ._pooling import PooledLoss
from ._positions import exclude_masked


class Isr(PooledLoss):
    """Binary cross-entropy of each class's presence, by the sum of its odds, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = S_c / (1 + S_c),    S_c = sum_k exp(z_{c,k}),

    where L is the label set of the bag and z_{c,k} the logit of class c at position k. The
    background channel is not used.

    Each class has independent detectors, with probability sigmoid(z_{c,k}) and odds exp(z_{c,k}).
    P_c is the probability that the class occurs once, given that it occurs at one position at most.
    The odds S_c grow with the size of the bag.

    Args:
        weight: the factor of the cost of a class: one number for all classes, or a list of one
            number for each class. None means 1.
        pos_weight: a further factor, in bags that have the class: one number, a list, or
            `balanced`. None means 1. `balanced` is (N - n_c) / n_c, where N is the number of
            training bags, and n_c how many of them have the class. It is 1 for a class that all
            training bags have, or none.

    Source: J. D. Keeler, D. E. Rumelhart and W.-K. Leow, "Integrated Segmentation and Recognition
    of Hand-Printed Numerals", NIPS 1990 (Advances in Neural Information Processing Systems 3,
    1991).
    """

    name = "isr"

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        return exclude_masked(detectors, mask).logsumexp(dim=2)
