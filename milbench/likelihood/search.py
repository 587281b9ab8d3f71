"""The most probable label set."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from milbench.likelihood import checks
from milbench.likelihood.exact import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds

LISTED_CLASSES = 12
"""The largest number of classes C whose 2^C label sets are all compared."""
POSITIONS_AT_ONCE = 4096
"""Of a large bag: bounds the memory to 8 bytes * 2^C * POSITIONS_AT_ONCE."""


def best_label_set(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True) -> tuple[Tensor, Tensor]:
    """Return the most probable label set of every bag, for bags of up to a million positions.

    For at most LISTED_CLASSES classes all sets are compared, by inclusion and exclusion in float64. It subtracts, with
    an absolute error near 1e-11: of sets whose probabilities are nearer to each other than that, any may be returned.
    The best set has a probability of at least 2^-C. For more classes, the search starts from those that are more likely
    present than not (at most EXACT_LABEL_LIMIT), and adds, removes or swaps one class while that helps: its result may
    not be the best of all sets. Arguments and errors are those of `bag_log_prob`.

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
    checks.check_log_probs(log_probs, mask, validate)
    log_probs, classes = log_probs.detach(), log_probs.shape[1] - 1
    labels = torch.zeros(len(log_probs), classes, dtype=torch.bool, device=log_probs.device)
    for bag in range(len(log_probs)):
        there = None if mask is None else mask[bag]
        one = log_probs[bag].flatten(1) if there is None else log_probs[bag][:, there]
        labels[bag] = _best_by_subtraction(one.double().exp()) if classes <= LISTED_CLASSES else _search(one[None])
    return labels, bag_log_prob(log_probs, labels, mask, validate=False)


def _best_by_subtraction(probs: Tensor) -> Tensor:
    """Return (C,) bool, the most probable label set of one bag's probabilities (C+1, K)."""
    classes = len(probs) - 1
    number = torch.arange(2**classes, device=probs.device)
    sets = (number.unsqueeze(-1) >> torch.arange(classes, device=probs.device) & 1).bool()
    with_background = functional.pad(sets.to(probs), (0, 1), value=1.0)
    log_within = probs.new_zeros(2**classes)  # of the event that no class outside the set occurs
    for part in probs.split(POSITIONS_AT_ONCE, dim=1):
        log_within += (with_background @ part).log_().sum(dim=1)
    table = log_within.exp()
    for c in range(classes):  # Moebius transform: from subsets of each set to the set itself
        halves = table.view(-1, 2, 2**c)
        halves[:, 1] -= halves[:, 0]
    return sets[int(table.argmax())]


def _search(log_probs: Tensor) -> Tensor:
    """Return (C,) bool, a label set of one bag (1, C+1, K) that no change of one class makes more probable."""
    odds = presence_log_odds(log_probs, validate=False)[0]
    likely = odds.topk(min(EXACT_LABEL_LIMIT, len(odds))).indices
    current = torch.zeros_like(odds, dtype=torch.bool)
    current[likely] = odds[likely] > 0
    while True:
        sets = torch.cat([current.unsqueeze(0), _neighbours(current)])
        best = int(bag_log_prob(log_probs.expand(len(sets), -1, -1), sets, validate=False).argmax())
        if best == 0:
            return current
        current = sets[best]


def _neighbours(current: Tensor) -> Tensor:
    """Return the sets (N, C) one addition, removal or swap away, none larger than EXACT_LABEL_LIMIT."""
    one = torch.eye(len(current), dtype=torch.bool, device=current.device)
    swaps = one[current].unsqueeze(1) | one[~current]
    sets = current ^ torch.cat([one, swaps.flatten(0, 1)])
    return sets[sets.sum(dim=1) <= EXACT_LABEL_LIMIT]
