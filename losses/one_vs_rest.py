"""One-vs-rest: a binary problem for each class, on its largest logit in the bag."""

from torch import Tensor

from ._pooling import PooledLoss
from ._positions import exclude_masked


class OneVsRest(PooledLoss):
    """Binary cross-entropy of the largest logit of each class, summed over classes.

        loss = -sum_{c in L} log sigmoid(m_c) - sum_{c not in L} log sigmoid(-m_c),
        m_c = max_k z_{c,k},

    where L is the label set of the bag. The logit z_{c,k} of class c at position k is an
    independent detector; the background channel is not used. Positions that tie for a maximum share
    its gradient equally.

    With a network that pools the instances of a bag by attention, such as `gated-attention`, m_c is
    the network's logit of the whole bag, and the evidence of a position is its attention.

    Args:
        weight: the factor of the cost of a class: one number for all classes, or a list of one
            number for each class. None means 1.
        pos_weight: a further factor, in bags that have the class: one number, a list, or
            `balanced`. None means 1. `balanced` is (N - n_c) / n_c, where N is the number of
            training bags, and n_c how many of them have the class. It is 1 for a class that all
            training bags have, or none.

    Source: M. Oquab, L. Bottou, I. Laptev and J. Sivic, "Is Object Localization for Free?
    Weakly-Supervised Learning with Convolutional Neural Networks", CVPR 2015. Earlier, the maximum
    for one class: S. Andrews, I. Tsochantaridis and T. Hofmann, "Support Vector Machines for
    Multiple-Instance Learning", NIPS 2002.
    """

    name = "one-vs-rest"
    revision = 2

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        return exclude_masked(detectors, mask).amax(dim=2)
