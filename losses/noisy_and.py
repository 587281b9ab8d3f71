"""Noisy-AND: a class occurs if more than a learnt share of the positions show it."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Reduction
from milbench.errors import positive

from ._class_weights import ClassWeights, PositiveWeights
from ._pooling import PooledLoss, log_mean_exp


class NoisyAnd(PooledLoss):
    """Binary cross-entropy of each class's mean probability, soft-thresholded, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),
        P_c = (s(a (m_c - b_c)) - s(-a b_c)) / (s(a (1 - b_c)) - s(-a b_c)),
        m_c = (1 / K) sum_k p_{c,k},

    where s is the sigmoid, L the label set of the bag, K its number of positions, and the detector
    p_{c,k} = s(z_{c,k}) is the probability of class c at position k, independent of the other
    classes. The background channel is not used.

    P_c is 0 at m_c = 0 and 1 at m_c = 1. Since the differences in P_c may round to 0, the log-odds
    are computed from products instead: s(x) - s(y) = s(x) s(-y) (1 - exp(y - x)). As m_c is a
    share, it falls with the size of the bag if an instance or two show the class.

    The threshold b_c of each class is learnt, as the sigmoid of a weight, so that it stays between
    0 and 1. It starts at 1/2. If the recipe has weight decay, it pulls b_c back towards 1/2.

    Args:
        slope: a, which is fixed. Its default does not come from the source.
        weight, pos_weight: weights of the classes; `mean` describes them.

    Source: O. Z. Kraus, J. L. Ba and B. J. Frey, "Classifying and Segmenting Microscopy Images with
    Deep Multiple Instance Learning", Bioinformatics 32, i52-i59, 2016. Its second output layer,
    over classes, is left out here.
    """

    name = "noisy-and"

    def __init__(
        self,
        slope: float = 10.0,
        *,
        weight: ClassWeights = None,
        pos_weight: PositiveWeights = None,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(
            weight=weight, pos_weight=pos_weight, reduction=reduction, validate=validate
        )
        self.slope = positive("slope of noisy-and", slope)

    def make_weights(self, num_classes: int, rng: torch.Generator) -> None:  # noqa: ARG002
        # The weights start at 0, so that nothing is random. The sigmoid of one is a threshold b_c.
        self.threshold = torch.nn.Parameter(torch.zeros(num_classes))

    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        a = self.slope
        b = self.threshold.to(detectors).sigmoid()
        # The means of p_k and of 1 - p_k.
        log_m = log_mean_exp(F.logsigmoid(detectors), mask)
        log_rest = log_mean_exp(F.logsigmoid(-detectors), mask)
        # With u = a (m - b), and P and 1 - P written as products (their common divisor cancels),
        # P / (1 - P) = s(u) s(a b) (1 - exp(-a m)) / (s(-u) s(a (1 - b)) (1 - exp(-a (1 - m)))).
        # Here s(u) / s(-u) is exp(u).
        u = a * (log_m.exp() - b)
        log_ratio_of_sigmoids = u + F.logsigmoid(a * b) - F.logsigmoid(a * (1 - b))
        log_present = _log_one_minus_exp(math.log(a) + log_m)
        log_absent = _log_one_minus_exp(math.log(a) + log_rest)
        return log_ratio_of_sigmoids + log_present - log_absent


def _log_one_minus_exp(log_x: Tensor) -> Tensor:
    """Return log(1 - exp(-x)) for log x. As x goes to 0, the result goes to log x."""
    x = log_x.clamp(min=math.log(torch.finfo(log_x.dtype).eps)).exp()
    return log_x + (-torch.expm1(-x) / x).log()
