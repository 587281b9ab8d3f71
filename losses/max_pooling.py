"""Max-pooling, which Li calls the traditional loss: the largest probability of a class in a bag."""

from typing import Literal

import torch
from torch import Tensor

from milbench import Loss, Reduction, bag_sizes
from milbench.errors import one_of

from ._positions import exclude_masked, fill_empty_bags, softmax_log_odds


class MaxPooling(Loss):
    """Cross-entropy of the largest probability of each class in the label set.

        loss = -(1 / |L|) sum_{l in L} log max_k p_{l,k}.

    L is the label set of the bag, and P are the probabilities p_{c,k} of channel c at position k,
    made from the logits z_{c,k}. The channels are the classes and the background.

    Nothing in this formula says that the other classes are absent. With a plain softmax over the
    channels of each position, a network that finds every class at some position of every bag would
    have a loss of 0. With `bag` and `batch` it has not, since all positions share a total of 1.
    With `position` it has, if it also finds background somewhere: this setting only keeps a network
    from finding classes everywhere.

    Args:
        normalization: over what the probabilities P sum to 1.

            - `bag`, as in Li's text: over all channels and positions of a bag. The score of a class
              is sum_k p_{c,k}.
            - `batch`, as in Li's code: over all channels and positions of all bags of a batch. So
              the loss of a bag depends on the other bags of its batch. The loss is the sum over L,
              without 1 / |L|. The score of a class is max_k z_{c,k}. If max_k z_{background,k} is
              larger than that of every class, all scores are -inf, which is no prediction: Li's
              code, too, counts such a bag of one instance as wrong.
            - `position`, after Pathak et al.: over the channels of each position. The background
              belongs to every label set: only with this setting does the loss ask for background
              somewhere in the bag. The score of a class is the log-odds of max_k p_{c,k}.

    With `bag` and `batch` the loss ranks the positions of a bag by z_{c,k}, which is therefore the
    evidence. The loss only pushes the logits of the background down, even where there is
    background. So the posterior is made from the classes alone. With the softmax Q over all classes
    and positions of a bag of K positions,

        Q_{c,k} = exp z_{c,k} / sum_{c',j} exp z_{c',j},
        posterior_{c,k} = K Q_{c,k} / (1 + K sum_{c'} Q_{c',k}),

    and the background has the remaining probability. So a class is more probable than background
    at a position where its Q_{c,k} exceeds the uniform share 1 / K. With `position`, evidence and
    posterior are P.

    The loss has no term for classes that are absent from the bag. So evidence tells where a class
    is in a bag that has the class. But the loss does not train whether a position shows any class
    at all, which posterior error and galleries ask.

    The presence of a class is the log-odds of max_k p_{c,k}, which rank bags even where the
    probability rounds to 1; with `batch` it is max_k z_{c,k}. It does not say how probable the
    class is in the bag: with `bag`, for example, the largest probabilities of all classes add up to
    at most 1, even if all classes occur.

    Edge cases: with `bag` and `batch` the loss of an empty label set is 0. With `position` it is
    the loss of the background. Positions that tie for a maximum share its gradient equally.

    Source: D. Pathak, E. Shelhamer, J. Long and T. Darrell, "Fully Convolutional Multi-Class
    Multiple Instance Learning", arXiv:1412.7144, 2014; X.-L. Li, arXiv:1811.12346, 2018,
    supplementary material A.
    """

    name = "max-pooling"
    revision = 4

    def __init__(
        self,
        normalization: Literal["bag", "batch", "position"] = "bag",
        *,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.normalization = one_of("normalization of max-pooling", normalization, NORMALIZED)
        self._normalized = NORMALIZED[normalization]

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        return self._normalized.bag_loss(logits, labels, mask)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self._normalized.scores(logits, mask)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self._normalized.presence(logits, mask)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self._normalized.posterior(logits, mask)

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self._normalized.evidence(logits, mask)


class OverBag:
    """P sums to 1 over all channels and positions of a bag."""

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        highest = exclude_masked(logits[:, :-1], mask).amax(dim=2)
        return _mean_over(highest - _log_total(logits, mask), labels)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        log_total = _log_total(logits, mask).unsqueeze(2)
        log_p = exclude_masked(logits, mask) - log_total
        return log_p.exp().sum(dim=2)[:, :-1]

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        logits = exclude_masked(logits, mask)
        # One softmax over all channels and positions of a bag.
        log_odds = softmax_log_odds(logits.flatten(1)).view_as(logits)
        presence = log_odds[:, :-1].amax(dim=2)
        if mask is None:
            return presence
        # In a bag without instances all logits are -inf, and their softmax is not defined.
        is_empty = ~mask.any(dim=1, keepdim=True)
        return presence.masked_fill(is_empty, -torch.inf)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        classes = logits[:, :-1]
        # In the posterior the background has the logit at which a class has Q = 1 / K.
        uniform = _log_total(classes, mask) - bag_sizes(logits, mask).log().unsqueeze(1)
        background = uniform.unsqueeze(2).expand(-1, 1, logits.shape[2])
        return torch.cat([classes, background], dim=1).softmax(dim=1)

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return logits[:, :-1]


class OverBatch(OverBag):
    """P sums to 1 over all channels and positions of all bags of a batch."""

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        highest = exclude_masked(logits[:, :-1], mask).amax(dim=2)
        log_max = highest - _log_total(logits, mask).logsumexp(dim=0)
        return torch.where(labels, -log_max, 0.0).sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        highest = exclude_masked(logits, mask).amax(dim=2)
        classes = highest[:, :-1]
        background = highest[:, -1:]
        is_background = (classes < background).all(dim=1, keepdim=True)
        return classes.masked_fill(is_background, -torch.inf)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        # The total of the batch is left out: with it the presence of a class in a bag would depend
        # on the bags that happen to be evaluated together with it.
        return exclude_masked(logits, mask)[:, :-1].amax(dim=2)


class OverPosition:
    """P sums to 1 at every position, and the background is in every label set."""

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        # A bag without instances shows no background either.
        has_background = labels.new_ones(len(labels), 1)
        if mask is not None:
            has_background = mask.any(dim=1, keepdim=True)
        log_max = exclude_masked(logits.log_softmax(dim=1), mask).amax(dim=2)
        return _mean_over(log_max, torch.cat([labels, has_background], dim=1))

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        # Log-odds instead of probabilities, which may round to 1 and let two classes tie.
        return self.presence(logits, mask)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return exclude_masked(softmax_log_odds(logits), mask)[:, :-1].amax(dim=2)

    def posterior(self, logits: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return logits.softmax(dim=1)

    def evidence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        return self.posterior(logits, mask)[:, :-1]


NORMALIZED: dict[str, OverBag | OverPosition] = {
    "bag": OverBag(),
    "batch": OverBatch(),
    "position": OverPosition(),
}


def _log_total(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, 1), the log of the sum of exp z over all channels and positions of a bag.

    For a bag without instances it is the lowest finite number, so that log P is -inf and not NaN.
    """
    if mask is None:
        return logits.flatten(1).logsumexp(dim=1, keepdim=True)
    filled, is_empty = fill_empty_bags(mask)
    total = exclude_masked(logits, filled).flatten(1).logsumexp(dim=1, keepdim=True)
    return total.masked_fill(is_empty, torch.finfo(logits.dtype).min)


def _mean_over(log_max: Tensor, labels: Tensor) -> Tensor:
    """Return (B,), the mean of -log_max over the channels in `labels`, or 0 if there are none."""
    return torch.where(labels, -log_max, 0.0).sum(dim=1) / labels.sum(dim=1).clamp(min=1)
