"""Auto-pool: a mean of probabilities with softmax weights, whose sharpness is learnt per class."""

import torch
from torch import Tensor

from ._pooling import PooledLoss, weighted_mean_log_odds


class AutoPool(PooledLoss):
    """Binary cross-entropy of each class's mean probability, softmax-weighted, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = sum_k p_{c,k} exp(alpha_c p_{c,k}) / sum_k exp(alpha_c p_{c,k}),

    where L is the label set of the bag, and the detector p_{c,k} = sigmoid(z_{c,k}) is the
    probability of class c at position k, independent of the other classes. The background channel
    is not used.

    The weight alpha_c of each class is learnt, and starts at 0, as in the authors' code. With
    alpha_c = 0 the loss is `mean`, with alpha_c = 1 it is `exponential-softmax`, and as alpha_c
    grows, P_c goes to the largest p_{c,k}. If the recipe has weight decay, it pulls alpha_c towards
    0, as in the regularised form of the paper. AdamW with a weight decay of 1 keeps alpha_c between
    -1 and 1.

    P_c falls with the size of the bag where few positions show the class. If alpha_c > 1, P_c may
    fall as a small p_{c,k} of the bag grows.

    Args:
        weight: the factor of the cost of a class: one number for all classes, or a list of one
            number for each class. None means 1.
        pos_weight: a further factor, in bags that have the class: one number, a list, or
            `balanced`. None means 1. `balanced` is (N - n_c) / n_c, where N is the number of
            training bags, and n_c how many of them have the class. It is 1 for a class that all
            training bags have, or none.

    Source: B. McFee, J. Salamon and J. P. Bello, "Adaptive Pooling Operators for Weakly Labeled
    Sound Event Detection", IEEE/ACM Transactions on Audio, Speech, and Language Processing 26,
    2018, arXiv:1804.10070.
    """

    name = "auto-pool"

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:  # noqa: ARG002
        # The weights start at 0, so that nothing is random.
        self.alpha = torch.nn.Parameter(torch.zeros(num_classes))

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        alpha = self.alpha.to(detectors).unsqueeze(1)
        return weighted_mean_log_odds(alpha * detectors.sigmoid(), detectors, mask)
