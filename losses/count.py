"""Aggregation cross-entropy, a reference with count supervision: how often each class occurs is known."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench import Loss, bag_sizes

from ._positions import exclude_masked, expected_counts, flatten_positions


class Count(Loss):
    """Aggregation cross-entropy: between the true and the predicted share of each class among the positions of a bag.

        loss = -sum_c (N_c / K) log(mean_k p_{c,k}),

    summed over the classes and the background: P is the softmax over the channels of each position, N_c the number of
    instances of class c in a bag of K positions, each taken to fill one position, and N_background what is left of K.
    Its smallest value is the entropy of the shares N_c / K.

    Edge cases: a class without instances adds nothing; in a bag of more instances than positions, N_background is 0.

    Source: Z. Xie, Y. Huang, Y. Zhu, L. Jin, Y. Liu and L. Xie, "Aggregation Cross-Entropy for Sequence Recognition",
    arXiv:1904.08364, CVPR 2019.
    """

    name = "count"
    supervision = "count"
    target_kind = "counts"

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the cross-entropy of the shares, from counts `target` (B, C) int64."""
        flat, flat_mask = flatten_positions(logits, mask)
        positions = target.new_full((len(flat),), flat.shape[2]) if flat_mask is None else flat_mask.sum(dim=1)
        background = (positions - target.sum(dim=1)).clamp(min=0)
        sizes = bag_sizes(flat, flat_mask)
        shares = torch.cat([target, background.unsqueeze(1)], dim=1) / sizes.unsqueeze(1)
        log_p = exclude_masked(flat.log_softmax(dim=1), flat_mask)
        log_mean = log_p.logsumexp(dim=2) - sizes.log().unsqueeze(1)
        return -torch.where(shares > 0, shares * log_mean, 0.0).sum(dim=1)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the expected number of positions of each class: sum_k p_{c,k}."""
        return expected_counts(logits, mask)
