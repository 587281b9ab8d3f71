"""The levels: sums over first occurrences, few operators for any number of positions, without a branch on values.

f_k(S) is the probability that the first k positions emit exactly the set S of required classes (and background). The
last class of S to occur for the first time, l, does so at some position j, and no new class occurs after it:

    f_k(S) = X_S(k) sum over j <= k, l in S of q_{l,j} f_{j-1}(S - l) / X_S(j),

where X_S(k) is the product of x_{S,i} = q_background,i + sum over l in S of q_{l,i} over the positions i <= k. All sets
of one size are computed together, by one cumulative sum over positions in logarithms: as many steps as there are
classes, however many positions.

The same states of the positions in reverse order, g_k(T), belong to the positions after k. With b_k(S) the sum of
g_k(T) over the sets T that hold all that S lacks, the posterior of class l at position k is q_{l,k} / R times the sum
over S of f_{k-1}(S) b_k(S with l). Both directions are computed in one batch.

Every term is positive, nothing underflows, and the error of a logarithm is a few roundings of numbers of its own size.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from milbench.likelihood.columns import FLOOR, IMPOSSIBLE, Columns

JOINT_LABELS = 6
"""The largest |L| for which the posteriors of all classes are computed at once; above it one class after the other."""


class Solution(NamedTuple):
    """The result.

    Attributes:
        ratio: (B,), log R; below IMPOSSIBLE where L cannot occur.
        background: (B, K), the posterior of background.
        required: (B, n, K), the posterior of each required class.
    """

    ratio: Tensor
    background: Tensor
    required: Tensor


class _Sets(NamedTuple):
    """The sets of n classes in the order of their sizes; a set's number has class i at bit i.

    Attributes:
        number: (2^n,) int64, each set's number.
        place: (2^n,) int64, the place in this order of the set with each number.
        counts: how many sets there are of each size.
        members: for each size, the members of every set, flat.
        without: for each size, where among the smaller sets those without each of these members are, flat.
        with_class: ((n + 1) 2^n,) int64, the number of each set, then that of each set with the first class, and so on.
    """

    number: Tensor
    place: Tensor
    counts: tuple[int, ...]
    members: tuple[Tensor, ...]
    without: tuple[Tensor, ...]
    with_class: Tensor


def solve(parts: Columns) -> Solution:
    """Return log R and the posterior of B bags with n slots.

    Memory: 8 bytes * B K 2^n, about 12 times, and for n <= JOINT_LABELS 2 (n + 1) times more.

    Args:
        parts: the columns of the bags.

    Returns:
        The logarithms (B,) and the posteriors; the posterior of a bag whose label set cannot occur is zero.
    """
    sets = _sets(parts)
    totals = _log_totals(parts, sets)
    beginning = torch.cat([_already(parts, sets), sets.place[:1].expand_as(parts.size)])  # backwards: the empty set
    both = _states(
        torch.cat([parts.required, parts.required.flip(-1)]), torch.cat([totals, totals.flip(-1)]), beginning, sets
    )
    forward, reverse = both.chunk(2)
    ratio = forward[:, -1, -1]
    meeting = _meeting(forward[..., :-1], reverse[..., :-1].flip(-1), sets)
    shares = torch.cat([parts.background.unsqueeze(1), parts.required], dim=1)
    posterior = (shares + meeting - ratio.view(-1, 1, 1)).exp()
    posterior = posterior.masked_fill((ratio < IMPOSSIBLE).view(-1, 1, 1), 0.0)
    return Solution(ratio, posterior[:, 0], posterior[:, 1:])


def log_ratio(parts: Columns) -> Tensor:
    """Return (B,), log R alone; below IMPOSSIBLE where L cannot occur."""
    sets = _sets(parts)
    states = _states(parts.required, _log_totals(parts, sets), _already(parts, sets), sets)
    return states[:, -1].select(-1, -1)


def _sets(parts: Columns) -> _Sets:
    slots, device = parts.required.shape[1], parts.required.device
    # What is made of fake tensors is not for later calls with others.
    return _kept(slots, device) if type(parts.required) is Tensor else _made(slots, device)


def _made(slots: int, device: torch.device) -> _Sets:
    """Return the sets of `slots` classes; computed on the device, so that the host does not wait for a copy."""
    held = torch.arange(2**slots, device=device).unsqueeze(1) >> torch.arange(slots, device=device) & 1
    number = held.sum(dim=1).argsort(stable=True)
    place = number.argsort()
    classes = held[number].argsort(dim=1, descending=True, stable=True)  # the members of each set first
    without = place[number.unsqueeze(1) ^ (1 << classes)]
    counts = [math.comb(slots, size) for size in range(slots + 1)]
    starts = [0, 0, *itertools.accumulate(counts)]  # where the sets begin that have one class less
    return _Sets(
        number,
        place,
        tuple(counts),
        tuple(rows[:, :size].flatten() for size, rows in enumerate(classes.split(counts))),
        tuple(rows[:, :size].flatten() - starts[size] for size, rows in enumerate(without.split(counts))),
        torch.cat([number, *(number | 1 << i for i in range(slots))]),
    )


_kept = cache(_made)


def _log_totals(parts: Columns, sets: _Sets) -> Tensor:
    """Return (B, 2^n, K), log x_{S,k}."""
    totals = parts.background.unsqueeze(1)
    for share in parts.required.split(1, dim=1):
        totals = torch.cat([totals, torch.logaddexp(totals, share)], dim=1)
    return totals.index_select(1, sets.number)


def _already(parts: Columns, sets: _Sets) -> Tensor:
    """Return (B,), the place of the set of the slots beyond |L|: they count as classes that have occurred before."""
    slots = parts.required.shape[1]
    return sets.place[2**slots - 2 ** parts.size.clamp(max=slots)]


def _states(required: Tensor, totals: Tensor, beginning: Tensor, sets: _Sets) -> Tensor:
    """Return (B, 2^n, K + 1), log f_k(S) for k from 0 to K.

    Args:
        required: (B, n, K), log q_{l,k}.
        totals: (B, 2^n, K), log x_{S,k}.
        beginning: (B,) int64, the place of the set with f_0(S) = 1; for all others it is 0.
        sets: the sets of n classes.
    """
    here = torch.arange(totals.shape[1], device=totals.device) == beginning.unsqueeze(1)
    first = torch.where(here, 0.0, FLOOR).to(totals).unsqueeze(-1).split(sets.counts, dim=1)
    scales = pad(totals.cumsum(dim=-1), (1, 0)).split(sets.counts, dim=1)
    levels: list[Tensor] = []
    for size, (scale, state) in enumerate(zip(scales, first, strict=True)):
        if size:
            before = levels[-1][..., :-1].index_select(1, sets.without[size])
            new = (required.index_select(1, sets.members[size]) + before).unflatten(1, (-1, size)).logsumexp(dim=2)
            state = torch.cat([state, new - scale[..., 1:]], dim=-1).logcumsumexp(dim=-1)  # noqa: PLW2901
        levels.append(state + scale)
    return torch.cat(levels, dim=1)


def _meeting(forward: Tensor, reverse: Tensor, sets: _Sets) -> Tensor:
    """Return (B, n + 1, K), the log of the sum over S of f_{k-1}(S) b_k(S with the class); background first."""
    slots = len(sets.counts) - 1
    # By the number of what a set lacks, one axis a class: a cumulative sum along an axis adds what has the class.
    rest = reverse.index_select(1, sets.place.flip(0)).unflatten(1, (2,) * slots) if slots else reverse
    for axis in range(slots):
        rest = rest.logcumsumexp(dim=1 + axis)
    rest = rest.reshape(reverse.shape)
    if slots > JOINT_LABELS:
        each = sets.with_class.split(2**slots)
        return torch.stack([(forward + rest.index_select(1, numbers)).logsumexp(dim=1) for numbers in each], dim=1)
    after = rest.index_select(1, sets.with_class).unflatten(1, (slots + 1, -1))
    return torch.logsumexp(forward.unsqueeze(1) + after, dim=2)
