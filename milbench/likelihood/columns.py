"""The probabilities of each bag's own classes and of the background, renormalised at every position.

Only the required classes (those of the label set) and the background enter the likelihood. With x_k the sum of their
probabilities at position k, Prb(L) = prod_k x_k * R, where R is the probability, after division by x_k, that all of L
occurs: a well-scaled number whatever the probabilities of the other classes are.
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
"""A log-probability below this contains FLOOR: the event cannot occur."""


class Columns(NamedTuple):
    """The probabilities of the required classes and the background, in n slots a bag."""

    log_scale: Tensor  # (B,), sum over positions of log x
    shares: Tensor  # (n+1, B, K), log of the share of x of each class, FLOOR in slots beyond |L|, background last
    size: Tensor  # (B,) int64, |L|

    def select(self, bags: Tensor) -> Columns:
        """Return the columns of the bags numbered (G,)."""
        return Columns(self.log_scale[bags], self.shares[:, bags], self.size[bags])


def contains(classes: int, device: torch.device | None = None) -> Tensor:
    """Return (2^n, n) bool, whether each set of n classes contains each class: set s has class i where bit i is 1."""
    return (
        torch.arange(2**classes, device=device).unsqueeze(1) >> torch.arange(classes, device=device)
        & 1
    ).bool()


def working_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type of sums over positions: float64 where the device has it."""
    return torch.float32 if log_probs.device.type == "mps" else torch.float64


def result_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type of the results: the input's, float32 for the half precisions."""
    return torch.promote_types(log_probs.dtype, torch.float32)


def renormalised_halves(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Return half-precision log-probabilities as float32 that sum to 1; others as they are.

    Rounding to bfloat16 moves the probability of an almost certain background by up to 0.4 %, at every position.
    """
    if log_probs.dtype not in (torch.float16, torch.bfloat16):
        return log_probs
    values = log_probs.float()
    if mask is not None:  # masked positions may hold anything
        values = values.masked_fill(~mask.unsqueeze(1), 0.0)
    return values - values.logsumexp(dim=1, keepdim=True)


def floor_to_infinity(log_prob: Tensor) -> Tensor:
    """Return logarithms of probabilities with -inf where FLOOR, or a sum that holds it, stands for log 0; NaN stays."""
    return torch.where(log_prob <= IMPOSSIBLE, torch.full_like(log_prob, -torch.inf), log_prob)


def by_size(labels: Tensor) -> list[tuple[Tensor, int]]:
    """Return the numbers (G,) of the bags of each |L|, and |L|, from labels (B, C) bool."""
    sizes = labels.sum(dim=1)
    return [(torch.nonzero(sizes == size).squeeze(1), size) for size in sizes.unique().tolist()]


def select(
    log_probs: Tensor, mask: Tensor | None, labels: Tensor, slots: int, bags: Tensor | None = None
) -> tuple[Columns, Tensor]:
    """Return the columns of bags (G,), None: all, and the rows (n+1, G) of (B (C+1), K) that they are made of.

    `slots`, n, is the largest |L|. Masked positions are background with probability 1.
    """
    log_probs = renormalised_halves(log_probs, mask)
    channels, device = log_probs.shape[1], log_probs.device
    if bags is None:
        bags = torch.arange(len(log_probs), device=device)
    else:
        labels = labels[bags]
    order = labels.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :slots]
    order = functional.pad(order, (0, 1), value=channels - 1).T
    rows = order + channels * bags
    positions = math.prod(log_probs.shape[2:])
    every_row = log_probs.reshape(len(log_probs) * channels, positions)
    chosen = every_row.index_select(0, rows.flatten()).unflatten(0, rows.shape)
    chosen = chosen.to(working_dtype(log_probs)).clamp(min=FLOOR)
    size = labels.sum(dim=1)
    unused = (torch.arange(slots, device=device).unsqueeze(1) >= size).unsqueeze(-1)
    required, background = chosen.split([slots, 1])
    if mask is not None:
        masked = ~mask.reshape(len(mask), positions)[bags]
        unused, background = unused | masked, background.masked_fill(masked, 0.0)
    chosen = torch.cat([required.masked_fill(unused, FLOOR), background])
    log_x = log_sums.total(chosen, 0)
    return Columns(log_x.sum(dim=-1), chosen - log_x, size), rows
