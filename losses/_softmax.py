"""The bases of losses of the softmax over the channels of each position, and how these score a class."""

from abc import abstractmethod
from typing import Literal, get_args

from torch import Tensor

from milbench import Loss, Reduction, bag_sizes
from milbench.errors import one_of
from milbench.likelihood import (
    EXACT_LABEL_LIMIT,
    bag_log_prob_bounds,
    bag_log_prob_from_logits,
    presence_log_odds,
)

from ._positions import sum_positions

DivideBy = Literal["batch", "bag", "none"]


class SoftmaxLoss(Loss):
    """A class scores by its expected number of positions, sum_k p_{c,k}, with P the softmax of each position."""

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return sum_positions(logits.softmax(dim=1)[:, :-1], mask)


class IndependentPositions(SoftmaxLoss):
    """A class is present by its log-odds where positions, given P, are independent."""

    presence_is_log_odds = True

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        # A softmax sums to 1: nothing is left to validate.
        return presence_log_odds(logits.log_softmax(dim=1), mask, validate=False)


class PerPosition(IndependentPositions):
    """A loss of all positions of a bag together; `divide_by` may divide it by their number, as in `exact`.

    By default a class scores by its expected number of positions, and is present by its log-odds when positions are
    independent: that is what the softmax at every position says. So is the probability of a label set.
    """

    def __init__(
        self,
        divide_by: DivideBy = "none",
        *,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.divide_by = one_of(f"divide_by of {self.name}", divide_by, get_args(DivideBy))

    @abstractmethod
    def total(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the loss of every bag before it is divided."""

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        loss = self.total(logits, labels, mask)
        if self.divide_by == "none":
            return loss
        sizes = bag_sizes(logits, mask)
        if self.divide_by == "bag":
            return loss / sizes
        if mask is None:
            # All bags have one size, which an empty batch has no mean of.
            return loss / sizes
        return loss / sizes.mean()

    def set_log_prob(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return (B,), log Prb(L | P); a lower bound for label sets of more than EXACT_LABEL_LIMIT classes.

        It is computed on the CPU, bag by bag, since sets are not bounded by those of training: on an accelerator the
        memory would grow with 2^|L| for a whole batch.
        """
        cpu_mask = None if mask is None else mask.cpu()
        log_prob = lower_log_prob(logits.cpu(), labels.cpu(), cpu_mask)
        return log_prob.to(logits.device)


def lower_log_prob(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), log Prb(L | P), or a lower bound of it for label sets of more than EXACT_LABEL_LIMIT classes."""
    is_large = labels.sum(dim=1) > EXACT_LABEL_LIMIT
    # Large label sets are replaced by the empty one here, and their values by those of the bound below.
    small_sets = labels & ~is_large.unsqueeze(1)
    log_prob = bag_log_prob_from_logits(logits, small_sets, mask, validate=False)
    if not bool(is_large.any()):
        return log_prob
    large_mask = None if mask is None else mask[is_large]
    log_probs = logits[is_large].log_softmax(dim=1)
    bounds = bag_log_prob_bounds(log_probs, labels[is_large], large_mask, validate=False)
    return log_prob.masked_scatter(is_large, bounds.lower.to(log_prob))
