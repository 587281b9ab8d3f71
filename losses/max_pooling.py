"""Traditional multiple-instance learning: the strongest position of a class stands for the class."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milbench.api.loss import Loss

from ._positions import exclude_masked


class MaxPooling(Loss):
    """Cross-entropy of the strongest position of each class in the label set.

    -(1/|L|) sum over l in L of log max_k p_{l,k}. Were P normalised over the channels of a position and nothing else
    done, showing every class somewhere in every bag would cost nothing. Three ways out are in use.

    `bag`, as Li writes it: P sums to 1 over classes and positions of a bag; classes are scored by sum_k p_{c,k}.
    `batch`, as the code behind Li's published numbers has it: P sums to 1 over classes, positions and the whole batch
    (so a bag's loss depends on its batch), the cost is the sum over L without 1/|L|, and the class is the channel of
    the largest raw score, background included: a bag whose background is strictly above all classes names no class.
    `position`, after Pathak et al.: P sums to 1 at every position, and the background is in every label set;
    classes are scored by max_k p_{c,k}. The other two never ask for background: with them no position is left blank.

    An empty label set costs 0 where the sum has no terms: with `bag` nothing is learnt from a bag without instances,
    with `batch` it still has its share in the normalisation of the others, with `position` it shows background. Where
    several positions tie for the maximum they share its gradient equally: none is preferred for its place.

    D. Pathak, E. Shelhamer, J. Long and T. Darrell, "Fully Convolutional Multi-Class Multiple Instance Learning",
    arXiv:1412.7144, 2014; as compared with in X.-L. Li, arXiv:1811.12346, 2018, supplementary material A.
    """

    name = "max-pooling"

    def __init__(self, normalization: Literal["bag", "batch", "position"] = "bag") -> None:
        super().__init__()
        self.normalization = normalization

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the cross-entropy of the strongest positions: the mean over L, or the sum (`batch`)."""
        if self.normalization == "position":
            # A bag without instances shows no background either.
            background = torch.ones_like(labels[:, :1]) if mask is None else mask.any(dim=1, keepdim=True)
            return _mean_cost(_log_highest(logits, mask), torch.cat([labels, background], dim=1))
        logits = exclude_masked(logits, mask)
        log_total = _log_total(logits)
        if self.normalization == "batch":
            log_total = log_total.logsumexp(dim=0)
        log_max = logits[:, :-1].amax(dim=2) - log_total
        if self.normalization == "batch":
            return torch.where(labels, -log_max, 0.0).sum(dim=1)
        return _mean_cost(log_max, labels)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), sum_k p_{c,k} (`bag`), the largest raw score (`batch`) or max_k p_{c,k} (`position`)."""
        if self.normalization == "position":
            return _log_highest(logits, mask)[:, :-1].exp()
        logits = exclude_masked(logits, mask)
        if self.normalization == "bag":
            return (logits - _log_total(logits).unsqueeze(2)).exp().sum(dim=2)[:, :-1]
        highest = logits.amax(dim=2)
        classes, background = highest[:, :-1], highest[:, -1:]
        return classes.masked_fill((classes < background).all(dim=1, keepdim=True), -torch.inf)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), log max_k p_{c,k}, or the largest raw score (`batch`)."""
        if self.normalization == "position":
            return _log_highest(logits, mask)[:, :-1]
        logits = exclude_masked(logits, mask)
        highest = logits[:, :-1].amax(dim=2)
        # The batch's own total would make a bag's presence depend on the bags it happens to be evaluated with.
        return highest - _log_total(logits) if self.normalization == "bag" else highest


def _log_total(logits: Tensor) -> Tensor:
    """Return (B, 1), the log of what P is divided by; finite for a bag without instances, whose log P is then -inf."""
    return logits.flatten(1).logsumexp(dim=1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)


def _log_highest(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C+1), the largest log-probability of each channel, P summing to 1 at every position."""
    return exclude_masked(logits.log_softmax(dim=1), mask).amax(dim=2)


def _mean_cost(log_max: Tensor, labels: Tensor) -> Tensor:
    """Return (B,), the mean of -log max over the label set, 0 of an empty one."""
    return torch.where(labels, -log_max, 0.0).sum(dim=1) / labels.sum(dim=1).clamp(min=1)
