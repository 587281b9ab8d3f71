"""The bases of losses of the softmax over the channels of each position, and how these score a class."""

from __future__ import annotations

from torch import Tensor

from milbench import Loss
from milbench.likelihood import presence_log_odds

from ._positions import sum_positions


class SoftmaxLoss(Loss):
    """A class scores by its expected number of positions, sum_k p_{c,k}, with P the softmax of each position."""

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return sum_positions(logits.softmax(dim=1)[:, :-1], mask)


class IndependentPositions(SoftmaxLoss):
    """A class is present by its log-odds where positions, given P, are independent."""

    presence_is_log_odds = True

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return presence_log_odds(logits.log_softmax(dim=1), mask, validate=self.validate)
