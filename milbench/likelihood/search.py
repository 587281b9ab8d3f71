"""The most probable label set, by one of three methods.

`best_label_set` is exact for a few classes and otherwise bounds its error. `best_label_set_of_large_bags` is exact, up
to ties, for a few classes and very many positions. `likely_label_set` is cheap, for probabilities that are mostly
sharp, and not always right.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks
from milbench.likelihood.columns import result_dtype
from milbench.likelihood.distribution import tables
from milbench.likelihood.exact import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds

LISTED_CLASSES = 12
"""The largest number of classes C whose 2^C label sets are all compared."""
POSITIONS_AT_ONCE = 4096
"""Of a large bag: bounds the memory to 8 bytes * 2^C * POSITIONS_AT_ONCE."""
UNSURE = 0.05
"""`likely_label_set` takes a class for present or absent if the other has at most this probability."""
TRIED_CLASSES = 2
"""`likely_label_set` tries at most so many unsure classes both ways, 2^TRIED_CLASSES label sets a bag. Trying more
lowered no error on the maps of three small trained networks, and cost up to four times as much."""
LARGEST_TRIED = 6
"""`likely_label_set` tries nothing in a bag with more likely classes than this: its network is hardly trained yet."""


class BestLabelSets(NamedTuple):
    """The most probable label sets of B bags.

    Attributes:
        labels: (B, k, C) bool, the best set of each bag first.
        log_prob: (B, k), their log-probabilities in nats.
        excess: (B,), no set's log-probability exceeds log_prob[:, 0] + excess; 0 where all sets were compared.
    """

    labels: Tensor
    log_prob: Tensor
    excess: Tensor


def best_label_set(
    log_probs: Tensor, mask: Tensor | None = None, k: int = 1, *, validate: bool | None = None
) -> BestLabelSets:
    """Return the k most probable label sets of every bag.

    For at most LISTED_CLASSES classes all sets are compared, and the result is exact. Beyond, the search starts from
    the classes that are more likely present than not (at most EXACT_LABEL_LIMIT), and adds, removes or swaps one class
    while that helps, by the exact likelihood; the k best of the sets that it compared are returned. Any other set
    differs from the one found, L, in some class, so its probability is at most 1 - Prb(L) and at most the largest
    probability that some class of L is absent or some other class is present; `excess` comes from the smaller bound.

    Memory: for at most LISTED_CLASSES classes that of `label_set_distribution` without its result, hence bounded for
    any number of bags; beyond, as `bag_log_prob` for one bag repeated up to C^2 / 4 times.

    Args:
        log_probs: (B, C+1, *positions) floating point, natural logarithms of probabilities that sum to 1 over dim 1,
            background last.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        k: how many sets to return for each bag.
        validate: whether values are checked as well as shapes, as in `bag_log_prob`.

    Returns:
        The sets (B, k, C), the most probable first, their log-probabilities (B, k) in nats, and `excess` (B,).

    Raises:
        UsageError: k below 1 or above the number of sets, and bad input as in `bag_log_prob`.

    Examples:
        Two positions and two classes. The first position is probably of class 0, the second probably background.

        >>> import torch
        >>> probs = torch.tensor([[[0.7, 0.2], [0.1, 0.1], [0.2, 0.7]]])  # (bags, classes and background, positions)
        >>> best = best_label_set(probs.log(), k=2)
        >>> best.labels  # {0} and {}
        tensor([[[ True, False],
                 [False, False]]])
        >>> best.log_prob.exp()  # 0.7 * 0.2 + 0.7 * 0.7 + 0.2 * 0.2 and 0.2 * 0.7
        tensor([[0.6700, 0.1400]])
    """
    checks.check_log_probs(log_probs, mask, validate)
    classes = log_probs.shape[1] - 1
    if k < 1 or (classes <= LISTED_CLASSES and k > 2**classes):
        raise UsageError(f"k must be from 1 to 2^C = {2**classes} for log_probs {tuple(log_probs.shape)}, got {k}")
    log_probs = log_probs.detach()
    if len(log_probs) == 0:
        value = log_probs.new_zeros(0, k, dtype=result_dtype(log_probs))
        return BestLabelSets(value.new_zeros(0, k, classes, dtype=torch.bool), value, value.new_zeros(0))
    if classes <= LISTED_CLASSES:
        value, index = _best_listed(log_probs, mask, k)
        return BestLabelSets(_unpacked(index, classes), value, torch.zeros_like(value[:, 0]))
    found = [_search(log_probs[i : i + 1], None if mask is None else mask[i : i + 1], k) for i in range(len(log_probs))]
    return BestLabelSets(*(torch.stack(field) for field in zip(*found, strict=True)))


def best_label_set_of_large_bags(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the most probable label set of every bag, for bags of up to a million positions.

    For at most LISTED_CLASSES classes all sets are compared by inclusion and exclusion, which needs far less time and
    memory than `best_label_set`. It subtracts, with an absolute error near 1e-11: of sets whose probabilities are
    nearer to each other than that, any may be returned. The best set has a probability of at least 2^-C. For more
    classes this is `best_label_set`. Values are not checked.

    Args:
        log_probs: (B, C+1, *positions) float64, natural logarithms of probabilities that sum to 1 over dim 1,
            background last.

    Returns:
        The label sets (B, C) bool, and their log-probabilities (B,) in nats, as accurate as `bag_log_prob`.

    Examples:
        One position of a million shows class 0 with probability 0.9; elsewhere there is background.

        >>> import torch
        >>> probs = torch.zeros(1, 3, 1_000_000, dtype=torch.float64)
        >>> probs[:, 2] = 1
        >>> probs[0, :, 7] = torch.tensor([0.9, 0.02, 0.08])
        >>> labels, log_prob = best_label_set_of_large_bags(probs.log())
        >>> labels.tolist(), f"{log_prob.exp().item():.3f}"
        ([[True, False]], '0.900')
    """
    flat = log_probs.detach().flatten(2)
    if flat.shape[1] - 1 > LISTED_CLASSES:
        best = best_label_set(flat, validate=False)
        return best.labels[:, 0], best.log_prob[:, 0]
    labels = torch.stack([_best_by_subtraction(bag.exp()) for bag in flat])
    return labels, bag_log_prob(flat, labels, validate=False)


def likely_label_set(log_probs: Tensor, tried_classes: int = TRIED_CLASSES) -> Tensor:
    """Return a label set of every bag that is probable, at a small share of the cost of `best_label_set`.

    A class whose probability to occur is within UNSURE of 0 is left out, and one within UNSURE of 1 is included: every
    set that differs in such a class has a probability of at most UNSURE. The other, unsure classes are tried both ways,
    and the most probable of these sets is returned: no other set has a probability above UNSURE and above that of the
    set returned. This does not hold where more than `tried_classes` are unsure, or more than LARGEST_TRIED classes are
    more likely present than not: an unsure class that is not tried is then included if it is more likely present than
    not. Values are not checked.

    Args:
        log_probs: (B, C+1, *positions) float64, natural logarithms of probabilities that sum to 1 over dim 1,
            background last.
        tried_classes: how many unsure classes are tried, those whose probability to occur is nearest to 1/2.

    Returns:
        (B, C) bool.

    Examples:
        >>> import torch
        >>> probs = torch.tensor([[[0.9, 0.1], [0.0, 0.3], [0.1, 0.6]]], dtype=torch.float64)  # two positions
        >>> likely_label_set(probs.log()).tolist()
        [[True, False]]
    """
    log_absent = torch.log1p(-log_probs[:, :-1].flatten(2).exp().clamp(max=1)).sum(dim=2)
    absent = log_absent.exp()
    sets = absent < 0.5
    unsure = (absent > UNSURE) & (-torch.expm1(log_absent) > UNSURE)
    nearest = (absent - 0.5).abs().masked_fill(~unsure, torch.inf).argsort(dim=1)[:, :tried_classes]
    number = unsure.sum(dim=1).clamp(max=tried_classes) * (sets.sum(dim=1) <= LARGEST_TRIED)
    for n in range(1, int(number.max()) + 1 if len(number) else 0):
        bags = (number == n).nonzero().flatten()
        if not len(bags):
            continue
        choices = _unpacked(torch.arange(2**n), n)
        tried = sets[bags].unsqueeze(1).repeat(1, len(choices), 1)
        tried.scatter_(2, nearest[bags, None, :n].expand(-1, len(choices), -1), choices.expand(len(bags), -1, -1))
        repeated = log_probs[bags].repeat_interleave(len(choices), dim=0)
        value = bag_log_prob(repeated, tried.flatten(0, 1), validate=False).view(len(bags), -1)
        sets[bags] = tried[torch.arange(len(bags)), value.argmax(dim=1)]
    return sets


def _unpacked(index: Tensor, classes: int) -> Tensor:
    """Return (..., C) bool from the numbers (...) of label sets: class c is in set s where bit c of s is 1."""
    return (index.unsqueeze(-1) >> torch.arange(classes, device=index.device) & 1).bool()


def _best_listed(log_probs: Tensor, mask: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities (B, k) of the k best of all label sets, and their numbers (B, k)."""
    found = [table.topk(k, dim=1) for table in tables(log_probs, mask)]
    return torch.cat([best.values for best in found]), torch.cat([best.indices for best in found])


def _best_by_subtraction(probs: Tensor) -> Tensor:
    """Return (C,) bool, the most probable label set of one bag's probabilities (C+1, K)."""
    classes = len(probs) - 1
    sets = _unpacked(torch.arange(2**classes, device=probs.device), classes)
    with_background = torch.nn.functional.pad(sets.to(probs), (0, 1), value=1.0)
    log_within = probs.new_zeros(2**classes)  # of the event that no class outside the set occurs
    for part in probs.split(POSITIONS_AT_ONCE, dim=1):
        log_within += (with_background @ part).log_().sum(dim=1)
    table = log_within.exp()
    for c in range(classes):  # Moebius transform: from subsets of each set to the set itself
        halves = table.view(-1, 2, 2**c)
        halves[:, 1] -= halves[:, 0]
    return sets[int(table.argmax())]


def _search(log_probs: Tensor, mask: Tensor | None, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the fields of `BestLabelSets` for one bag (1, C+1, *positions), by local search."""
    odds = presence_log_odds(log_probs, mask, validate=False)[0]
    likely = odds.topk(min(EXACT_LABEL_LIMIT, len(odds))).indices
    current = torch.zeros_like(odds, dtype=torch.bool)
    current[likely] = odds[likely] > 0
    best = current.unsqueeze(0)
    value = _values(log_probs, best, mask)
    while True:
        around = _neighbours(current)
        around_value = _values(log_probs, around, mask)
        best, value = _top(torch.cat([best, around]), torch.cat([value, around_value]), max(k, 1))
        if torch.equal(best[0], current):
            break
        current = best[0].clone()
    if len(best) < k:
        raise UsageError(f"k = {k} is more than the {len(best)} label sets that the search compared")
    return best, value, _excess(odds, current, value[0])


def _values(log_probs: Tensor, sets: Tensor, mask: Tensor | None) -> Tensor:
    """Return (N,) the log-probabilities of label sets (N, C) of one bag."""
    repeated = log_probs.expand(len(sets), *log_probs.shape[1:])
    masks = None if mask is None else mask.expand(len(sets), *mask.shape[1:])
    return bag_log_prob(repeated, sets, masks, validate=False)


def _neighbours(current: Tensor) -> Tensor:
    """Return the sets (N, C) one addition, removal or swap away, none larger than EXACT_LABEL_LIMIT."""
    flips = current ^ torch.eye(len(current), dtype=torch.bool, device=current.device)
    inside, outside = torch.nonzero(current)[:, 0], torch.nonzero(~current)[:, 0]
    swaps = current.repeat(len(inside) * len(outside), 1)
    rows = torch.arange(len(swaps), device=current.device)
    swaps[rows, inside.repeat_interleave(len(outside))] = False
    swaps[rows, outside.repeat(len(inside))] = True
    sets = torch.cat([flips, swaps])
    return sets[sets.sum(dim=1) <= EXACT_LABEL_LIMIT]


def _top(sets: Tensor, value: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best different sets of (N, C), and their values of (N,), the best first."""
    unique, index = torch.unique(sets, dim=0, return_inverse=True)
    values = torch.full((len(unique),), -torch.inf, dtype=value.dtype, device=value.device)
    values = values.scatter_reduce(0, index, value, "amax")
    order = values.argsort(descending=True, stable=True)[:k]
    return unique[order], values[order]


def _excess(odds: Tensor, found: Tensor, value: Tensor) -> Tensor:
    """Return how much more the log-probability of another set can be, 0 where none can be better."""
    flip = torch.where(found, -odds, odds)
    some_class = torch.nn.functional.logsigmoid(flip).amax()
    others = torch.log1p(-value.exp().clamp(max=1.0))
    # Rounded outwards: the bound stays one in the type that the values came in.
    slack = 64 * torch.finfo(value.dtype).eps * (1 + value.abs())
    return (torch.minimum(some_class, others) - value + slack).clamp(min=0)
