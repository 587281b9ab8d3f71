"""The oracle: what every position shows is known."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from milbench.api.loss import Loss, bag_sizes


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
        cost = F.cross_entropy(logits, target, reduction="none").unsqueeze(-1).flatten(1)
        flat_mask = None if mask is None else mask.unsqueeze(-1).flatten(1)
        sizes = bag_sizes(logits.unsqueeze(-1).flatten(2), flat_mask)
        return (cost if flat_mask is None else cost * flat_mask).sum(dim=1) / sizes

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), how many positions show the class: sum_k p_{c,k}."""
        evidence = logits.softmax(dim=1)[:, :-1]
        return (evidence if mask is None else evidence * mask.unsqueeze(1)).sum(dim=2)
