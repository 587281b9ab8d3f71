"""The most probable label set: by listing all of them, or by a search that says how far off it can be."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks
from milbench.likelihood.distribution import label_set_distribution
from milbench.likelihood.exact import EXACT_LABEL_LIMIT, bag_log_prob
from milbench.likelihood.presence import presence_log_odds

LISTED_CLASSES = 12
"""Up to here all 2^C label sets are listed."""


class BestLabelSets(NamedTuple):
    """labels: (B, k, C) bool, best first; log_prob: (B, k); excess: (B,), no set's log-probability exceeds
    log_prob[:, 0] + excess. Listed sets have excess 0.
    """  # noqa: D205

    labels: Tensor
    log_prob: Tensor
    excess: Tensor


def best_label_set(
    log_probs: Tensor, mask: Tensor | None = None, k: int = 1, *, validate: bool | None = None
) -> BestLabelSets:
    """Return the k most probable label sets of every bag, with their log-probabilities in nats.

    Exact for up to LISTED_CLASSES classes. Beyond, the search starts from the classes that are more likely present
    than not (at most EXACT_LABEL_LIMIT), and adds, removes or swaps one class while that helps, judged by the exact
    likelihood; the k best sets it met are returned. Any other set differs from the one found, L, in some class, so
    its probability is at most 1 - Prb(L) and at most the largest probability that some class of L is absent or some
    other present; `excess` holds the smaller bound's distance.

    Memory: as `label_set_distribution`, or as `bag_log_prob` for one bag repeated up to C^2 / 4 times.

    Raises:
        UsageError: k below 1 or above the number of sets, and bad input as in `bag_log_prob`.
    """
    checks.check_log_probs(log_probs, mask, validate)
    classes = log_probs.shape[1] - 1
    if k < 1 or (classes <= LISTED_CLASSES and k > 2**classes):
        raise UsageError(f"k must be from 1 to 2^C = {2**classes} for log_probs {tuple(log_probs.shape)}, got {k}")
    log_probs = log_probs.detach()
    if classes <= LISTED_CLASSES:
        table = label_set_distribution(log_probs, mask, validate=False)
        value, index = table.topk(k, dim=1)
        bits = torch.arange(classes, device=index.device)
        return BestLabelSets((index.unsqueeze(-1) >> bits & 1).bool(), value, torch.zeros_like(value[:, 0]))
    found = [_search(log_probs[i : i + 1], None if mask is None else mask[i : i + 1], k) for i in range(len(log_probs))]
    return BestLabelSets(*(torch.stack(field) for field in zip(*found, strict=True)))


def _search(log_probs: Tensor, mask: Tensor | None, k: int) -> tuple[Tensor, Tensor, Tensor]:
    odds = presence_log_odds(log_probs, mask, validate=False)[0]
    likely = odds.topk(min(EXACT_LABEL_LIMIT, len(odds))).indices
    current = torch.zeros_like(odds, dtype=torch.bool)
    current[likely] = odds[likely] > 0
    met = current.unsqueeze(0)
    value = _values(log_probs, met, mask)
    while True:
        around = _neighbours(current)
        around_value = _values(log_probs, around, mask)
        met, value = _best(torch.cat([met, around]), torch.cat([value, around_value]), max(k, 1))
        if torch.equal(met[0], current):
            break
        current = met[0].clone()
    if len(met) < k:
        raise UsageError(f"k = {k} is more than the {len(met)} label sets that the search met")
    return met, value, _excess(odds, current, value[0])


def _values(log_probs: Tensor, sets: Tensor, mask: Tensor | None) -> Tensor:
    many = log_probs.expand(len(sets), *log_probs.shape[1:])
    masks = None if mask is None else mask.expand(len(sets), *mask.shape[1:])
    return bag_log_prob(many, sets, masks, validate=False)


def _neighbours(current: Tensor) -> Tensor:
    """Return the sets one addition, removal or swap away, none larger than can be summed."""
    flips = current ^ torch.eye(len(current), dtype=torch.bool, device=current.device)
    inside, outside = torch.nonzero(current)[:, 0], torch.nonzero(~current)[:, 0]
    swaps = current.repeat(len(inside) * len(outside), 1)
    rows = torch.arange(len(swaps), device=current.device)
    swaps[rows, inside.repeat_interleave(len(outside))] = False
    swaps[rows, outside.repeat(len(inside))] = True
    sets = torch.cat([flips, swaps])
    return sets[sets.sum(dim=1) <= EXACT_LABEL_LIMIT]


def _best(sets: Tensor, value: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best different sets."""
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
