"""The probability that a bag shows nothing beside its label set: `exact` without "all of it occurs"."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ._positions import sum_positions
from ._softmax import PerPosition


class Superset(PerPosition):
    """Negative log-probability that every position shows a class of the label set or background.

        loss = -sum_k log(p_{background,k} + sum_{c in L} p_{c,k}) / D,

    where P is the softmax over the channels of each of the K positions: L with the background is a
    superset of what the bag shows, a set of candidates for each position. `exact` asks in addition
    that every class of L occurs; the difference between the two losses is what that half is worth.

    This loss learns which classes do not occur, and no more. A network that calls every position
    background in every bag has a loss of 0, the smallest there is, and a class that is improbable
    beside the background gets no gradient: training that comes near there ends there.

    Map, evidence, scores and presence are those of `exact`: the softmax, read as independent
    positions.

    Args:
        divide_by: the divisor D, as in `exact`. `none`: 1. `bag`: the positions of the bag.
            `batch`: their mean number over the batch, with which the loss of a bag depends on the
            other bags of its batch.

    Edge cases: the loss is 0 where L holds every class, and for a bag without instances. A label
    set of more classes than positions is rejected, though this loss has a value for it.

    Source: R. Jin and Z. Ghahramani, "Learning with Multiple Labels", NIPS 2002, for sets of
    candidates; L. Feng et al., "Provably Consistent Partial-Label Learning", NeurIPS 2020, for the
    loss (its classifier-consistent method). With the background in every set it is a term of the
    exact likelihood (X.-L. Li, arXiv:1811.12346, 2018).
    """

    name = "superset"

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        # The channels of the label set, and the background.
        is_candidate = F.pad(labels, (0, 1), value=True).unsqueeze(2)
        # The smallest number in place of -inf: with L all classes, no channel is left, and its
        # derivatives stay finite.
        lowest = torch.finfo(logits.dtype).min
        allowed = logits.masked_fill(~is_candidate, lowest).logsumexp(dim=1, keepdim=True)
        outside = logits.masked_fill(is_candidate, lowest).logsumexp(dim=1, keepdim=True)
        # The probability of the candidates is the sigmoid of allowed - outside. This is -log of it.
        cost = F.softplus(outside - allowed)
        return self.divided(sum_positions(cost, mask).squeeze(1), logits, mask)
