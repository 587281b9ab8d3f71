"""Operations over the positions of a bag that several losses share."""

import torch
from torch import Tensor

from milbench.likelihood.log_sums import log_softmax


def flatten_positions(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return logits (B, C+1, *positions) as (B, C+1, K) and a mask (B, *positions) as (B, K)."""
    # A dimension more, since there may be no position dimension at all.
    flat = logits.unsqueeze(-1).flatten(2)
    if mask is None:
        return flat, None
    return flat, mask.unsqueeze(-1).flatten(1)


def exclude_masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C+1, K) logits, -inf at masked positions: these add nothing to a sum of exp and are no maximum."""
    if mask is None:
        return logits
    return logits.masked_fill(~mask.unsqueeze(1), -torch.inf)


def fill_empty_bags(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return a mask (B, K) with every position of bags that had none, and which bags these are, (B, 1) bool.

    A maximum or a sum of exp over no position has a NaN in its derivative. It is taken over all
    positions instead, and the caller replaces its value.
    """
    is_empty = ~mask.any(dim=1, keepdim=True)
    return mask | is_empty, is_empty


def sum_positions(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), the sum of values (B, C, K) over the positions that are not masked."""
    if mask is not None:
        values = values * mask.unsqueeze(1)
    return values.sum(dim=2)


def softmax_log_odds(logits: Tensor) -> Tensor:
    """Return log(p / (1 - p)) of every channel, P the softmax over dim 1, also where P rounds to 0 or 1."""
    log_p = logits.log_softmax(dim=1)
    likeliest = log_p.argmax(dim=1, keepdim=True)
    is_likeliest = torch.zeros_like(log_p, dtype=torch.bool).scatter(1, likeliest, True)
    others = log_p.masked_fill(is_likeliest, -torch.inf)
    # 1 - p cancels for the likeliest channel alone, which is summed from the others instead; all
    # others have p <= 1/2.
    log_rest_of_likeliest = others.logsumexp(dim=1, keepdim=True)
    log_rest_of_others = torch.log1p(-others.exp())
    return log_p - torch.where(is_likeliest, log_rest_of_likeliest, log_rest_of_others)


def complete_data_cost(
    logits: Tensor, targets: Tensor, labels: Tensor, mask: Tensor | None
) -> Tensor:
    """Return (B,), the cross-entropy of the softmax at every position against a distribution over its channels.

    The targets (B, C+1, K) sum to 1 over dim 1, and to 0 at masked positions. The cost is +inf,
    without a gradient, where the label set has more classes than the bag has positions.
    """
    # Torch's own log_softmax cannot be differentiated backward in forward mode.
    cost = -(targets * log_softmax(logits, dim=1)).sum(dim=(1, 2))
    positions = logits.shape[2] if mask is None else mask.sum(dim=1)
    return cost.masked_fill(labels.sum(dim=1) > positions, torch.inf)
