"""The log-probabilities of all 2^C label sets at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, scan, tree
from milbench.likelihood.columns import FLOOR

DISTRIBUTION_LIMIT = 16
"""The largest number of classes C whose 2^C label sets are listed."""
GROUP = 1 << 20
"""The most numbers of one group of bags, G K 2^C (8 MiB), unless one bag has more. Larger groups were not faster."""


def label_set_distribution(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool | None = None) -> Tensor:
    """Return the log-likelihood of every label set, log Prb(L | P); not differentiable.

    Each is as accurate as `bag_log_prob`: the scan over positions adds positive terms, and its states are the label
    sets. (A Moebius transform of 2^C products would subtract, and leave no digit of a probability below 1e-16.)

    Time: O(K C 2^C) a bag; small bags are computed side by side. A bag with a label set that cannot occur, or whose
    probability underflows, is computed again in logarithms, which takes about five times as long. Memory: 8 bytes *
    (2^C B + 4 C K + 8 * GROUP).

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
    result = log_probs.new_empty(len(log_probs), 2**classes, dtype=columns.result_dtype(log_probs))
    begin = 0
    for table in tables(log_probs, mask):
        result[begin : begin + len(table)] = table
        begin += len(table)
    return result


def tables(log_probs: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
    """Yield the rows of `label_set_distribution`, one group of bags after the other; the arguments are not checked.

    Memory: that of `label_set_distribution` without the 2^C B numbers of its result.

    Args:
        log_probs: (B, C+1, *positions), as in `label_set_distribution`.
        mask: (B, *positions) bool; None: everywhere.

    Yields:
        (G, 2^C), in nats, of the next G bags, in the type and on the device of the result.
    """
    classes, positions = log_probs.shape[1] - 1, math.prod(log_probs.shape[2:])
    bags = max(1, GROUP // scan.numbers(positions, classes))
    for begin in range(0, len(log_probs), bags):
        group = slice(begin, begin + bags)
        values = columns.flat(log_probs[group].detach().cpu(), None if mask is None else mask[group].cpu())
        table = columns.floor_to_infinity(_listed(values))
        yield table.to(log_probs.device, columns.result_dtype(log_probs))


def _listed(values: Tensor) -> Tensor:
    """Return (G, 2^C) from (G, C+1, K)."""
    chosen = values[:, :-1].flip(1)  # the first class of the scan is the highest bit of a set
    parts = columns.renormalised(values[:, -1], chosen, torch.full((len(values),), chosen.shape[1]))
    scale = tree.label_scale(parts.required)
    states = scan.every_set(parts.background, parts.required, scale)
    table = states.log()
    unsure = torch.nonzero((states < scan.CERTAIN).any(dim=1)).squeeze(1)
    if len(unsure):
        again = _in_logarithms(parts.background[unsure], parts.required[unsure], scale[unsure])
        table[unsure] = torch.where(states[unsure] < scan.CERTAIN, again, table[unsure])
    weights = scale.new_zeros(len(scale), 1)
    for i in reversed(range(scale.shape[1])):
        weights = torch.cat([weights, weights + scale[:, i : i + 1]], dim=1)
    return parts.log_scale.unsqueeze(-1) + table + weights


def _in_logarithms(background: Tensor, required: Tensor, scale: Tensor) -> Tensor:
    """Return (G, 2^C) by the same scan in logarithms, for bags with a label set whose scaled probability underflows."""
    bags, slots, positions = required.shape
    states = scale.new_full((2**slots, bags), FLOOR)
    states[0] = 0.0
    steps = required.permute(2, 1, 0).contiguous()
    first = steps - scale.T
    for k in range(positions):
        total = background[:, k].unsqueeze(0)
        for i in reversed(range(slots)):
            total = torch.cat([total, torch.logaddexp(total, steps[k, i])])
        after = states + total
        for i in range(slots):
            having = after.view(2**i, 2, -1, bags)[:, 1]
            having.copy_(torch.logaddexp(having, states.view(2**i, 2, -1, bags)[:, 0] + first[k, i]))
        states = after.clamp_(min=FLOOR * 1e6)
    return states.T
