"""The base classes of losses with a softmax: each position shows one class, or the background.

Each class extends the one before it:

- `SoftmaxLoss`: the score of a class. `ctc` and `position` are direct subclasses.
- `IndependentPositions`: adds how likely a class is to occur in a bag. `count` extends it directly.
- `PerPosition`: adds the probability of a label set, and the parameter `divide_by`. Its subclasses
  are `exact`, `exact-em`, `hard-em` and `superset`.

What a loss minimises is computed in its own file, by `bag_loss` or `target_loss`.
"""

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
    """The score of a class is the expected number of positions that show it, sum_k p_{c,k}.

    p_{c,k} is the softmax over the channels of position k.
    """

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return sum_positions(logits.softmax(dim=1)[:, :-1], mask)


class IndependentPositions(SoftmaxLoss):
    """The presence of a class is the log-odds that at least one position shows it.

    Each position shows one channel with the probabilities of its softmax, independently of the
    other positions.
    """

    presence_is_log_odds = True

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        # A softmax sums to 1: nothing is left to validate.
        return presence_log_odds(logits.log_softmax(dim=1), mask, validate=False)


class PerPosition(IndependentPositions):
    """A loss of a label set, which may be divided by the number of positions.

    A subclass writes `bag_loss`, which returns the result of `divided`. `set_log_prob` is the exact
    log-probability of a label set, for independent positions.

    Args:
        divide_by: what `divided` divides by; `exact` describes the choices.
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

    def divided(self, losses: Tensor, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return the losses (B,) of the bags, each divided by what `divide_by` names."""
        if self.divide_by == "none":
            return losses
        sizes = bag_sizes(logits, mask)
        if self.divide_by == "bag":
            return losses / sizes
        if mask is None:
            # All bags have the same size. An empty batch has no mean size.
            return losses / sizes
        return losses / sizes.mean()

    def set_log_prob(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return (B,), the log-probability of each label set, or a lower bound for a large one.

        The bound is for label sets L of more than EXACT_LABEL_LIMIT classes. All is computed on the
        CPU: these label sets may be larger than those of training, and the memory for a batch grows
        with 2^|L|, which an accelerator may not have.
        """
        cpu_mask = None if mask is None else mask.cpu()
        log_prob = lower_log_prob(logits.cpu(), labels.cpu(), cpu_mask)
        return log_prob.to(logits.device)


def lower_log_prob(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the log-probability of each label set, or a lower bound for a large label set.

    A label set is large if it has more than EXACT_LABEL_LIMIT classes.
    """
    is_large = labels.sum(dim=1) > EXACT_LABEL_LIMIT
    # The exact log-probability is computed for all bags, with the empty set in place of a large
    # label set. A bound then replaces the values for large label sets.
    small_sets = labels & ~is_large.unsqueeze(1)
    log_prob = bag_log_prob_from_logits(logits, small_sets, mask, validate=False)
    if not bool(is_large.any()):
        return log_prob
    large_mask = None if mask is None else mask[is_large]
    log_probs = logits[is_large].log_softmax(dim=1)
    bounds = bag_log_prob_bounds(log_probs, labels[is_large], large_mask, validate=False)
    return log_prob.masked_scatter(is_large, bounds.lower.to(log_prob))
