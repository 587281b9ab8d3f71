"""Auto-pool: a mean of a detector's probabilities whose weights are as sharp as is learnt for each class."""

import torch
from torch import Tensor

from ._pooling import PooledLoss, weighted_mean_log_odds


class AutoPool(PooledLoss):
    """Binary cross-entropy of the mean probability of each class with learnt softmax weights, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = sum_k p_{c,k} exp(alpha_c p_{c,k}) / sum_k exp(alpha_c p_{c,k}),

    with p_{c,k} = sigmoid(z_{c,k}), independent detectors without a background channel, and a
    weight alpha_c of each class, which is learnt from 0 on, as in the authors' code. alpha_c = 0 is
    `mean`, 1 `exponential-softmax`, and P_c goes to the largest p_{c,k} as alpha_c grows. Weight
    decay, where the recipe has any, draws alpha_c to 0, as in the regularised form of the paper.
    AdamW with a coefficient of 1 keeps it between -1 and 1.

    P_c falls with the size of the bag where few positions show the class. Where alpha_c > 1, P_c
    may fall with the smaller p_{c,k} of a bag.

    Args:
        weight: what the cost of a class is multiplied by: a number, or one for each class. None: 1.
        pos_weight: what it is multiplied by in bags that have the class: a number, one for each
            class, or `balanced`. None: 1. `balanced` is (N - n_c) / n_c, where n_c of the N
            training bags have the class, and 1 for a class that all of them have, or none.

    Source: B. McFee, J. Salamon and J. P. Bello, "Adaptive Pooling Operators for Weakly Labeled
    Sound Event Detection", IEEE/ACM Transactions on Audio, Speech, and Language Processing 26,
    2018, arXiv:1804.10070.
    """

    name = "auto-pool"

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:  # noqa: ARG002 nothing is drawn
        self.alpha = torch.nn.Parameter(torch.zeros(num_classes))

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        alpha = self.alpha.to(detectors).unsqueeze(1)
        return weighted_mean_log_odds(alpha * detectors.sigmoid(), detectors, mask)
