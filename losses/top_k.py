"""Top-k: the mean of the largest logits of each class."""

import torch
from torch import Tensor

from milbench import Reduction, bag_sizes
from milbench.errors import positive

from ._class_weights import ClassWeights, PositiveWeights
from ._pooling import PooledLoss
from ._positions import exclude_masked


class TopK(PooledLoss):
    """Binary cross-entropy of the mean of the k largest logits of each class, summed over classes.

        loss = -sum_{c in L} log sigmoid(t_c) - sum_{c not in L} log sigmoid(-t_c),
        t_c = (1 / k) sum of the k largest z_{c,1}, ..., z_{c,K},    k = ceil(K / one_in),

    where L is the label set of the bag, K its number of positions, and z_{c,j} the logit of class c
    at position j. The background channel is not used.

    With one_in >= K the loss is `one-vs-rest`, and with one_in = 1 it uses the mean of the logits.
    If more positions tie for the k-th largest logit than are needed, they share its gradient
    equally.

    Args:
        one_in: one position in `one_in` is averaged. The default of 8 is that of W-TALC.
        weight, pos_weight: weights of the classes; `mean` describes them.

    Source: S. Paul, S. Roy and A. K. Roy-Chowdhury, "W-TALC: Weakly-supervised Temporal Activity
    Localization and Classification", ECCV 2018, with k as in the authors' code, which has a softmax
    over classes after it. The mean over a share of the positions of an image: T. Durand, T. Mordan,
    N. Thome and M. Cord, "WILDCAT: Weakly Supervised Learning of Deep ConvNets for Image
    Classification, Pointwise Localization and Segmentation", CVPR 2017.
    """

    name = "top-k"

    def __init__(
        self,
        one_in: int = 8,
        *,
        weight: ClassWeights = None,
        pos_weight: PositiveWeights = None,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(
            weight=weight, pos_weight=pos_weight, reduction=reduction, validate=validate
        )
        self.one_in = positive("one_in of top-k", one_in, least=1)

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        k = (bag_sizes(detectors, mask) / self.one_in).ceil().view(-1, 1, 1)
        ranked = exclude_masked(detectors.detach(), mask).sort(dim=2, descending=True).values
        # The k-th largest logit of each class.
        rank_of_last = (k.long() - 1).expand(-1, detectors.shape[1], -1)
        last = ranked.gather(2, rank_of_last)
        is_above = detectors > last
        is_tied = detectors == last
        if mask is not None:
            is_above = is_above & mask.unsqueeze(1)
            is_tied = is_tied & mask.unsqueeze(1)
        # Positions that tie with the k-th share what the positions above them leave of k.
        still_needed = k - is_above.sum(dim=2, keepdim=True)
        share_of_tied = still_needed / is_tied.sum(dim=2, keepdim=True)
        shares = torch.where(is_tied, share_of_tied, is_above.to(share_of_tied))
        weights = shares / k
        return (weights * detectors).sum(dim=2)
