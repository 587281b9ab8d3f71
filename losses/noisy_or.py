"""Noisy-OR: a class occurs in a bag unless it occurs at no position, each class on its own."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Reduction
from milbench.errors import one_of

from ._class_weights import ClassWeights, PositiveWeights
from ._pooling import PresenceLoss
from ._positions import exclude_masked, fill_empty_bags, softmax_log_odds


class NoisyOr(PresenceLoss):
    """Binary cross-entropy of the presence of each class, summed over classes.

        loss = -sum_{c in L} log Prb(c) - sum_{c not in L} log(1 - Prb(c)),  Prb(c) = 1 - prod_k (1 - p_{c,k}).

    The loss is computed from the log-odds of Prb(c), since Prb(c) itself rounds to 0 or 1. The odds
    are a sum of positive terms, over the first position k where the class occurs: with o_{c,k} =
    p_{c,k} / (1 - p_{c,k}),

        Prb(c) / (1 - Prb(c)) = prod_k (1 + o_{c,k}) - 1 = sum_k o_{c,k} prod_{j<k} (1 + o_{c,j}).

    Args:
        head: `sigmoid`: p_{c,k} = sigmoid(z_{c,k}), independent detectors without a background
            channel. `softmax`: P is the softmax over the channels of each position, and Prb(c) the
            exact marginal of class c; the loss then treats the classes as independent, which they
            are not.
        weight, pos_weight: weights of the classes, as in `mean`.

    The gradient of an absent class comes from differences of a sum over all positions before it.
    Its error grows with the number of positions. In float32, relative to the largest entry and at
    its worst over logits from -10 to 15, it is 3e-5 at 64 positions, 5e-4 at 1,024 and 3e-3 at
    10,000. In float64 it is 6e-14, 1e-12 and 1.4e-11; `recipe.loss_precision` chooses between the
    two.

    Source: O. Maron and T. Lozano-Perez, "A Framework for Multiple-Instance Learning", NIPS 1997;
    with gradients, P. Viola, J. C. Platt and C. Zhang, "Multiple Instance Boosting for Object
    Detection", NIPS 2005.
    """

    name = "noisy-or"
    revision = 2

    def __init__(
        self,
        head: Literal["softmax", "sigmoid"] = "sigmoid",
        *,
        weight: ClassWeights = None,
        pos_weight: PositiveWeights = None,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(
            weight=weight, pos_weight=pos_weight, reduction=reduction, validate=validate
        )
        self.head = one_of("head of noisy-or", head, ("softmax", "sigmoid"))

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return self._log_odds(logits, None)
        filled, is_empty = fill_empty_bags(mask)
        return self._log_odds(logits, filled).masked_fill(is_empty, -torch.inf)

    def _log_odds(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), by a mask with a position in every bag."""
        # log o_{c,k}; with a sigmoid these are the logits.
        log_odds = softmax_log_odds(logits) if self.head == "softmax" else logits
        log_odds = exclude_masked(log_odds[:, :-1], mask)
        # log(1 - p_{c,k}) is -log(1 + o_{c,k}).
        log_absent = F.logsigmoid(-log_odds)
        # At no position before k: shifted by one position, the sum begins with 0.
        log_absent_before = F.pad(log_absent, (1, -1)).cumsum(dim=2)
        return (log_odds - log_absent_before).logsumexp(dim=2)
