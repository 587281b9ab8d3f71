"""The input of every algorithm: the probabilities of each bag's own classes and of the background, renormalised.

Only the required classes (those of the label set) and the background enter the likelihood. With x_k the sum of their
probabilities at position k, Prb(L) = prod_k x_k * R, where R is the probability, after division by x_k, that all of L
occurs: a well-scaled number whatever the probabilities of the other classes are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

FLOOR = -1e30
"""Stands for log 0: finite, so that no difference of two is NaN, and far below the logarithm of any float."""
IMPOSSIBLE = FLOOR / 10
"""A log-probability below this contains FLOOR: the event cannot occur."""


class Columns(NamedTuple):
    """The probabilities of the required classes and the background in each bag, in n slots a bag.

    Attributes:
        log_scale: (B,), sum over positions of log x.
        background: (B, K), log of the background's share of x.
        required: (B, n, K), log of each required class's share of x; FLOOR in the slots beyond |L|.
        size: (B,) int64, |L|.
    """

    log_scale: Tensor
    background: Tensor
    required: Tensor
    size: Tensor


def working_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type of sums over positions: float64 where the device has it."""
    return torch.float32 if log_probs.device.type == "mps" else torch.float64


def result_dtype(log_probs: Tensor) -> torch.dtype:
    """Return the type of the results: the input's, float32 for the half precisions."""
    return torch.promote_types(log_probs.dtype, torch.float32)


def renormalised_halves(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Return log-probabilities (B, C+1, *positions) of a half precision as float32 that sum to 1; others as they are.

    Rounding to bfloat16 moves the probability of an almost certain background by up to 0.4 %, at every position.
    """
    if log_probs.dtype not in (torch.float16, torch.bfloat16):
        return log_probs
    values = log_probs.float()
    if mask is not None:  # what is there may be anything
        values = values.masked_fill(~mask.unsqueeze(1), 0.0)
    return values - values.logsumexp(dim=1, keepdim=True)


def flat(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C+1, K) in the working type, at least FLOOR; masked positions are background with probability 1."""
    positions = math.prod(log_probs.shape[2:])
    log_probs = renormalised_halves(log_probs, mask)
    values = log_probs.reshape(*log_probs.shape[:2], positions).to(working_dtype(log_probs)).clamp(min=FLOOR)
    if mask is None:
        return values
    masked = ~mask.reshape(mask.shape[0], 1, positions)
    return torch.cat([values[:, :-1].masked_fill(masked, FLOOR), values[:, -1:].masked_fill(masked, 0.0)], dim=1)


def floor_to_infinity(log_prob: Tensor) -> Tensor:
    """Return logarithms of probabilities with -inf where FLOOR, or a sum that holds it, stands for log 0; NaN stays."""
    return torch.where(log_prob <= IMPOSSIBLE, torch.full_like(log_prob, -torch.inf), log_prob)


def membership(slots: int) -> Tensor:
    """Return (n + 1, 2^n) float64: a row of ones, then for each class 1 where the set holds it, 0 elsewhere.

    Everywhere in this package the first class is the highest bit of a set's number.
    """
    sets = torch.arange(2**slots)
    rows = [torch.ones(2**slots)] + [(sets >> (slots - 1 - i) & 1).float() for i in range(slots)]
    return torch.stack(rows).double()


def select(values: Tensor, labels: Tensor, slots: int) -> Columns:
    """Return the columns of every bag, from `values` (B, C+1, K) and labels (B, C), with n = `slots`.

    Args:
        values: (B, C+1, K), log-probabilities, background last, as `flat` returns them.
        labels: (B, C), bool or integers 0 and 1, the label sets.
        slots: n, the largest |L|.

    Returns:
        The columns of all B bags; slots beyond the size of a bag's label set hold FLOOR.
    """
    size = labels.sum(dim=1)
    order = label_order(labels, slots)
    chosen = values.gather(1, order.unsqueeze(-1).expand(-1, -1, values.shape[-1]))
    used = torch.arange(slots, device=values.device) < size.unsqueeze(-1)
    chosen = torch.where(used.unsqueeze(-1), chosen, torch.full_like(chosen, FLOOR))
    return renormalised(values[:, -1], chosen, size)


def renormalised(background: Tensor, chosen: Tensor, size: Tensor) -> Columns:
    """Return the columns from logarithms of the background (B, K) and the required classes (B, n, K).

    Args:
        background: (B, K), log-probability of background.
        chosen: (B, n, K), log-probability of each required class; FLOOR in the slots beyond |L|.
        size: (B,) int64, |L|.

    Returns:
        Columns whose shares sum to 1 at every position.
    """
    log_x = torch.logsumexp(torch.cat([chosen, background.unsqueeze(1)], dim=1), dim=1)
    return Columns(log_x.sum(dim=-1), background - log_x, chosen - log_x.unsqueeze(1), size)


def label_order(labels: Tensor, slots: int) -> Tensor:
    """Return (B, slots) int64, the class of each slot: the required classes first, in ascending order."""
    return labels.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :slots]


def narrowed(columns: Columns, dtype: torch.dtype) -> Columns:
    """Return the shares in `dtype`: after renormalisation float32 is accurate enough for a float32 result."""
    # `columns._replace(...)` would be shorter, and torch.compile of torch 2.6 cannot trace it.
    return Columns(columns.log_scale, columns.background.to(dtype), columns.required.to(dtype), columns.size)
