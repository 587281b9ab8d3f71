"""Power pooling: the mean of a detector's probabilities, each weighted by a learnt power of itself."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ._pooling import PooledLoss, weighted_mean_log_odds
from ._positions import exclude_masked


class PowerPooling(PooledLoss):
    """Binary cross-entropy of the mean probability of each class, weighted by a learnt power, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = sum_k p_{c,k}^(n_c + 1) / sum_k p_{c,k}^n_c,

    with p_{c,k} = sigmoid(z_{c,k}), independent detectors without a background channel. For each
    class log n_c is learnt, and begins at 0: the loss begins as `linear-softmax`, to which weight
    decay draws it. P_c is the mean of all p_{c,k} as n_c goes to 0, and their largest as n_c grows.

    In a bag with the class the loss raises the positions with p_{c,k} > P_c n_c / (n_c + 1) and
    lowers the others, in a bag without it the other way round: the larger n_c, the fewer positions
    are taken for the class.

    Args:
        weight: what the cost of a class is multiplied by: a number, or one for each class. None: 1.
        pos_weight: what it is multiplied by in bags that have the class: a number, one for each
            class, or `balanced`. None: 1. `balanced` is (N - N_c) / N_c, where N_c of the N
            training bags have the class, and 1 for a class that all of them have, or none.

    Source: Y. Liu, H. Chen, Y. Wang and P. Zhang, "Power Pooling: An Adaptive Pooling Function for
    Weakly Labelled Sound Event Detection", 2020, arXiv:2010.09985.
    """

    name = "power-pooling"

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:  # noqa: ARG002 nothing is random
        self.log_power = torch.nn.Parameter(torch.zeros(num_classes))

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        power = self.log_power.to(detectors).exp().unsqueeze(1)
        log_p = F.logsigmoid(detectors)
        # The weights p^n are divided by the largest of a class in a bag, which cancels in the mean.
        # Undivided, all weights of a class with a large n would round to 0.
        largest = exclude_masked(log_p, mask).amax(dim=2, keepdim=True).detach()
        log_weights = power * (log_p - largest)
        return weighted_mean_log_odds(log_weights, detectors, mask)
