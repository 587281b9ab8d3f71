"""The log-probabilities of all 2^C label sets at once."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, scan, tree
from milbench.likelihood.columns import FLOOR, Columns

DISTRIBUTION_LIMIT = 16
"""The largest number of classes C whose 2^C label sets are listed."""


def label_set_distribution(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool | None = None) -> Tensor:
    """Return the log-likelihood of every label set, log Prb(L | P); not differentiable.

    Each is as accurate as `bag_log_prob`: the scan over positions adds positive terms, and its states are the label
    sets. (A Moebius transform of 2^C products would subtract, and leave no digit of a probability below 1e-16.) Time:
    O(K C 2^C) a bag. Memory: 8 bytes * 2^C (B + 5 K) for C <= 7, 8 bytes * (2^C B + 5 * 2^21) for larger C.

    Args:
        log_probs: (B, C+1, *positions) floating point, natural logarithms of probabilities that sum to 1 over dim 1,
            background last; C at most DISTRIBUTION_LIMIT.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        validate: whether values are checked as well as shapes, as in `bag_log_prob`.

    Returns:
        (B, 2^C), in nats; label set s contains class c where bit c of s is 1, and set 0 is empty.

    Raises:
        UsageError: there are more than DISTRIBUTION_LIMIT classes, or bad input as in `bag_log_prob`.

    Examples:
        >>> import torch
        >>> log_probs = torch.zeros(1, 3, 2).log_softmax(dim=1)  # two positions; two classes and background, 1/3 each
        >>> label_set_distribution(log_probs).exp() * 9  # {}, {0}, {1}, {0, 1}: of nine label maps
        tensor([[1.0000, 3.0000, 3.0000, 2.0000]])

    Source: X.-L. Li, arXiv:1811.12346, 2018, for Prb(L | P); see docs/likelihood.md for the recursion over positions.
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
    chosen = values[:, :-1].flip(1)  # the first class of the scan is the highest bit of a set
    parts = columns.renormalised(values[:, -1], chosen, torch.full((1,), chosen.shape[1]))
    scale = tree.label_scale(parts.required)
    states = scan.every_set(parts.background, parts.required, scale)
    table = states.log()
    underflow = states < scan.CERTAIN
    if bool(underflow.any()):
        table = torch.where(underflow, _in_logarithms(parts, scale), table)
    weights = torch.zeros(1, 1, dtype=table.dtype)
    for i in reversed(range(scale.shape[1])):
        weights = torch.cat([weights, weights + scale[:, i : i + 1]], dim=1)
    return parts.log_scale.unsqueeze(-1) + table + weights


def _in_logarithms(parts: Columns, scale: Tensor) -> Tensor:
    """Return (1, 2^C) by the same scan in logarithms, for label sets whose scaled probabilities underflow."""
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
