"""One binary multiple-instance problem a class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench.api.loss import Loss

from ._positions import exclude_masked


class OneVsRest(Loss):
    """Binary cross-entropy of each class's strongest position, summed over classes.

    -sum_c log sigmoid(s_c m_c), with m_c = max_k z_{c,k} and s_c = +1 where c is in L, -1 elsewhere: C independent
    detectors, each with its own logistic output; the background channel is not used. Where several positions tie for
    the maximum they share its gradient equally, hence no position is preferred for its place.

    M. Oquab, L. Bottou, I. Laptev and J. Sivic, "Is Object Localization for Free? Weakly-Supervised Learning with
    Convolutional Neural Networks", CVPR 2015; the max rule for one class: S. Andrews, I. Tsochantaridis and
    T. Hofmann, "Support Vector Machines for Multiple-Instance Learning", NIPS 2002.
    """

    name = "one-vs-rest"
    head = "sigmoid"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the binary cross-entropy of the strongest positions, summed over classes."""
        highest = self.scores(logits, mask)
        return -F.logsigmoid(torch.where(labels, highest, -highest)).sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the largest logit of each class."""
        return exclude_masked(logits[:, :-1], mask).amax(dim=2)
