"""The probabilities of each bag's required classes and of the background, renormalised at every position.

Only the required classes (those of the label set L) and the background enter the likelihood. With
x_k the sum of their probabilities at position k, Prb(L) = prod_k x_k * R, where R is the
probability, after division by x_k, that all of L occurs: a well-scaled number whatever the
probabilities of the other classes are.

The log-probabilities of a bag are a table with a line for each position and a column for each of
its C+1 channels, the classes and then the background. As label sets differ in size, each bag has n
slots for the columns of its required classes, where n is the largest size |L|.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from milbench.likelihood import log_sums

FLOOR = log_sums.LOG_ZERO
IMPOSSIBLE = FLOOR / 10
"""-1e29, far below the log-probability of any event that can occur. For an event that cannot occur it is FLOOR (-1e30),
or a sum that contains FLOOR."""


class Columns(NamedTuple):
    """The columns of the required classes, in n slots for each bag, and of the background."""

    log_scale: Tensor  # (B,), the sum over positions of log x
    shares: Tensor  # (n+1, B, K), log of each class's share of x, FLOOR in slots beyond |L|; the background is last
    size: Tensor  # (B,) int64, |L|

    def select(self, bags: Tensor) -> Columns:
        """Return the columns of the bags with these indices (G,)."""
        return Columns(self.log_scale[bags], self.shares[:, bags], self.size[bags])


def membership(num_classes: int, device: torch.device | None = None) -> Tensor:
    """Return (2^n, n) bool, whether each set of n classes contains each class: set s has class i if bit i of s is 1."""
    sets = torch.arange(2**num_classes, device=device).unsqueeze(1)
    bits = torch.arange(num_classes, device=device)
    return (sets >> bits & 1).bool()


def working_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type of sums over positions: float64 where the device has it."""
    return torch.float32 if log_probs.device.type == "mps" else torch.float64


def result_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type of the results: the input's, float32 for the half precisions."""
    return torch.promote_types(log_probs.dtype, torch.float32)


def renormalised_halves(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Return half-precision log-probabilities as float32 that sum to 1; others as they are.

    Rounding to bfloat16 moves the probability of an almost certain background by up to 0.4 %, at
    every position.
    """
    if log_probs.dtype not in (torch.float16, torch.bfloat16):
        return log_probs
    values = log_probs.float()
    if mask is not None:
        # Masked positions may hold anything, also NaN.
        values = values.masked_fill(~mask.unsqueeze(1), 0.0)
    return values - values.logsumexp(dim=1, keepdim=True)


def floor_to_infinity(log_prob: Tensor) -> Tensor:
    """Return logarithms of probabilities with -inf where FLOOR, or a sum that holds it, stands for log 0; NaN stays."""
    infinity = torch.full_like(log_prob, -torch.inf)
    return torch.where(log_prob <= IMPOSSIBLE, infinity, log_prob)


def by_size(labels: Tensor) -> list[tuple[Tensor, int]]:
    """Return, for each size |L| in labels (B, C) bool, the indices (G,) of the bags with it, and the size."""
    sizes = labels.sum(dim=1)
    groups = []
    for size in sizes.unique().tolist():
        bags = torch.nonzero(sizes == size).squeeze(1)
        groups.append((bags, size))
    return groups


def required_columns(
    log_probs: Tensor, mask: Tensor | None, labels: Tensor, slots: int, bags: Tensor | None = None
) -> tuple[Columns, Tensor]:
    """Return the columns of bags with indices (G,), None: all, and where these columns are.

    `slots`, n, is the largest |L|. Masked positions are background with probability 1.

    Returns:
        The columns, and their indices (n+1, G) in `log_probs` as (B*(C+1), K).
    """
    log_probs = renormalised_halves(log_probs, mask)
    device = log_probs.device
    if bags is None:
        bags = torch.arange(len(log_probs), device=device)
    else:
        labels = labels[bags]

    indices = _indices_of_columns(labels, bags, slots)
    positions = math.prod(log_probs.shape[2:])
    # Not reshape(..., -1), which cannot tell the number of positions of an empty batch. One row is
    # one channel of one bag at all positions, (B*(C+1), K).
    every_channel = log_probs.reshape(log_probs.shape[0] * log_probs.shape[1], positions)
    chosen = every_channel.index_select(0, indices.flatten()).unflatten(0, indices.shape)
    chosen = chosen.to(working_dtype(log_probs)).clamp(min=FLOOR)  # (n+1, G, K)

    size = labels.sum(dim=1)
    is_unused = torch.arange(slots, device=device).unsqueeze(1) >= size  # (n, G)
    is_zero = is_unused.unsqueeze(-1)  # (n, G, 1)
    required, background = chosen.split([slots, 1])
    if mask is not None:
        masked = ~mask.reshape(len(mask), positions)[bags]  # (G, K)
        is_zero = is_zero | masked  # (n, G, K)
        background = background.masked_fill(masked, 0.0)
    chosen = torch.cat([required.masked_fill(is_zero, FLOOR), background])
    # torch.logsumexp, but for the derivatives that torch gets wrong.
    log_x = log_sums.total(chosen, 0)  # (G, K)
    return Columns(log_x.sum(dim=-1), chosen - log_x, size), indices


def _indices_of_columns(labels: Tensor, bags: Tensor, slots: int) -> Tensor:
    """Return (n+1, G), the indices in (B*(C+1), K) of each bag's required classes, in n slots, and of its background.

    Slots beyond |L| hold classes outside the label set.
    """
    channels = labels.shape[1] + 1
    required_first = labels.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    classes = required_first[:, :slots]
    with_background = functional.pad(classes, (0, 1), value=channels - 1)
    return with_background.T + channels * bags
