"""Sums of positive terms, by the order in which classes occur for the first time.

f_k(S) is the probability that the first k positions emit exactly the classes S, apart from background. The last class
of S to occur for the first time, l, does so at some position j, and no new class occurs after it:

    f_k(S) = X_S(k) sum over j <= k, l in S of q_{l,j} f_{j-1}(S - l) / X_S(j),

where X_S(k) is the product of x_{S,i} = q_background,i + sum over l in S of q_{l,i} over the positions i <= k. The sets
of one size form a level, which one cumulative sum over positions computes from the level below: few operators, however
many positions.

The states g_k(T) of the positions in reverse order belong to the positions after k. With b_k(S) the sum of g_k(T) over
the sets T that hold all that S lacks, the posterior of class l at position k is q_{l,k} / R times the sum over S of
f_{k-1}(S) b_k(S with l). Both directions run in one batch.

The sums are of probabilities (`Numbers`) or of their logarithms (`Logs`). States are at most 1, and every factor that
is applied to them is, so that underflows change R by less than 1e-290: an R above CERTAIN has all its digits.
Logarithms are right for any R, without a look at it, and take five to ten times as long on a CPU.
"""

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from milbench.contracts.autocast import transformed
from milbench.likelihood import argument_checks, columns, log_sums
from milbench.likelihood.columns import FLOOR, IMPOSSIBLE, Columns

CERTAIN = 1e-200  # no underflow matters to a probability above this
AT_ONCE = 1 << 17
"""The most states, B * K * 2^n, that a CPU computes at once: larger groups of bags leave its cache. A single bag with
more is computed in stretches of positions."""
AT_ONCE_ELSEWHERE = (
    1 << 27
)  # the most states at once on accelerators: 1 GiB for each intermediate result


class Arithmetic(NamedTuple):
    """Operations on probabilities, or on logarithms that stand for them."""

    zero: float
    one: float
    of_log: Callable[[Tensor], Tensor]
    log: Callable[[Tensor], Tensor]
    exp: Callable[[Tensor], Tensor]  # from what stands for a probability to the probability
    times: Callable[[Tensor, Tensor], Tensor]
    over: Callable[[Tensor, Tensor], Tensor]
    plus: Callable[[Tensor, Tensor], Tensor]
    total: Callable[[Tensor, int], Tensor]
    running_total: Callable[[Tensor, int], Tensor]
    running_product: Callable[[Tensor, int], Tensor]


Numbers = Arithmetic(
    0.0, 1.0, torch.exp, torch.log, lambda prob: prob,
    torch.mul, torch.div, torch.add, torch.sum, torch.cumsum,
    lambda values, dim: values.cumprod(dim).clamp(min=torch.finfo(values.dtype).tiny),  # it divides; 0 / 0 stands for 0
)  # fmt: skip
Logs = Arithmetic(
    FLOOR, 0.0, lambda log_prob: log_prob, lambda log_prob: log_prob, torch.exp,
    torch.add, torch.sub, log_sums.add, log_sums.total, log_sums.running_total, torch.cumsum,
)  # fmt: skip


class _Sets(NamedTuple):
    """The sets of n classes in the order of their sizes; a set's number has class i at bit i."""

    number: Tensor  # (2^n,) int64, each set's number
    place: Tensor  # (2^n,) int64, the place in this order of the set with each number
    counts: tuple[int, ...]  # how many sets there are of each size
    members: tuple[Tensor, ...]  # for each size, the members of every set, flat
    without: tuple[
        Tensor, ...
    ]  # for each size, where among the smaller sets those without each member are, flat


def solve_bags(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, posterior: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return log Prb (B,) and the posterior (B, C+1, K), both differentiable, in the working type.

    On the CPU, bags are grouped by |L|, and logarithms are taken only where numbers underflow. Elsewhere, and where a
    call is traced, no operation looks at a value: `slots` is an upper bound of |L|, and larger label sets give NaN.
    """
    reads_values = log_probs.device.type == "cpu" and not argument_checks.tracing()
    positions = math.prod(log_probs.shape[2:])
    groups: list[tuple[Tensor | None, int]] = [(None, slots)]
    if reads_values:  # within AT_ONCE
        most = AT_ONCE // max(1, positions)
        groups = [
            (part, size)
            for bags, size in columns.by_size(labels)
            for part in bags.split(max(1, most >> size))
        ]
    values, rows, posteriors = [], [], []
    for bags, size in groups:
        parts, rows_of_parts = columns.select(log_probs, mask, labels, size, bags)
        ratio, shares = (_solve_with_fallback if reads_values else solve)(
            parts, posterior=posterior
        )
        value = columns.floor_to_infinity(parts.log_scale + ratio).masked_fill(
            parts.size > size, torch.nan
        )
        values.append(value)
        if shares is not None:
            rows.append(rows_of_parts.flatten())
            posteriors.append(
                shares.masked_fill((value == -torch.inf).unsqueeze(-1), 0.0).flatten(0, 1)
            )
    value = torch.cat(values)
    if reads_values:
        value = value[torch.cat([bags for bags, _ in groups if bags is not None]).argsort()]
    if not posterior:
        return value, None
    dense = torch.zeros(
        log_probs.shape[0] * log_probs.shape[1], positions, dtype=value.dtype, device=value.device
    )
    fill = (
        torch.Tensor.index_copy_ if reads_values else torch.Tensor.index_copy
    )  # vmap writes into nothing else
    return value, fill(dense, 0, torch.cat(rows), torch.cat(posteriors)).view(
        *log_probs.shape[:2], positions
    )


def _solve_with_fallback(parts: Columns, *, posterior: bool) -> tuple[Tensor, Tensor | None]:
    """Solve in numbers, and in logarithms for those bags where numbers underflow."""
    ratio, shares = solve(parts, Numbers, posterior=posterior)
    certain = ratio > math.log(CERTAIN)
    if certain.all():
        return ratio, shares
    # What underflowed has no derivative: bags that did not are solved apart.
    groups = certain.nonzero().squeeze(1), (~certain).nonzero().squeeze(1)
    pairs = zip(groups, (Numbers, Logs), strict=True)
    results = [
        solve(parts.select(bags), arithmetic, posterior=posterior)
        for bags, arithmetic in pairs
        if len(bags)
    ]
    ratios, posteriors = zip(*results, strict=True)
    order = torch.cat(groups).argsort()
    return torch.cat(ratios)[order], torch.cat(posteriors, dim=1)[:, order] if posterior else None


def solve(
    parts: Columns, arithmetic: Arithmetic = Logs, *, posterior: bool
) -> tuple[Tensor, Tensor | None]:
    """Return log R (B,) and the posterior (n+1, B, K) of each required class and, last, of background.

    log R is below IMPOSSIBLE where L cannot occur. Memory: 8 bytes * about 12 times B K 2^n, or AT_ONCE where that is
    less, and 8 bytes * B K 4^n / AT_ONCE.
    """
    slots, sets = len(parts.shares) - 1, _sets(parts)
    stretches = _stretches(parts, arithmetic)
    # Slots beyond |L| count as classes that have occurred before.
    starts = [_only(sets.place[2**slots - 2 ** parts.size.clamp(max=slots)], parts, arithmetic)]
    for stretch in stretches[:-1]:
        starts.append(_states(stretch, starts[-1], sets, arithmetic)[1])
    if not posterior:
        return arithmetic.log(_states(stretches[-1], starts[-1], sets, arithmetic)[1][-1]), None
    end = _only(
        sets.place[:1].expand_as(parts.size), parts, arithmetic
    )  # backwards: nothing has occurred
    roots: list[Tensor] = []
    posteriors: list[Tensor] = []
    for shares, start in zip(reversed(stretches), reversed(starts), strict=True):
        both_ways = torch.cat([shares, shares.flip(-1)], dim=1), torch.cat([start, end], dim=1)
        before, after = _states(*both_ways, sets, arithmetic)
        forward, reverse = before.chunk(2, dim=1)
        end = after[:, len(parts.size) :]
        roots.append(
            after[-1, : len(parts.size)]
        )  # first of the last stretch, whose states are those of all positions
        joint = arithmetic.times(shares, _completed(forward, reverse.flip(-1), sets, arithmetic))
        posteriors.append(arithmetic.exp(arithmetic.over(joint, roots[0].unsqueeze(-1))))
    ratio = arithmetic.log(roots[0])
    impossible = (ratio < IMPOSSIBLE).unsqueeze(-1)
    return ratio, torch.cat(posteriors[::-1], dim=-1).masked_fill(impossible, 0.0)


def every_set(parts: Columns, arithmetic: Arithmetic) -> Tensor:
    """Return (B, 2^n), the log-probability of every set of classes under the shares; set s has class i at bit i."""
    sets = _sets(parts)
    state = _only(sets.place[:1].expand_as(parts.size), parts, arithmetic)
    for stretch in _stretches(parts, arithmetic):
        _, state = _states(stretch, state, sets, arithmetic)
    return arithmetic.log(state.index_select(0, sets.place)).T


def _stretches(parts: Columns, arithmetic: Arithmetic) -> list[Tensor]:
    """Return the shares (n+1, B, T) of stretches of positions that are short enough to be computed at once."""
    slots, (bags, positions) = len(parts.shares) - 1, parts.shares.shape[1:]
    most = AT_ONCE if parts.shares.device.type == "cpu" else AT_ONCE_ELSEWHERE
    length = max(1, min(positions, most // (max(1, bags) << slots)))
    return list(arithmetic.of_log(parts.shares).split(length, dim=-1))


def _only(place: Tensor, parts: Columns, arithmetic: Arithmetic) -> Tensor:
    """Return (2^n, B), states of probability 1 at a place (B,), and 0 elsewhere."""
    places = torch.arange(2 ** (len(parts.shares) - 1), device=place.device)
    nowhere = parts.shares.new_full((len(places), len(place)), arithmetic.zero)
    return nowhere.masked_fill(places.unsqueeze(1) == place, arithmetic.one)


def _states(
    shares: Tensor, start: Tensor, sets: _Sets, arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    """Return f_{k-1}(S), the states before each position (2^n, B, T), and those after the last one (2^n, B).

    `shares` (n+1, B, T) are those of each class and, last, of the background; `start` (2^n, B) is f_0(S).
    """
    *required, allowed = shares.split(1)
    for share in required:
        allowed = torch.cat([allowed, arithmetic.plus(allowed, share)])
    scales = arithmetic.running_product(allowed.index_select(0, sets.number), -1).split(sets.counts)
    firsts = start.unsqueeze(-1).split(sets.counts)
    states: list[Tensor] = []  # of the sets of one size: before the first position, and after each
    for size, (scale, first) in enumerate(zip(scales, firsts, strict=True)):
        if size:
            below = states[-1][..., :-1].index_select(0, sets.without[size])
            new = arithmetic.times(shares.index_select(0, sets.members[size]), below).unflatten(
                0, (-1, size)
            )
            new = arithmetic.over(arithmetic.total(new, 1), scale)
            state = arithmetic.times(
                arithmetic.plus(first, arithmetic.running_total(new, -1)), scale
            )
        else:
            state = arithmetic.times(first, scale)
        states.append(torch.cat([first, state], dim=-1))
    every = torch.cat(states)
    return every[..., :-1], every[
        ..., -1
    ].clone()  # not a view, which would keep the states of every stretch


def _completed(before: Tensor, after: Tensor, sets: _Sets, arithmetic: Arithmetic) -> Tensor:
    """Return (n+1, B, T), the probability that L occurs if a position shows a class or, last, the background.

    `before` and `after` (2^n, B, T) are the states of the positions before and after each one.
    """
    slots = len(sets.counts) - 1
    axes = (2,) * slots + before.shape[1:]  # one a class, the first class last
    before = before.index_select(0, sets.place).view(axes)
    after = after.index_select(0, sets.place.flip(0)).view(axes)  # by what a set lacks
    for axis in range(slots):  # whether a class that occurred before occurs again does not matter
        without, having = after.unbind(axis)
        after = torch.stack([without, arithmetic.plus(without, having)], dim=axis)
    sums = []
    for axis in reversed(range(slots)):
        having = arithmetic.times(arithmetic.plus(*before.unbind(axis)), after.select(axis, 1))
        sums.append(arithmetic.total(having.view(2 ** (slots - 1), *axes[-2:]), 0))
    return torch.stack(
        [*sums, arithmetic.total(arithmetic.times(before, after).view(2**slots, *axes[-2:]), 0)]
    )


def _sets(parts: Columns) -> _Sets:
    slots, device = len(parts.shares) - 1, parts.shares.device
    # What is made of fake or wrapped tensors is not for later calls with others.
    fake = transformed() or type(parts.shares) is not Tensor
    return (_build_sets if fake else _cached_sets)(slots, device)


def _build_sets(slots: int, device: torch.device) -> _Sets:
    """Return the sets of `slots` classes; computed on the device, so that the host does not wait for a copy."""
    contains = columns.contains(slots, device).long()
    number = contains.sum(dim=1).argsort(stable=True)
    place = number.argsort()
    classes = contains[number].argsort(
        dim=1, descending=True, stable=True
    )  # the members of each set first
    without = place[number.unsqueeze(1) ^ (1 << classes)]
    counts = [math.comb(slots, size) for size in range(slots + 1)]
    starts = [0, 0, *itertools.accumulate(counts)]  # where the sets begin that have one class less
    return _Sets(
        number,
        place,
        tuple(counts),
        tuple(rows[:, :size].flatten() for size, rows in enumerate(classes.split(counts))),
        tuple(
            rows[:, :size].flatten() - starts[size]
            for size, rows in enumerate(without.split(counts))
        ),
    )


_cached_sets = cache(_build_sets)
