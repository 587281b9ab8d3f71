"""Generalised mean: between the mean and the maximum of a detector's probabilities."""

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Reduction
from milbench.errors import positive

from ._class_weights import ClassWeights, PositiveWeights
from ._pooling import PooledLoss, log_mean_exp


class GeneralisedMean(PooledLoss):
    """Binary cross-entropy of each class's generalised mean probability, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = ((1 / K) sum_k p_{c,k}^r)^(1/r),

    where L is the label set of the bag, K its number of positions, and the detector
    p_{c,k} = sigmoid(z_{c,k}) is the probability of class c at position k, independent of the other
    classes. The background channel is not used.

    With r = 1 the loss is `mean`, and P_c grows with r towards the largest p_{c,k}. For a class at
    one position, P_c is of the order K^(-1/r): it falls with the size of the bag.

    log P_c is computed from log p_{c,k}. 1 - P_c is computed from 1 - p_{c,k}, since P_c may round
    to 1:

        1 - P^r = (1 / K) sum_k (1 - p_k^r),
        1 - x = g(x) (1 - x^r), where g is 1/r at x = 1 and 1 at x = 0.

    Args:
        exponent: r, above 0. Its default does not come from the source.
        weight, pos_weight: weights of the classes; `mean` describes them.

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
        # log(1 - p_k^r) is log(1 - p_k) minus the logarithm of their ratio g.
        log_rest = log_q - self._log_ratio(log_p)
        log_absent = log_mean_exp(log_rest, mask) + self._log_ratio(log_present)
        return log_present - log_absent

    def _log_ratio(self, log_x: Tensor) -> Tensor:
        """Return log g(x) = log((1 - x) / (1 - x^r)) for log x, with g(1) = 1 / r."""
        # At x = 1 the quotient would be 0 / 0; just below it is nearly 1 / r.
        log_x = log_x.clamp(max=-torch.finfo(log_x.dtype).eps)
        return (torch.expm1(log_x) / torch.expm1(self.exponent * log_x)).log()
