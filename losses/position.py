"""The oracle: cross-entropy where the label of a bag says the class of every position."""

from torch import Tensor
from torch.nn import functional as F

from milbench import bag_sizes

from ._positions import flatten_positions, sum_positions
from ._softmax import SoftmaxLoss


class Position(SoftmaxLoss):
    """Cross-entropy of every position, averaged over the positions of a bag.

        loss = -(1 / K) sum_k log p_{t_k,k},

    where p_{c,k} is the softmax over the channels of position k, K the number of positions, and t_k
    the class at position k, or background. In an image, t_k is the class of the instance whose box
    has its middle near the centre of the position (see `milbench.contracts.targets`). The loss of a
    bag without instances is 0.

    A loss with less supervision may still do better, for two reasons: it may use other positions of
    an instance than its middle, and where two instances share a middle, t_k names only one of them.

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
