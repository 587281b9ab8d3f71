"""Select the columns of each bag that its likelihood depends on, and renormalise them.

The log-probabilities of a bag are a table with a row for each position and a column for each of its
C+1 channels: the classes, and then the background. Only the columns of the required classes (the
classes of the label set L) and of the background enter the likelihood.

Let x_k be the sum of their probabilities at position k. Then Prb(L) = prod_k x_k * R, where R is
the probability that all classes of L occur after all probabilities at position k were divided by
x_k. The divided probabilities are called shares. They keep R from being extremely small, whatever
the probabilities of the other classes are.

As label sets differ in size, each bag has n slots for the columns of its required classes, where n
is the largest |L|.
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
"""The largest value that stands for the log-probability of an impossible event, -1e29.

Such an event has the value FLOOR (-1e30), or a sum that contains FLOOR. The log-probability of an
event that can occur is far above -1e29.
"""


class Columns(NamedTuple):
    """The columns of the required classes, in n slots for each bag, and of the background."""

    log_scale: Tensor
    """(B,), the sum over positions k of log x_k."""
    shares: Tensor
    """(n+1, B, K), log of the share of each required class, and last of the background.

    In slots beyond |L| it is FLOOR.
    """
    size: Tensor
    """(B,) int64, |L|."""

    def select(self, bags: Tensor) -> Columns:
        """Return the columns of the bags with these indices (G,)."""
        return Columns(self.log_scale[bags], self.shares[:, bags], self.size[bags])


def membership(num_classes: int, device: torch.device | None = None) -> Tensor:
    """Return (2^n, n) bool, whether each set of n classes contains each class.

    Set s contains class i if bit i of the number s is 1.
    """
    sets = torch.arange(2**num_classes, device=device).unsqueeze(1)
    bits = torch.arange(num_classes, device=device)
    return (sets >> bits & 1).bool()


def working_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type in which sums are computed: float64, or float32 where a device lacks it."""
    return torch.float32 if log_probs.device.type == "mps" else torch.float64


def result_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type of results: the type of the input, or float32 if that is half precision."""
    return torch.promote_types(log_probs.dtype, torch.float32)


def renormalised_halves(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Return half-precision log-probabilities as float32, normalised; others unchanged.

    Rounding to bfloat16 changes the probability of an almost certain background by up to 0.4 %, at
    every position. After normalisation the probabilities of a position sum to 1 again.
    """
    if log_probs.dtype not in (torch.float16, torch.bfloat16):
        return log_probs
    values = log_probs.float()
    if mask is not None:
        # Masked positions may hold anything, also NaN.
        values = values.masked_fill(~mask.unsqueeze(1), 0.0)
    return values - values.logsumexp(dim=1, keepdim=True)


def floor_to_infinity(log_prob: Tensor) -> Tensor:
    """Return log-probabilities with -inf in place of IMPOSSIBLE and lower values. NaN stays NaN."""
    infinity = torch.full_like(log_prob, -torch.inf)
    return torch.where(log_prob <= IMPOSSIBLE, infinity, log_prob)


def by_size(labels: Tensor) -> list[tuple[Tensor, int]]:
    """Return a group for each size |L|: the indices (G,) of the bags with this size, and the size.

    Labels are (B, C) bool.
    """
    sizes = labels.sum(dim=1)
    groups = []
    for size in sizes.unique().tolist():
        bags = torch.nonzero(sizes == size).squeeze(1)
        groups.append((bags, size))
    return groups


def required_columns(
    log_probs: Tensor, mask: Tensor | None, labels: Tensor, slots: int, bags: Tensor | None = None
) -> tuple[Columns, Tensor]:
    """Return the columns of required classes and background for some bags, and their indices.

    Each bag has n = `slots` slots for required classes. At masked positions the background has
    probability 1.

    Args:
        log_probs: (B, C+1, *positions).
        mask: (B, *positions) bool, or None.
        labels: (B, C) bool.
        slots: n, at least the largest |L| of these bags.
        bags: the indices (G,) of the bags; None: all.

    Returns:
        The columns, and their indices (n+1, G) in `log_probs` reshaped to (B*(C+1), K).
    """
    log_probs = renormalised_halves(log_probs, mask)
    device = log_probs.device
    if bags is None:
        bags = torch.arange(len(log_probs), device=device)
    else:
        labels = labels[bags]

    indices = _indices_of_columns(labels, bags, slots)
    positions = math.prod(log_probs.shape[2:])
    # (B*(C+1), K): a row holds one channel of one bag at all positions. The number of positions is
    # given, since reshape(..., -1) cannot find it for an empty batch.
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
    # Like torch.logsumexp, but with right derivatives in every mode (see `log_sums`).
    log_x = log_sums.total(chosen, 0)  # (G, K)
    return Columns(log_x.sum(dim=-1), chosen - log_x, size), indices


def _indices_of_columns(labels: Tensor, bags: Tensor, slots: int) -> Tensor:
    """Return (n+1, G), the indices of each bag's required classes, and last of its background.

    They are indices of rows of log-probabilities (B*(C+1), K). Slots beyond |L| hold classes
    outside the label set.
    """
    channels = labels.shape[1] + 1
    required_first = labels.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    classes = required_first[:, :slots]
    with_background = functional.pad(classes, (0, 1), value=channels - 1)
    return with_background.T + channels * bags
