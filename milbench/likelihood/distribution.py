"""The log-probabilities of all 2^C label sets at once, and the most probable label set."""

import math

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import argument_checks, columns, levels
from milbench.likelihood.exact_likelihood import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds

DISTRIBUTION_LIMIT = 16  # the largest number of classes C whose 2^C label sets are listed
LISTED_CLASSES = (
    12  # the largest number of classes C whose 2^C label sets are all compared to find the best one
)
GROUP = (
    1 << 20
)  # the most numbers of one group of bags, B * K * 2^C (8 MiB), unless one bag has more


def label_set_distribution(
    log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True
) -> Tensor:
    """Return the log-likelihood of every label set, log Prb(L | P); not differentiable.

    Each is as accurate as `bag_log_prob`: the sums are of positive terms, and their last states are the label sets. (A
    Moebius transform of 2^C products would subtract, and leave no digit of a probability below 1e-16.)

    Time: O(K C 2^C) for each bag; small bags are computed side by side. Memory: 8 bytes * (2^C B + 12 * GROUP).

    Arguments and errors are those of `bag_log_prob`, with C at most DISTRIBUTION_LIMIT.

    Returns:
        (B, 2^C), in nats; label set s contains class c where bit c of s is 1, and set 0 is empty.

    Examples:
        >>> import torch
        >>> log_probs = torch.zeros(1, 3, 2).log_softmax(dim=1)  # two positions; two classes and background, 1/3 each
        >>> label_set_distribution(log_probs).exp() * 9  # {}, {0}, {1}, {0, 1}: of nine label maps
        tensor([[1.0000, 3.0000, 3.0000, 2.0000]])

    Source: X.-L. Li, arXiv:1811.12346, 2018, for Prb(L | P); see docs/likelihood.md for the sums.
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    classes, positions = log_probs.shape[1] - 1, math.prod(log_probs.shape[2:])
    if classes > DISTRIBUTION_LIMIT:
        size = f"log_probs {tuple(log_probs.shape)} have {classes} classes, 2^{classes} label sets"
        raise UsageError(f"{size}: at most {DISTRIBUTION_LIMIT} classes can be listed")
    result = log_probs.new_empty(len(log_probs), 2**classes, dtype=columns.result_dtype(log_probs))
    bags = max(1, GROUP // (max(1, positions) << classes))
    for begin in range(0, len(log_probs), bags):
        group = slice(begin, begin + bags)
        group_bags = log_probs[group].detach().cpu()
        every_class = torch.ones(len(group_bags), classes, dtype=torch.bool)
        parts, _ = columns.select(
            group_bags, None if mask is None else mask[group].cpu(), every_class, classes
        )
        result[group] = columns.floor_to_infinity(_listed(parts))
    return result


def best_label_set(
    log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the most probable label set of every bag.

    For at most LISTED_CLASSES classes all sets are compared. For more classes, the search starts from those that are
    more likely present than not (at most EXACT_LABEL_LIMIT), and adds, removes or swaps one class while that helps: its
    result may not be the best of all sets. Arguments and errors are those of `bag_log_prob`.

    Returns:
        The label sets (B, C) bool, and their log-probabilities (B,) in nats, as accurate as those of `bag_log_prob`.

    Examples:
        Two positions and two classes. The first position is probably of class 0, the second probably background.

        >>> import torch
        >>> probs = torch.tensor([[[0.7, 0.2], [0.1, 0.1], [0.2, 0.7]]])  # (bags, classes and background, positions)
        >>> labels, log_prob = best_label_set(probs.log())
        >>> labels, log_prob.exp()  # {0}: 0.7 * 0.2 + 0.7 * 0.7 + 0.2 * 0.2
        (tensor([[ True, False]]), tensor([0.6700]))
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    log_probs, classes = log_probs.detach(), log_probs.shape[1] - 1
    if classes <= LISTED_CLASSES:
        best = label_set_distribution(log_probs, mask, validate=False).argmax(dim=1, keepdim=True)
        labels = (best >> torch.arange(classes, device=best.device) & 1).bool()
    else:
        positions = [...] * len(log_probs) if mask is None else mask
        bags = [
            bag[:, unmasked].flatten(1)[None]
            for bag, unmasked in zip(log_probs, positions, strict=True)
        ]
        empty = torch.zeros(0, classes, dtype=torch.bool, device=log_probs.device)
        labels = torch.stack([*map(_search, bags)]) if bags else empty
    return labels, bag_log_prob(log_probs, labels, mask, validate=False)


def _listed(parts: columns.Columns) -> Tensor:
    """Return (G, 2^C), in logarithms only for bags with a label set whose probability underflows."""
    table = levels.every_set(parts, levels.Numbers)
    rare = table < math.log(levels.CERTAIN)
    bags = torch.nonzero(rare.any(dim=1)).squeeze(1)
    if len(bags):
        table[bags] = torch.where(
            rare[bags], levels.every_set(parts.select(bags), levels.Logs), table[bags]
        )
    return parts.log_scale.unsqueeze(-1) + table


def _search(log_probs: Tensor) -> Tensor:
    """Return (C,) bool, a label set of one bag (1, C+1, K) that no change of one class makes more probable."""
    odds = presence_log_odds(log_probs, validate=False)[0]
    likely = odds.topk(min(EXACT_LABEL_LIMIT, len(odds))).indices
    current = torch.zeros_like(odds, dtype=torch.bool)
    current[likely] = odds[likely] > 0
    while True:
        single = torch.eye(len(current), dtype=torch.bool, device=current.device)
        swaps = single[current].unsqueeze(1) | single[~current]
        sets = current ^ torch.cat([torch.zeros_like(single[:1]), single, swaps.flatten(0, 1)])
        sets = sets[sets.sum(dim=1) <= EXACT_LABEL_LIMIT]
        best = int(bag_log_prob(log_probs.expand(len(sets), -1, -1), sets, validate=False).argmax())
        if best == 0:
            return current
        current = sets[best]
