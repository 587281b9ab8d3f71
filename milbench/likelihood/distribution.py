"""The log-probabilities of all 2^C label sets at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, levels

DISTRIBUTION_LIMIT = 16
"""The largest number of classes C whose 2^C label sets are listed."""
GROUP = 1 << 20
"""The most numbers of one group of bags, B * K * 2^C (8 MiB), unless one bag has more."""


def label_set_distribution(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True) -> Tensor:
    """Return the log-likelihood of every label set, log Prb(L | P); not differentiable.

    Each is as accurate as `bag_log_prob`: the sums are of positive terms, and their last states are the label sets. (A
    Moebius transform of 2^C products would subtract, and leave no digit of a probability below 1e-16.)

    Time: O(K C 2^C) for each bag; small bags are computed side by side. Memory: 8 bytes * (2^C B + 12 * GROUP).

    Args:
        log_probs: (B, C+1, *positions), as in `bag_log_prob`, with C at most DISTRIBUTION_LIMIT.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        validate: as in `bag_log_prob`.

    Returns:
        (B, 2^C), in nats; label set s contains class c where bit c of s is 1, and set 0 is empty.

    Raises:
        UsageError: there are more than DISTRIBUTION_LIMIT classes, or bad input as in `bag_log_prob`.

    Examples:
        >>> import torch
        >>> log_probs = torch.zeros(1, 3, 2).log_softmax(dim=1)  # two positions; two classes and background, 1/3 each
        >>> label_set_distribution(log_probs).exp() * 9  # {}, {0}, {1}, {0, 1}: of nine label maps
        tensor([[1.0000, 3.0000, 3.0000, 2.0000]])

    Source: X.-L. Li, arXiv:1811.12346, 2018, for Prb(L | P); see docs/likelihood.md for the sums.
    """
    checks.check_log_probs(log_probs, mask, validate)
    classes, positions = log_probs.shape[1] - 1, math.prod(log_probs.shape[2:])
    if classes > DISTRIBUTION_LIMIT:
        raise UsageError(
            f"log_probs {tuple(log_probs.shape)} have {classes} classes, 2^{classes} label sets: "
            f"at most {DISTRIBUTION_LIMIT} classes can be listed"
        )
    result = log_probs.new_empty(len(log_probs), 2**classes, dtype=columns.result_dtype(log_probs))
    bags = max(1, GROUP // (max(1, positions) << classes))
    for begin in range(0, len(log_probs), bags):
        group = slice(begin, begin + bags)
        some = log_probs[group].detach().cpu()
        every_class = torch.ones(len(some), classes, dtype=torch.bool)
        parts, _ = columns.select(some, None if mask is None else mask[group].cpu(), every_class, classes)
        result[group] = columns.floor_to_infinity(_listed(parts))
    return result


def _listed(parts: columns.Columns) -> Tensor:
    """Return (G, 2^C), in logarithms only for bags with a label set whose probability underflows."""
    table = levels.every_set(parts, levels.Numbers)
    rare = table < math.log(levels.CERTAIN)
    bags = torch.nonzero(rare.any(dim=1)).squeeze(1)
    if len(bags):
        table[bags] = torch.where(rare[bags], levels.every_set(parts.of(bags), levels.Logs), table[bags])
    return parts.log_scale.unsqueeze(-1) + table
