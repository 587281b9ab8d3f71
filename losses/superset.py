"""The probability that a bag shows no class outside its label set.

`exact` asks in addition that every class of the label set occurs.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ._positions import sum_positions
from ._softmax import PerPosition


class Superset(PerPosition):
    """Negative log-probability that every position shows a class of the label set or background.

        loss = -sum_k log(p_{background,k} + sum_{c in L} p_{c,k}) / D,

    where L is the label set, and P the softmax over the channels of each of the K positions. L and
    the background together are a superset of what the bag shows: the candidates for each position.
    `exact` asks in addition that every class of L occurs. To compare the two losses shows what this
    second condition is worth.

    This loss only learns which classes do not occur. A network that calls every position of every
    bag background has a loss of 0, the smallest possible. Near this solution, training gets stuck:
    a class that is much less probable than the background gets nearly no gradient.

    Posterior, evidence, scores and presence are computed as in `exact`, from the softmax of
    independent positions.

    Args:
        divide_by: the divisor D, as in `exact`. `none`: 1. `bag`: the number of positions of the
            bag. `batch`: the mean number of positions of the bags of the batch; the loss of a bag
            then depends on the other bags of its batch.

    Edge cases: the loss is 0 if L holds every class, and for a bag without instances. A label set
    of more classes than positions is rejected; if the check of values is off, the loss has a finite
    value for it.

    Source: for sets of candidates, R. Jin and Z. Ghahramani, "Learning with Multiple Labels", NIPS
    2002. For the loss, L. Feng et al., "Provably Consistent Partial-Label Learning", NeurIPS 2020
    (its classifier-consistent method). With the background in every set, it is a term of the exact
    likelihood (X.-L. Li, arXiv:1811.12346, 2018).
    """

    name = "superset"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        # The channels of the label set, and the background.
        is_candidate = F.pad(labels, (0, 1), value=True).unsqueeze(2)
        # The lowest finite number stands for -inf: if L holds all classes, no channel is outside,
        # and the derivatives of the log-sum-exp would be NaN.
        lowest = torch.finfo(logits.dtype).min
        allowed = logits.masked_fill(~is_candidate, lowest).logsumexp(dim=1, keepdim=True)
        outside = logits.masked_fill(is_candidate, lowest).logsumexp(dim=1, keepdim=True)
        # The probability of the candidates is sigmoid(allowed - outside). The cost is -log of it.
        cost = F.softplus(outside - allowed)
        return self.divided(sum_positions(cost, mask).squeeze(1), logits, mask)
