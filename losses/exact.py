"""The exact likelihood of the label set, or a certified bound of it.

The likelihood itself is computed by `bag_log_prob_from_logits` in `milbench.likelihood`.
"""

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from milbench import Reduction, UsageError
from milbench.errors import one_of
from milbench.likelihood import EXACT_LABEL_LIMIT, bag_log_prob_bounds, bag_log_prob_from_logits

from ._positions import sum_positions
from ._softmax import DivideBy, PerPosition, lower_log_prob


class Exact(PerPosition):
    """Negative log-likelihood of the label set, summed over every way to place its classes.

        loss = -log Prb(L | P) / D,

    where L is the label set, P is the softmax over the channels of each of the K positions, and
    Prb(L | P) is the probability that every class of L occurs at one or more positions, and that
    every position shows a class of L or background. Positions are independent given P.

    Args:
        divide_by: the divisor D. `none`: 1, the negative log-likelihood itself, in nats a bag.
            `bag`: the bag's own number of positions K, as published, which gives small bags more
            weight. `batch`: the mean number of positions of the bags of the batch, the default in
            earlier results. With `batch` the loss of a bag depends on the other bags of its batch,
            so that gradients accumulated over parts of a batch, or over several devices, are not
            the gradient of the whole batch. Where a recipe scales every gradient to the same
            length, as recipes do by default, `none` and `batch` train alike.
        rule: the score of class c, by which a bag of one instance is classified: `sum`, sum_k
            p_{c,k}; `exact`, sum_k log(p_{c,k} + p_{background,k}) up to a constant, which is
            largest for the most probable label set of one class.
        method: how log Prb is computed: `exact`, for label sets of at most 16 classes; `lower` or
            `upper`, a certified bound, for label sets of any size; `auto`, the exact value for at
            most 16 classes and the lower bound for more, with which the loss is never too small.

    Edge cases: a label set of more classes than positions cannot occur. It is rejected, and its
    loss is +inf if the check of values is off. The loss of an empty label set is minus the
    log-probability that every position shows background, divided by D.

    Source: X.-L. Li, "A Multiclass Multiple Instance Learning Method with Exact Likelihood",
    arXiv:1811.12346, 2018. The same likelihood was maximised earlier, with EM, by A. T. Pham, R.
    Raich and X. Z. Fern, "Dynamic Programming for Instance Annotation in Multi-instance Multi-label
    Learning", arXiv:1411.4068, 2014.
    """

    name = "exact"

    def __init__(
        self,
        divide_by: DivideBy = "none",
        rule: Literal["sum", "exact"] = "sum",
        method: Literal["auto", "exact", "upper", "lower"] = "auto",
        *,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(divide_by, reduction=reduction, validate=validate)
        self.rule = one_of("rule of exact", rule, ("sum", "exact"))
        self.method = one_of("method of exact", method, ("auto", "exact", "upper", "lower"))

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        log_prob = self._log_prob(logits, labels, mask)
        return self.divided(-log_prob, logits, mask)

    def _log_prob(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), log Prb(L | P) or a bound of it, as `method` says."""
        # No validation: logits and labels were checked, and a softmax sums to 1.
        if self.method in ("upper", "lower"):
            log_probs = logits.log_softmax(dim=1)
            bounds = bag_log_prob_bounds(
                log_probs, labels, mask, validate=False, max_labels=self.max_labels
            )
            return bounds.upper if self.method == "upper" else bounds.lower
        most_classes = labels.shape[1]
        if self.max_labels:
            most_classes = min(most_classes, self.max_labels)
        if most_classes <= EXACT_LABEL_LIMIT:
            return bag_log_prob_from_logits(
                logits, labels, mask, validate=False, max_labels=self.max_labels
            )
        # A label set may be too large, so the sizes of all are looked at.
        if self.method == "exact":
            _check_sizes(labels)
        return lower_log_prob(logits, labels, mask)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        if self.rule == "sum":
            return super().scores(logits, mask)
        # Where the background is almost certain, log(p_c + p_background) rounds to 0 for every
        # class. So log p_background, the same for all classes, is subtracted: the ranking is the
        # same, and log(1 + p_c / p_background) does not round to 0.
        return sum_positions(-F.logsigmoid(logits[:, -1:] - logits[:, :-1]), mask)


def _check_sizes(labels: Tensor) -> None:
    """Raise UsageError for a label set (B, C) bool that is too large for the exact sum."""
    if len(labels) == 0:
        return
    largest = int(labels.sum(dim=1).max())
    if largest > EXACT_LABEL_LIMIT:
        raise UsageError(
            f"exact: a label set of {largest} classes exceeds the limit of the exact sum, "
            f"{EXACT_LABEL_LIMIT} classes; use method=lower, upper or auto"
        )
