"""The log-probabilities of all 2^C label sets at once."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, scan, tree
from milbench.likelihood.columns import FLOOR, Columns

DISTRIBUTION_LIMIT = 16


def label_set_distribution(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool | None = None) -> Tensor:
    """Return (B, 2^C), log Prb(L | P) in nats of every label set; set s holds class c where bit c of s is 1.

    The zeta and Moebius transforms that give all sets from 2^C products subtract, so that a set of probability 1e-17
    would be noise. The scan over positions adds positive terms and has every set as one of its states, at
    O(K C 2^C): each log-probability is as exact as `bag_log_prob`. Not differentiable.

    Memory: 8 bytes * (2^C (B + 5 K) for C <= 7, else 2^C B + 5 * 2^21 a bag).

    Raises:
        UsageError: more than DISTRIBUTION_LIMIT classes, and bad input as in `bag_log_prob`.
    """
    checks.check_log_probs(log_probs, mask, validate)
    classes = log_probs.shape[1] - 1
    if classes > DISTRIBUTION_LIMIT:
        raise UsageError(
            f"log_probs {tuple(log_probs.shape)} have {classes} classes, 2^{classes} label sets: "
            f"at most {DISTRIBUTION_LIMIT} classes can be listed"
        )
    values = columns.flat(log_probs.detach(), mask).cpu()
    rows = [_one_bag(values[i : i + 1]) for i in range(len(values))]
    table = torch.cat(rows) if rows else values.new_zeros(0, 2**classes)
    return columns.floor_to_infinity(table).to(log_probs.device, columns.result_dtype(log_probs))


def _one_bag(values: Tensor) -> Tensor:
    """Return (1, 2^C) from (1, C+1, K)."""
    chosen = values[:, :-1].flip(1)  # the engine's first class is its highest bit
    parts = columns.renormalised(values[:, -1], chosen, torch.full((1,), chosen.shape[1]))
    scale = tree.label_scale(parts.required)
    states = scan.distribution(parts.background, parts.required, scale)
    table = states.log()
    unsure = states < scan.CERTAIN
    if bool(unsure.any()):
        table = torch.where(unsure, _in_logarithms(parts, scale), table)
    weights = torch.zeros(1, 1, dtype=table.dtype)
    for i in reversed(range(scale.shape[1])):
        weights = torch.cat([weights, weights + scale[:, i : i + 1]], dim=1)
    return parts.log_scale.unsqueeze(-1) + table + weights


def _in_logarithms(parts: Columns, scale: Tensor) -> Tensor:
    """Return (1, 2^C) by the same scan in logarithms, for sets that plain numbers cannot hold."""
    slots, positions = parts.required.shape[1:]
    states = torch.full((2**slots,), FLOOR, dtype=scale.dtype)
    states[0] = 0.0
    first = parts.required[0] - scale[0].unsqueeze(-1)
    for k in range(positions):
        total = parts.background[0, k : k + 1]
        for i in reversed(range(slots)):
            total = torch.cat([total, torch.logaddexp(total, parts.required[0, i, k])])
        after = states + total
        for i in range(slots):
            having = after.view(2**i, 2, -1)[:, 1]
            having.copy_(torch.logaddexp(having, states.view(2**i, 2, -1)[:, 0] + first[i, k]))
        states = after.clamp_(min=FLOOR * 1e6)
    return states.unsqueeze(0)
