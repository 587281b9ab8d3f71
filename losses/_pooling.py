"""The base classes of losses that ask of every class separately whether it occurs in a bag.

- `PresenceLoss`: the binary cross-entropy of each class, with class weights. A subclass writes
  `scores`, the log-odds that the class occurs; `bag_loss` computes the loss from them. `noisy-or`
  and `attention` are direct subclasses.
- `PooledLoss`: a `PresenceLoss` whose logits are independent detectors, one for each class and
  position. A subclass writes `log_odds`. All losses that pool the positions of a bag use it, such
  as `mean`.
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
    """Binary cross-entropy of the presence of each class, summed over classes.

    With the label set L of a bag, the probability P_c that class c occurs in it, whose log-odds are
    the scores, and weights w_c and v_c of the classes,

        loss = -sum_{c in L} w_c v_c log P_c - sum_{c not in L} w_c log(1 - P_c).

    Args:
        weight: w_c, the factor of the cost of a class: one number for all classes, or a list of one
            number for each class. None means 1.
        pos_weight: v_c, a further factor, in bags that have the class: one number, a list, or
            `balanced`. None means 1. `balanced` is (N - n_c) / n_c, where N is the number of
            training bags, and n_c how many of them have the class: the bags with the class then
            weigh as much as the bags without it. It is 1 for a class that all training bags have,
            or none.

    `torch.nn.functional.binary_cross_entropy_with_logits` has the same two arguments.
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
        # `build` makes balanced weights, from the numbers of bags that it receives.
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
        """Keep weights as the buffer `_weight` or `_pos_weight`, which moves with the loss."""
        weights = as_class_weights(f"{name} of {self.name}", values)
        # The buffer is not saved with a trained loss: the loss is made again with the same
        # arguments, and scores bags without the weights.
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
        """Return (B, C), the factor of the cost of each class in each bag; None if all are 1."""
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
        """Return weights () or (C,) in the type and on the device of the costs (B, C).

        Raises UsageError for a list of another length than C.
        """
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

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c),

    where L is the label set of the bag.

    A subclass writes `log_odds`, the log-odds of P_c. Loss and presence are computed from the
    log-odds, since P_c itself rounds to 0 or 1. The presence of a class is its log-odds, 0 at
    P_c = 1/2.

    The evidence of position k for class c is the logit of its detector, z_{c,k}: every pooling
    ranks the positions of a bag by it. A bag without instances whose label set is not empty has a
    loss of +inf if the check of values, which rejects such a bag, is off.
    """

    @abstractmethod
    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), log P_c - log(1 - P_c).

        Args:
            detectors: (B, C, K), the logits of the classes.
            mask: (B, K), True at one position or more of every bag; None if nothing is masked.
        """

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        detectors = logits[:, :-1]
        if mask is None:
            return self.log_odds(detectors, None)
        # In a bag without instances all positions are pooled, whose logits are 0. Pooling none of
        # them would give a NaN, which would reach the gradients of weights of the loss.
        filled, is_empty = fill_empty_bags(mask)
        return self.log_odds(detectors, filled).masked_fill(is_empty, -torch.inf)


def weighted_mean_log_odds(log_weights: Tensor, detectors: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), the log-odds of the weighted mean P of the detectors' probabilities p_k.

    P = sum_k w_k p_k / sum_k w_k,    P / (1 - P) = sum_k w_k p_k / sum_k w_k (1 - p_k).

    Args:
        log_weights: (B, C, K), log w_k.
        detectors: (B, C, K), the log-odds of p_k.
        mask: (B, K), True where a position counts; None if all count.
    """
    log_weights = exclude_masked(log_weights, mask)
    log_present = (log_weights + F.logsigmoid(detectors)).logsumexp(dim=2)
    log_absent = (log_weights + F.logsigmoid(-detectors)).logsumexp(dim=2)
    return log_present - log_absent


def log_mean_exp(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), log of the mean over positions of exp(values), for values (B, C, K)."""
    # 0 at the positions that count, -inf at masked ones: the log-sum-exp is log of their number.
    zeros = exclude_masked(torch.zeros_like(values), mask)
    return (values + zeros).logsumexp(dim=2) - zeros.logsumexp(dim=2)
