"""Power pooling: the mean of a detector's probabilities, weighted by a learnt power of each."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ._pooling import PooledLoss, weighted_mean_log_odds
from ._positions import exclude_masked


class PowerPooling(PooledLoss):
    """Binary cross-entropy of each class's mean probability, power-weighted, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = sum_k p_{c,k}^(n_c + 1) / sum_k p_{c,k}^n_c,

    where L is the label set of the bag, and the detector p_{c,k} = sigmoid(z_{c,k}) is the
    probability of class c at position k, independent of the other classes. The background channel
    is not used.

    log n_c of each class is learnt, and starts at 0, where the loss is `linear-softmax`. If the
    recipe has weight decay, it pulls log n_c back towards 0. P_c goes to the mean of all p_{c,k} as
    n_c goes to 0, and to the largest p_{c,k} as n_c grows.

    In a bag with the class, training raises p_{c,k} where it is above P_c n_c / (n_c + 1) and
    lowers it below; in a bag without the class, it lowers p_{c,k} above this bound and raises it
    below. The larger n_c, the fewer positions are taken for the class.

    Args:
        weight: the factor of the cost of a class: one number for all classes, or a list of one
            number for each class. None means 1.
        pos_weight: a further factor, in bags that have the class: one number, a list, or
            `balanced`. None means 1. `balanced` is (N - N_c) / N_c, where N is the number of
            training bags, and N_c how many of them have the class. It is 1 for a class that all
            training bags have, or none.

    Source: Y. Liu, H. Chen, Y. Wang and P. Zhang, "Power Pooling: An Adaptive Pooling Function for
    Weakly Labelled Sound Event Detection", 2020, arXiv:2010.09985.
    """

    name = "power-pooling"

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:  # noqa: ARG002
        # The weights start at 0, so that nothing is random.
        self.log_power = torch.nn.Parameter(torch.zeros(num_classes))

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        power = self.log_power.to(detectors).exp().unsqueeze(1)
        log_p = F.logsigmoid(detectors)
        # The weights p^n of a class in a bag are divided by the largest of them, which cancels in
        # the mean. Without the division, all weights of a class with a large n would round to 0.
        largest = exclude_masked(log_p, mask).amax(dim=2, keepdim=True).detach()
        log_weights = power * (log_p - largest)
        return weighted_mean_log_odds(log_weights, detectors, mask)
