"""The oracle: cross-entropy with position supervision, where the class of every position is known."""

from torch import Tensor
from torch.nn import functional as F

from milbench import bag_sizes

from ._positions import flatten_positions, sum_positions
from ._softmax import SoftmaxLoss


class Position(SoftmaxLoss):
    """Cross-entropy of every position, averaged over the positions of a bag.

        loss = -(1 / K) sum_k log p_{t_k,k},

    where P is the softmax over the channels of each of the K positions and t_k the class at
    position k. In an image that is the class of the instance whose box has its middle near the
    centre of the position, or background (`milbench.contracts.targets`). A loss with less
    supervision may still do better: it may use other positions of an instance than its middle, and
    of two instances with one middle the target shows one alone. The loss of a bag without instances
    is 0.

    Source: ordinary cross-entropy at every position, as in fully supervised semantic segmentation;
    J. Long, E. Shelhamer and T. Darrell, "Fully Convolutional Networks for Semantic Segmentation",
    CVPR 2015.
    """

    name = "position"
    supervision = "position"

    def target_loss(self, logits: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        flat, flat_mask = flatten_positions(logits, mask)
        by_position = F.cross_entropy(logits, target, reduction="none")
        losses = by_position.reshape(len(flat), 1, flat.shape[2])
        return sum_positions(losses, flat_mask).squeeze(1) / bag_sizes(flat, flat_mask)
