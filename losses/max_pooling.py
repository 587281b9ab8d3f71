"""Traditional multiple-instance learning: the strongest position of a class stands for the class."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milbench.loss import Loss

from ._positions import exclude_masked


class MaxPooling(Loss):
    """Cross-entropy of the strongest position of each class in the label set.

    -(1/|L|) sum over l in L of log max_k p_{l,k}, with P normalised over more than the channels of a position: were it
    not, showing every class somewhere in every bag would cost nothing. Two normalisations are in use.

    `bag`, as the papers write it: P sums to 1 over classes and positions of a bag; classes are scored by sum_k p_{c,k}.
    `batch`, as the code behind Li's published numbers has it: P sums to 1 over classes, positions and the whole batch
    (so a bag's loss depends on its batch), the cost is the sum over L without 1/|L|, and the class is the channel of
    the largest raw score, background included: a bag whose background is strictly above all classes names no class.

    An empty label set costs 0, as the sum has no terms: with `bag` nothing is learnt from a bag without instances, with
    `batch` it still has its share in the normalisation of the others. Where several positions tie for the maximum they
    share its gradient equally, hence no position is preferred for its place.

    D. Pathak, E. Shelhamer, J. Long and T. Darrell, "Fully Convolutional Multi-Class Multiple Instance Learning",
    arXiv:1412.7144, 2014; as compared with in X.-L. Li, arXiv:1811.12346, 2018, supplementary material A.
    """

    name = "max-pooling"

    def __init__(self, normalization: Literal["bag", "batch"] = "bag") -> None:
        super().__init__()
        self.normalization = normalization

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the cross-entropy of the strongest positions: the mean over L (`bag`) or the sum (`batch`)."""
        logits = exclude_masked(logits, mask)
        log_total = _log_total(logits)
        if self.normalization == "batch":
            log_total = log_total.logsumexp(dim=0)
        log_max = logits[:, :-1].amax(dim=2) - log_total
        cost = torch.where(labels, -log_max, 0.0).sum(dim=1)
        return cost if self.normalization == "batch" else cost / labels.sum(dim=1).clamp(min=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), sum_k p_{c,k} (`bag`) or the largest raw score (`batch`)."""
        logits = exclude_masked(logits, mask)
        if self.normalization == "bag":
            return (logits - _log_total(logits).unsqueeze(2)).exp().sum(dim=2)[:, :-1]
        highest = logits.amax(dim=2)
        classes, background = highest[:, :-1], highest[:, -1:]
        return classes.masked_fill((classes < background).all(dim=1, keepdim=True), -torch.inf)

    def presence(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), log max_k p_{c,k} (`bag`) or the largest raw score (`batch`)."""
        logits = exclude_masked(logits, mask)
        highest = logits[:, :-1].amax(dim=2)
        # The batch's own total would make a bag's presence depend on the bags it happens to be evaluated with.
        return highest - _log_total(logits) if self.normalization == "bag" else highest


def _log_total(logits: Tensor) -> Tensor:
    """Return (B, 1), the log of what P is divided by; finite for a bag without instances, whose log P is then -inf."""
    return logits.flatten(1).logsumexp(dim=1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)
