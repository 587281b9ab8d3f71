"""Noisy-OR: a class occurs in a bag unless it occurs at no position; each class on its own."""

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

        loss = -sum_{c in L} log Prb(c) - sum_{c not in L} log(1 - Prb(c)),
        Prb(c) = 1 - prod_k (1 - p_{c,k}),

    where L is the label set of the bag and p_{c,k} the probability of class c at position k.

    The loss is computed from the log-odds of Prb(c), since Prb(c) itself rounds to 0 or 1. The odds
    are a sum of positive terms, one for each position k where the class may occur first. With the
    odds o_{c,k} = p_{c,k} / (1 - p_{c,k}) at a position,

        Prb(c) / (1 - Prb(c)) = prod_k (1 + o_{c,k}) - 1 = sum_k o_{c,k} prod_{j<k} (1 + o_{c,j}).

    Args:
        head: what the logits z_{c,k} mean. `sigmoid`: p_{c,k} = sigmoid(z_{c,k}), a detector
            independent of the other classes; the background channel is not used. `softmax`: p_{c,k}
            is the softmax over the channels of position k. Prb(c) is then the exact probability
            that class c occurs, but the loss treats the classes as independent, which they are not.
        weight, pos_weight: weights of the classes; `mean` describes them.

    The gradient of an absent class is computed from differences of running sums over positions, so
    that its rounding error grows with the number of positions. In float32, relative to the largest
    entry and at its worst over logits from -10 to 15, the error is 3e-5 at 64 positions, 5e-4 at
    1,024 and 3e-3 at 10,000. In float64 it is 6e-14, 1e-12 and 1.4e-11. `recipe.loss_precision`
    chooses between float32 and float64.

    Source: O. Maron and T. Lozano-Perez, "A Framework for Multiple-Instance Learning", NIPS 1997.
    With gradients: P. Viola, J. C. Platt and C. Zhang, "Multiple Instance Boosting for Object
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
        """Return (B, C), the log-odds of Prb(c). A mask must have a position in every bag."""
        # log o_{c,k}. With a sigmoid the log-odds are the logits.
        log_odds = softmax_log_odds(logits) if self.head == "softmax" else logits
        log_odds = exclude_masked(log_odds[:, :-1], mask)
        # log(1 - p_{c,k}) is -log(1 + o_{c,k}).
        log_absent = F.logsigmoid(-log_odds)
        # The log-probability that the class is at no position before k. The shift by one position
        # lets the sum begin with 0.
        log_absent_before = F.pad(log_absent, (1, -1)).cumsum(dim=2)
        return (log_odds - log_absent_before).logsumexp(dim=2)
