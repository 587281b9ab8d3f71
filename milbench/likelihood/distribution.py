"""The log-probabilities of all 2^C label sets at once, and the most probable label set."""

import math

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import argument_checks, columns, levels
from milbench.likelihood.exact_likelihood import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds

DISTRIBUTION_LIMIT = 16
"""The largest number of classes C for which `label_set_distribution` lists all 2^C label sets."""
LISTED_CLASSES = 12
"""The largest number of classes C for which `best_label_set` compares all 2^C label sets."""
GROUP = 1 << 20
"""The most numbers, G * K * 2^C, of a group of G bags that are computed at once: 8 MiB.

A single bag with more numbers is a group too.
"""


def label_set_distribution(
    log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True
) -> Tensor:
    """Return the log-likelihood of every label set, log Prb(L | P); not differentiable.

    Each value is as accurate as that of `bag_log_prob`, since only positive terms are added. (A
    Moebius transform of 2^C products would subtract nearly equal numbers, and leave no right digit
    of a probability below 1e-16.)

    Time: O(K C 2^C) for each bag; small bags are computed together. Memory: 8 bytes * (2^C B + 12 *
    GROUP).

    Arguments and errors are those of `bag_log_prob`, with C at most DISTRIBUTION_LIMIT.

    Returns:
        (B, 2^C), in nats. Label set s contains class c where bit c of the number s is 1; set 0 is
        empty.

    Examples:
        Two positions, at which two classes and the background have probability 1/3 each. Of the
        nine possible label maps, 1, 3, 3 and 2 have the label sets {}, {0}, {1} and {0, 1}.

        >>> import torch
        >>> log_probs = torch.zeros(1, 3, 2).log_softmax(dim=1)
        >>> label_set_distribution(log_probs).exp() * 9
        tensor([[1.0000, 3.0000, 3.0000, 2.0000]])

    Source: X.-L. Li, arXiv:1811.12346, 2018, for Prb(L | P); see docs/likelihood.md for the sums.
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    classes = log_probs.shape[1] - 1
    if classes > DISTRIBUTION_LIMIT:
        size = f"log_probs {tuple(log_probs.shape)} have {classes} classes, 2^{classes} label sets"
        raise UsageError(f"{size}: at most {DISTRIBUTION_LIMIT} classes can be listed")
    result = log_probs.new_empty(len(log_probs), 2**classes, dtype=columns.result_dtype(log_probs))
    positions = math.prod(log_probs.shape[2:])
    bags_at_once = max(1, GROUP // (max(1, positions) << classes))
    for begin in range(0, len(log_probs), bags_at_once):
        group = slice(begin, begin + bags_at_once)
        group_bags = log_probs[group].detach().cpu()
        group_mask = None if mask is None else mask[group].cpu()
        every_class = torch.ones(len(group_bags), classes, dtype=torch.bool)
        parts, _ = columns.required_columns(group_bags, group_mask, every_class, classes)
        result[group] = columns.floor_to_infinity(_listed(parts))
    return result


def best_label_set(
    log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the most probable label set of every bag.

    For at most LISTED_CLASSES classes all sets are compared. For more classes there is a search. It
    starts from the set of the classes that are more likely present than not (at most
    EXACT_LABEL_LIMIT), and adds, removes or swaps one class as long as that makes the set more
    probable. So its result may not be the best of all sets. Arguments and errors are those of
    `bag_log_prob`.

    Returns:
        The label sets (B, C) bool, and their log-probabilities (B,) in nats, as accurate as those
        of `bag_log_prob`.

    Examples:
        One bag of two positions, with two classes. The first position probably shows class 0, the
        second probably the background. The best label set is {0}, with the probability 0.7 * 0.2 +
        0.7 * 0.7 + 0.2 * 0.2.

        >>> import torch
        >>> probs = torch.tensor([[[0.7, 0.2], [0.1, 0.1], [0.2, 0.7]]])
        >>> labels, log_prob = best_label_set(probs.log())
        >>> labels, log_prob.exp()
        (tensor([[ True, False]]), tensor([0.6700]))
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    log_probs = log_probs.detach()
    classes = log_probs.shape[1] - 1
    if classes <= LISTED_CLASSES:
        listed = label_set_distribution(log_probs, mask, validate=False)
        best_number = listed.argmax(dim=1, keepdim=True)
        labels = (best_number >> torch.arange(classes, device=log_probs.device) & 1).bool()
    else:
        labels = torch.zeros(len(log_probs), classes, dtype=torch.bool, device=log_probs.device)
        for number, bag in enumerate(log_probs):
            # A search handles one bag at a time, so its masked positions can simply be dropped.
            positions = bag if mask is None else bag[:, mask[number]]
            # (1, C+1, K). `unsqueeze` adds a position dimension where there is none.
            labels[number] = _search(positions.unsqueeze(-1).flatten(1).unsqueeze(0))
    return labels, bag_log_prob(log_probs, labels, mask, validate=False)


def _listed(parts: columns.Columns) -> Tensor:
    """Return (G, 2^C), the log-likelihood of every label set of a group of bags.

    The sums are computed in plain numbers, which is fast, and again in logarithms for bags with a
    label set whose probability underflows.
    """
    table = levels.every_set(parts, levels.Numbers)
    is_rare = table < math.log(levels.SAFE_FROM_UNDERFLOW)
    bags = torch.nonzero(is_rare.any(dim=1)).squeeze(1)
    if len(bags):
        by_logarithms = levels.every_set(parts.select(bags), levels.Logs)
        table[bags] = torch.where(is_rare[bags], by_logarithms, table[bags])
    return parts.log_scale.unsqueeze(-1) + table


def _search(log_probs: Tensor) -> Tensor:
    """Return (C,) bool, a label set of one bag that none of its neighbours exceeds in probability.

    The log-probabilities are (1, C+1, K); `_neighbours` defines the neighbours.
    """
    odds = presence_log_odds(log_probs, validate=False)[0]
    likely = odds.topk(min(EXACT_LABEL_LIMIT, len(odds))).indices
    current = torch.zeros_like(odds, dtype=torch.bool)
    current[likely] = odds[likely] > 0
    while True:
        sets = _neighbours(current)
        values = bag_log_prob(log_probs.expand(len(sets), -1, -1), sets, validate=False)
        best = int(values.argmax())
        # The first set is the current one.
        if best == 0:
            return current
        current = sets[best]


def _neighbours(label_set: Tensor) -> Tensor:
    """Return (n, C) bool, a label set (C,) and its neighbours.

    In a neighbour one class is added, removed, or swapped for another class. Sets of more than
    EXACT_LABEL_LIMIT classes are left out.
    """
    one_class = torch.eye(len(label_set), dtype=torch.bool, device=label_set.device)
    no_class = torch.zeros_like(one_class[:1])
    class_and_other = one_class[label_set].unsqueeze(1) | one_class[~label_set]
    changes = torch.cat([no_class, one_class, class_and_other.flatten(0, 1)])
    # A change says which classes to add if they are missing, or to remove if they are there.
    sets = label_set ^ changes
    return sets[sets.sum(dim=1) <= EXACT_LABEL_LIMIT]
