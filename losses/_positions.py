"""Operations over the positions of a bag that several losses share."""

import torch
from torch import Tensor

from milbench.likelihood.log_sums import log_softmax


def flatten_positions(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return logits (B, C+1, *positions) as (B, C+1, K) and a mask (B, *positions) as (B, K)."""
    # A bag of one position may come as (B, C+1): the added dimension lets `flatten` give K = 1.
    flat = logits.unsqueeze(-1).flatten(2)
    if mask is None:
        return flat, None
    return flat, mask.unsqueeze(-1).flatten(1)


def exclude_masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return logits (B, C+1, K) with -inf at masked positions.

    Such positions add nothing to a sum of exp(logits), and are never the maximum.
    """
    if mask is None:
        return logits
    return logits.masked_fill(~mask.unsqueeze(1), -torch.inf)


def fill_empty_bags(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return a mask (B, K) that is True everywhere in empty bags, and (B, 1), which bags are empty.

    A bag is empty if all of its positions are masked. A maximum or a log-sum-exp over no position
    has a NaN in its derivative. With the filled mask the caller takes it over all positions, and
    replaces its value for the empty bags.
    """
    is_empty = ~mask.any(dim=1, keepdim=True)
    return mask | is_empty, is_empty


def sum_positions(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), the sum of values (B, C, K) over the positions that are not masked."""
    if mask is not None:
        values = values * mask.unsqueeze(1)
    return values.sum(dim=2)


def softmax_log_odds(logits: Tensor) -> Tensor:
    """Return log(p / (1 - p)) of every channel, with p the softmax over dim 1.

    The result is precise even where p rounds to 0 or 1.
    """
    log_p = logits.log_softmax(dim=1)
    likeliest = log_p.argmax(dim=1, keepdim=True)
    is_likeliest = torch.zeros_like(log_p, dtype=torch.bool).scatter(1, likeliest, True)
    others = log_p.masked_fill(is_likeliest, -torch.inf)
    # For the likeliest channel, 1 - p may round to 0, so that it is the sum of the other channels.
    # Each of these has p <= 1/2, where 1 - p is precise.
    log_rest_of_likeliest = others.logsumexp(dim=1, keepdim=True)
    log_rest_of_others = torch.log1p(-others.exp())
    return log_p - torch.where(is_likeliest, log_rest_of_likeliest, log_rest_of_others)


def complete_data_cost(
    logits: Tensor, targets: Tensor, labels: Tensor, mask: Tensor | None
) -> Tensor:
    """Return (B,), the cross-entropy of the softmax against targets, summed over positions.

    The targets (B, C+1, K) sum to 1 over the channels, and are 0 at masked positions. The cost is
    +inf, without a gradient, where a label set (B, C) has more classes than its bag has positions.
    """
    # This log_softmax, unlike torch's own, has second derivatives by forward over reverse mode.
    cost = -(targets * log_softmax(logits, dim=1)).sum(dim=(1, 2))
    positions = logits.shape[2] if mask is None else mask.sum(dim=1)
    return cost.masked_fill(labels.sum(dim=1) > positions, torch.inf)
