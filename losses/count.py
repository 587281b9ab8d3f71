"""A reference under count supervision: how often each class occurs is known, where is not."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.api.loss import Loss, bag_sizes

from ._positions import exclude_masked, expected_counts, flatten_positions


class Count(Loss):
    """Aggregation cross-entropy: the share of positions that show a class, against the share that should.

    -sum_c (N_c / K) log(mean_k p_{c,k}) over the classes and the background, with N_c instances of class c in a bag of
    K positions and what is left for the background. An instance is taken to fill one position; where a bag has more
    instances than positions, the background's share is 0.

    Z. Xie, Y. Huang, Y. Zhu, L. Jin, Y. Liu and L. Xie, "Aggregation Cross-Entropy for Sequence Recognition",
    arXiv:1904.08364, CVPR 2019.
    """

    name = "count"
    supervision = "count"
    target_kind = "counts"

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the cross-entropy between the bag's shares and the mean of P over its positions."""
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
