"""The base of losses that pool independent detectors into one probability of presence for every class."""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from milbench import Head, Loss

from ._positions import exclude_masked


class PresenceLoss(Loss):
    """Binary cross-entropy of the presence of each class by its log-odds, the scores, summed over classes."""

    head: Head = "sigmoid"
    presence_is_log_odds = True

    def bag_loss(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        log_odds = self.scores(logits, mask)
        return -F.logsigmoid(torch.where(labels, log_odds, -log_odds)).sum(dim=1)


class PooledLoss(PresenceLoss):
    """Binary cross-entropy of the pooled presence P_c of each class, summed over classes.

        loss = -sum_{c in L} log P_c - sum_{c not in L} log(1 - P_c).

    A subclass gives P_c by its log-odds, from which loss and presence are computed, since P_c itself rounds to 0 or 1.
    The presence is 0 at even odds. Evidence and map are those of the detectors, z_{c,k}: within a bag and a class every
    pooling ranks positions by them. The loss is +inf for a bag without instances whose label set is not empty, where it
    is not rejected.
    """

    @abstractmethod
    def log_odds(self, detectors: Tensor, mask: Tensor | None) -> Tensor:
        """Return (B, C), log P_c - log(1 - P_c), by detectors (B, C, K) and a mask with a position in every bag."""

    def scores(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        detectors = logits[:, :-1]
        if mask is None:
            return self.log_odds(detectors, None)
        # A bag without instances is pooled over its zeros: a NaN would reach the gradient of a loss's own weights.
        empty = ~mask.any(dim=1, keepdim=True)
        return self.log_odds(detectors, mask | empty).masked_fill(empty, -torch.inf)


def weighted_mean_log_odds(log_weights: Tensor, detectors: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), the log-odds of the mean of the detectors' probabilities p_k with weights w_k, both (B, C, K).

    P = sum_k w_k p_k / sum_k w_k,    P / (1 - P) = sum_k w_k p_k / sum_k w_k (1 - p_k).
    """
    log_weights = exclude_masked(log_weights, mask)
    present, absent = F.logsigmoid(detectors), F.logsigmoid(-detectors)
    return (log_weights + present).logsumexp(dim=2) - (log_weights + absent).logsumexp(dim=2)


def log_mean_exp(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), the log of the mean of exp over the positions of (B, C, K) values."""
    zeros = exclude_masked(torch.zeros_like(values), mask)
    return (values + zeros).logsumexp(dim=2) - zeros.logsumexp(dim=2)
