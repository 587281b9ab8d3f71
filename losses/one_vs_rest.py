"""One-vs-rest: one binary multiple-instance problem a class, on the largest logit of the bag."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from milbench import Loss, Reduction

from ._positions import exclude_masked, presence_cross_entropy


class OneVsRest(Loss):
    """Binary cross-entropy of the largest logit of each class, summed over classes.

        loss = -sum_{c in L} log sigmoid(m_c) - sum_{c not in L} log sigmoid(-m_c),  m_c = max_k z_{c,k}.

    The classes have independent detectors; the background channel is not used.

    Args:
        network: `task`: that of the task, which sees instances or their surroundings. Or a network that pools the
            instances of a bag by attention (`milbench list networks`): m_c is then its logit of the whole bag, and the
            evidence of a position its attention.

    Edge cases: positions that tie for a maximum share its gradient equally; the loss is +inf where the label set of a
    bag without instances is not empty and not rejected.

    Source: M. Oquab, L. Bottou, I. Laptev and J. Sivic, "Is Object Localization for Free? Weakly-Supervised Learning
    with Convolutional Neural Networks", CVPR 2015; the maximum for one class: S. Andrews, I. Tsochantaridis and
    T. Hofmann, "Support Vector Machines for Multiple-Instance Learning", NIPS 2002.
    """

    name = "one-vs-rest"
    revision = 2
    head = "sigmoid"
    presence_is_log_odds = True

    def __init__(
        self,
        network: Literal["task", "gated-attention", "dsmil", "set-transformer"] = "task",
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.network = network

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the binary cross-entropy of the largest logits, summed over classes."""
        return presence_cross_entropy(self.scores(logits, mask), labels)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the largest logit of each class."""
        return exclude_masked(logits[:, :-1], mask).amax(dim=2)
