"""The base classes of losses that ask of every class separately whether it occurs in a bag.

- `PresenceLoss`: the binary cross-entropy of each class, with class weights. Its `bag_loss` is the
  arithmetic of all of these losses; a subclass writes `scores`, the log-odds that the class occurs.
  `noisy-or` and `attention` use it alone.
- `PooledLoss`: the same for independent detectors; a subclass writes `log_odds`. All poolings use
  it, such as `mean`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Head, Loss, Reduction, UsageError

from ._class_weights import (
    ClassWeights,
    PositiveWeights,
    as_argument,
    as_class_weights,
    balanced_weights,
)
from ._positions import exclude_masked, fill_empty_bags


class PresenceLoss(Loss):
    """Binary cross-entropy of the presence of each class by its log-odds, the scores, summed over classes.

    With weights w_c and v_c of the classes

        loss = -sum_{c in L} w_c v_c log P_c - sum_{c not in L} w_c log(1 - P_c).

    Args:
        weight: w_c, what the cost of a class is multiplied by: a number, or one for each class.
            None: 1.
        pos_weight: v_c, what it is multiplied by in bags that have the class: a number, one for
            each class, or `balanced`. None: 1. `balanced` is (N - n_c) / n_c, where n_c of the N
            training bags have the class, so that the bags with it weigh as much as those without.
            It is 1 for a class that all training bags have, or none.

    Both mean what they mean in `torch.nn.functional.binary_cross_entropy_with_logits`.
    """

    added: ClassVar[Mapping[str, Any]] = {"weight": None, "pos_weight": None}
    head: Head = "sigmoid"
    presence_is_log_odds = True
    _weight: Tensor | None
    _pos_weight: Tensor | None

    def __init__(
        self,
        *,
        weight: ClassWeights = None,
        pos_weight: PositiveWeights = None,
        reduction: Reduction = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, validate=validate)
        self.weight = as_argument(weight)
        self.pos_weight = as_argument(pos_weight)
        self.needs_class_counts = isinstance(pos_weight, str) and pos_weight == "balanced"
        self._keep("weight", weight)
        # Balanced weights are not known before `build` has got the counts.
        self._keep("pos_weight", None if self.needs_class_counts else pos_weight)

    def build(
        self,
        num_classes: int,
        seed: int = 0,
        *,
        max_labels: int | None = None,
        class_counts: tuple[Tensor, int] | None = None,
    ) -> Self:
        if self.needs_class_counts:
            balanced = None
            if class_counts is not None:
                bags_with_class, bags = class_counts
                balanced = balanced_weights(bags_with_class, bags)
            self._keep("pos_weight", balanced)
        return super().build(num_classes, seed, max_labels=max_labels)

    def _keep(self, name: str, values: PositiveWeights) -> None:
        """Keep weights as a tensor, which moves with the loss from device to device, as `_weight` or `_pos_weight`."""
        weights = as_class_weights(f"{name} of {self.name}", values)
        # It is no part of the state: a trained loss is made with the same arguments, and needs no
        # counts to score.
        self.register_buffer(f"_{name}", weights, persistent=False)

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        log_odds = self.scores(logits, mask)
        log_probs = F.logsigmoid(torch.where(labels, log_odds, -log_odds))
        factors = self._factors(labels, log_probs)
        if factors is not None:
            # A class of weight 0 costs nothing, even where its cost would be infinite.
            log_probs = torch.where(factors > 0, factors * log_probs, 0.0)
        return -log_probs.sum(dim=1)

    def _factors(self, labels: Tensor, log_probs: Tensor) -> Tensor | None:
        """Return (B, C), what the cost of each class in each bag is multiplied by; None: by 1."""
        if self.needs_class_counts and self._pos_weight is None:
            raise UsageError(
                f"pos_weight=balanced of {self.name} needs the label sets of the training bags: "
                "give class_counts to build, as training does"
            )
        if self._weight is None and self._pos_weight is None:
            return None
        factors = torch.ones_like(log_probs)
        if self._pos_weight is not None:
            pos_weight = self._for_classes("pos_weight", self._pos_weight, log_probs)
            factors = torch.where(labels, pos_weight, factors)
        if self._weight is not None:
            factors = factors * self._for_classes("weight", self._weight, log_probs)
        return factors

    def _for_classes(self, name: str, weights: Tensor, log_probs: Tensor) -> Tensor:
        """Return weights () or (C,) in the type of the costs (B, C). Raises UsageError for another number of them."""
        num_classes = log_probs.shape[1]
        is_list = weights.ndim == 1
        if is_list and len(weights) != num_classes:
            raise UsageError(
                f"{name} of {self.name} has {len(weights)} values, expected one number, or one for "
                f"each of the {num_classes} classes"
            )
        return weights.to(log_probs)


class PooledLoss(PresenceLoss):
    """Binary cross-entropy of the pooled presence P_c of each class, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c).

    A subclass writes `log_odds`, the log-odds of P_c. Loss and presence are computed from these,
    since P_c itself rounds to 0 or 1. The presence is 0 at even odds.

    The evidence of a position is the logit of its detector, z_{c,k}: every pooling ranks the
    positions of a bag by it. A bag without instances whose label set is not empty has a loss of
    +inf, where it is not rejected.
    """

    @abstractmethod
    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), log P_c - log(1 - P_c), by detectors (B, C, K) and a mask with a position in every bag."""

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        detectors = logits[:, :-1]
        if mask is None:
            return self.log_odds(detectors, None)
        # A bag without instances is pooled over its zeros: a NaN would reach the gradient of a
        # loss's own weights.
        filled, is_empty = fill_empty_bags(mask)
        return self.log_odds(detectors, filled).masked_fill(is_empty, -torch.inf)


def weighted_mean_log_odds(log_weights: Tensor, detectors: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), the log-odds of the mean of the detectors' probabilities p_k with weights w_k, both (B, C, K).

    P = sum_k w_k p_k / sum_k w_k,    P / (1 - P) = sum_k w_k p_k / sum_k w_k (1 - p_k).
    """
    log_weights = exclude_masked(log_weights, mask)
    log_present = (log_weights + F.logsigmoid(detectors)).logsumexp(dim=2)
    log_absent = (log_weights + F.logsigmoid(-detectors)).logsumexp(dim=2)
    return log_present - log_absent


def log_mean_exp(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), the log of the mean of exp over the positions of (B, C, K) values."""
    zeros = exclude_masked(torch.zeros_like(values), mask)
    return (values + zeros).logsumexp(dim=2) - zeros.logsumexp(dim=2)
