"""Generalised mean: between the mean and the maximum of a detector's probabilities."""

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Reduction
from milbench.errors import positive

from ._class_weights import ClassWeights, PositiveWeights
from ._pooling import PooledLoss, log_mean_exp


class GeneralisedMean(PooledLoss):
    """Binary cross-entropy of the generalised mean of the probabilities of each class, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),  P_c = ((1 / K) sum_k p_{c,k}^r)^(1/r),

    with p_{c,k} = sigmoid(z_{c,k}), independent detectors without a background channel. r = 1 is
    `mean`, and P_c grows with r towards the largest p_{c,k}. With the class at one position it is
    of the order K^(-1/r): it falls with the size of the bag.

    log P_c is computed from log p_{c,k}, and 1 - P_c from 1 - p_{c,k}, where P_c rounds to 1:

        1 - P^r = (1 / K) sum_k (1 - p_k^r),    and 1 - x = g(x) (1 - x^r) with g of 1/r at x = 1 and 1 at x = 0.

    Args:
        exponent: r. Its default is chosen here, and not taken from the source.
        weight, pos_weight: weights of the classes, as in `mean`.

    Source: O. Z. Kraus, J. L. Ba and B. J. Frey, "Classifying and Segmenting Microscopy Images with
    Deep Multiple Instance Learning", Bioinformatics 32, i52-i59, 2016, where it is one of the
    pooling functions compared.
    """

    name = "generalised-mean"

    def __init__(
        self,
        exponent: float = 2.5,
        *,
        weight: ClassWeights = None,
        pos_weight: PositiveWeights = None,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(
            weight=weight, pos_weight=pos_weight, reduction=reduction, validate=validate
        )
        self.exponent = positive("exponent of generalised-mean", exponent)

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        log_p = F.logsigmoid(detectors)
        log_q = F.logsigmoid(-detectors)
        log_present = log_mean_exp(self.exponent * log_p, mask) / self.exponent
        # log(1 - p_k^r), the logarithm of 1 - p_k without the ratio of the two.
        log_rest = log_q - self._log_ratio(log_p)
        log_absent = log_mean_exp(log_rest, mask) + self._log_ratio(log_present)
        return log_present - log_absent

    def _log_ratio(self, log_x: Tensor) -> Tensor:
        """Return log((1 - x) / (1 - x^r)), smooth up to x = 1, where both are 0 and the ratio is 1 / r."""
        # At x = 1 itself the quotient would be 0 / 0.
        log_x = log_x.clamp(max=-torch.finfo(log_x.dtype).eps)
        return (torch.expm1(log_x) / torch.expm1(self.exponent * log_x)).log()
