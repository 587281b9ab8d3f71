"""The oracle: what every position shows is known."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from milbench.api.loss import Loss, bag_sizes

from ._positions import expected_counts, flatten_positions, sum_positions


class Position(Loss):
    """Cross-entropy of every position, averaged over the positions of a bag.

    An image's position shows the instance whose box has its middle near the position's centre, and background where
    there is none (`milbench.api.targets`). No loss with less supervision should be expected to do better; one that does
    has found a better place to look than the middle.
    """

    name = "position"
    supervision = "position"
    target_kind = "positions"

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B,), the mean over positions of -log p of what the position shows."""
        flat, flat_mask = flatten_positions(logits, mask)
        cost = F.cross_entropy(logits, target, reduction="none").reshape(len(flat), 1, flat.shape[2])
        return sum_positions(cost, flat_mask).squeeze(1) / bag_sizes(flat, flat_mask)

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), the expected number of positions of each class: sum_k p_{c,k}."""
        return expected_counts(logits, mask)
