"""One-vs-rest: one binary multiple-instance problem a class, on the largest logit of the bag."""

from torch import Tensor

from ._pooling import PooledLoss
from ._positions import exclude_masked


class OneVsRest(PooledLoss):
    """Binary cross-entropy of the largest logit of each class, summed over classes.

        loss = -sum_{c in L} log sigmoid(m_c) - sum_{c not in L} log sigmoid(-m_c),  m_c = max_k z_{c,k}.

    The classes have independent detectors; the background channel is not used. Positions that tie
    for a maximum share its gradient equally.

    With a network that pools the instances of a bag by attention, such as `gated-attention`, m_c is
    its logit of the whole bag, and the evidence of a position its attention.

    Args:
        weight: what the cost of a class is multiplied by: a number, or one for each class. None: 1.
        pos_weight: what it is multiplied by in bags that have the class: a number, one for each
            class, or `balanced`. None: 1. `balanced` is (N - n_c) / n_c, where n_c of the N
            training bags have the class, and 1 for a class that all of them have, or none.

    Source: M. Oquab, L. Bottou, I. Laptev and J. Sivic, "Is Object Localization for Free?
    Weakly-Supervised Learning with Convolutional Neural Networks", CVPR 2015; the maximum for one
    class: S. Andrews, I. Tsochantaridis and T. Hofmann, "Support Vector Machines for
    Multiple-Instance Learning", NIPS 2002.
    """

    name = "one-vs-rest"
    revision = 2

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        return exclude_masked(detectors, mask).amax(dim=2)
