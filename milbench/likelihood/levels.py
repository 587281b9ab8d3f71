"""Sums of positive terms, by the order in which classes occur for the first time.

f_k(S) is the probability that the first k positions emit exactly the classes S, apart from
background. The last class of S to occur for the first time, l, does so at some position j, and no
new class occurs after it:

    f_k(S) = X_S(k) sum over j <= k, l in S of q_{l,j} f_{j-1}(S - l) / X_S(j),

where X_S(k) is the product of x_{S,i} = q_background,i + sum over l in S of q_{l,i} over the
positions i <= k. The sets of one size form a level, which one cumulative sum over positions
computes from the level below: few operators, however many positions.

The states g_k(T) of the positions in reverse order belong to the positions after k. With b_k(S) the
sum of g_k(T) over the sets T that hold all that S lacks, the posterior of class l at position k is
q_{l,k} / R times the sum over S of f_{k-1}(S) b_k(S with l). Both directions run in one batch.

The sums are of probabilities (`Numbers`) or of their logarithms (`Logs`). States are at most 1, and
every factor that is applied to them is, so that underflows change R by less than 1e-290: an R above
SAFE_FROM_UNDERFLOW has all its digits. Logarithms are right for any R, without a look at it, and
take five to ten times as long on a CPU.
"""

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from milbench.contracts.autocast import tracing, transformed
from milbench.likelihood import columns, log_sums
from milbench.likelihood.columns import FLOOR, IMPOSSIBLE, Columns

SAFE_FROM_UNDERFLOW = 1e-200
"""No underflow matters to a probability above this."""
AT_ONCE = 1 << 17
"""The most states, B * K * 2^n, that a CPU computes at once: larger groups of bags leave its cache. A single bag with
more is computed in stretches of positions."""
AT_ONCE_ELSEWHERE = 1 << 27
"""The most states at once on accelerators: 1 GiB for each intermediate result."""


class Arithmetic(NamedTuple):
    """Operations on what stands for probabilities: they themselves, or their logarithms."""

    zero: float
    one: float
    of_log: Callable[[Tensor], Tensor]
    """From the logarithm of a probability to what stands for it."""
    log: Callable[[Tensor], Tensor]
    """From what stands for a probability to its logarithm."""
    exp: Callable[[Tensor], Tensor]
    """From what stands for a probability to the probability."""
    times: Callable[[Tensor, Tensor], Tensor]
    over: Callable[[Tensor, Tensor], Tensor]
    plus: Callable[[Tensor, Tensor], Tensor]
    total: Callable[[Tensor, int], Tensor]
    running_total: Callable[[Tensor, int], Tensor]
    running_product: Callable[[Tensor, int], Tensor]


def _unchanged(values: Tensor) -> Tensor:
    return values


def _running_product_of_numbers(values: Tensor, dim: int) -> Tensor:
    """Return the running product, positive where it underflows: it is divided by, and 0 / 0 stands for 0."""
    return values.cumprod(dim).clamp(min=torch.finfo(values.dtype).tiny)


Numbers = Arithmetic(
    zero=0.0,
    one=1.0,
    of_log=torch.exp,
    log=torch.log,
    exp=_unchanged,
    times=torch.mul,
    over=torch.div,
    plus=torch.add,
    total=torch.sum,
    running_total=torch.cumsum,
    running_product=_running_product_of_numbers,
)
Logs = Arithmetic(
    zero=FLOOR,
    one=0.0,
    of_log=_unchanged,
    log=_unchanged,
    exp=torch.exp,
    times=torch.add,
    over=torch.sub,
    plus=log_sums.add,
    total=log_sums.total,
    running_total=log_sums.running_total,
    running_product=torch.cumsum,
)


class _Sets(NamedTuple):
    """The sets of n classes in the order of their sizes; a set's number has class i at bit i."""

    number: Tensor
    """(2^n,) int64, each set's number."""
    place: Tensor
    """(2^n,) int64, the place in this order of the set with each number."""
    counts: tuple[int, ...]
    """How many sets there are of each size."""
    members: tuple[Tensor, ...]
    """For each size, the members of every set, flat."""
    without: tuple[Tensor, ...]
    """For each size, where among the sets of one class less those without each member are, flat."""


def solve_bags(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, posterior: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return log Prb (B,) and the posterior (B, C+1, K), both differentiable, in the working type.

    On the CPU, bags are grouped by |L|, and logarithms are taken only where numbers underflow.
    Elsewhere, and where a call is traced, no operation looks at a value: `slots` is an upper bound
    of |L|, and larger label sets give NaN.
    """
    reads_values = log_probs.device.type == "cpu" and not tracing()
    positions = math.prod(log_probs.shape[2:])
    values = []
    indices = []
    posteriors = []
    groups: list[tuple[Tensor | None, int]] = [(None, slots)]
    if reads_values:
        groups = _groups_by_size(labels, positions)
    for bags, size in groups:
        parts, indices_of_group = columns.required_columns(log_probs, mask, labels, size, bags)
        if reads_values:
            log_ratio, shares = _solve_with_fallback(parts, posterior=posterior)
        else:
            log_ratio, shares = solve(parts, posterior=posterior)
        value = columns.floor_to_infinity(parts.log_scale + log_ratio)
        value = value.masked_fill(parts.size > size, torch.nan)
        values.append(value)
        if shares is not None:
            is_impossible = (value == -torch.inf).unsqueeze(-1)
            indices.append(indices_of_group.flatten())
            posteriors.append(shares.masked_fill(is_impossible, 0.0).flatten(0, 1))
    value = torch.cat(values)
    if reads_values:
        order = torch.cat([bags for bags, _ in groups if bags is not None])
        value = value[order.argsort()]
    if not posterior:
        return value, None

    batch, channels = log_probs.shape[:2]
    every_column = torch.zeros(batch * channels, positions, dtype=value.dtype, device=value.device)
    # In place where that is possible: vmap does not write into tensors made inside.
    index_copy = torch.Tensor.index_copy_ if reads_values else torch.Tensor.index_copy
    filled = index_copy(every_column, 0, torch.cat(indices), torch.cat(posteriors))
    return value, filled.view(batch, channels, positions)


def _groups_by_size(labels: Tensor, positions: int) -> list[tuple[Tensor | None, int]]:
    """Return groups of bags, each with one size |L|: their indices (G,), and the size.

    A group has at most AT_ONCE states, or one bag.
    """
    most_states = AT_ONCE // max(1, positions)
    groups: list[tuple[Tensor | None, int]] = []
    for bags, size in columns.by_size(labels):
        bags_at_once = max(1, most_states >> size)
        groups += [(part, size) for part in bags.split(bags_at_once)]
    return groups


def _solve_with_fallback(parts: Columns, *, posterior: bool) -> tuple[Tensor, Tensor | None]:
    """Solve in numbers, and in logarithms for those bags where numbers underflow."""
    log_ratio, shares = solve(parts, Numbers, posterior=posterior)
    is_safe = log_ratio > math.log(SAFE_FROM_UNDERFLOW)
    if is_safe.all():
        return log_ratio, shares
    # What underflowed has no derivative: bags that did not are solved apart.
    in_numbers = is_safe.nonzero().squeeze(1)
    in_logs = (~is_safe).nonzero().squeeze(1)
    log_ratios = []
    posteriors = []
    for bags, arithmetic in ((in_numbers, Numbers), (in_logs, Logs)):
        if len(bags) == 0:
            continue
        log_ratio, shares = solve(parts.select(bags), arithmetic, posterior=posterior)
        log_ratios.append(log_ratio)
        if shares is not None:
            posteriors.append(shares)
    order = torch.cat([in_numbers, in_logs]).argsort()
    log_ratio = torch.cat(log_ratios)[order]
    if not posterior:
        return log_ratio, None
    return log_ratio, torch.cat(posteriors, dim=1)[:, order]


def solve(
    parts: Columns, arithmetic: Arithmetic = Logs, *, posterior: bool
) -> tuple[Tensor, Tensor | None]:
    """Return log R (B,) and the posterior (n+1, B, K) of each required class and, last, of background.

    log R is below IMPOSSIBLE where L cannot occur. Memory: 8 bytes * about 12 times B K 2^n, or
    AT_ONCE where that is less, and 8 bytes * B K 4^n / AT_ONCE.
    """
    num_bags = len(parts.size)
    slots = len(parts.shares) - 1
    sets = _sets(parts)
    stretches = _stretches(parts, arithmetic)
    # Slots beyond |L| count as classes that have occurred before.
    set_of_unused = 2**slots - 2 ** parts.size.clamp(max=slots)
    starts = [_certain_state(sets.place[set_of_unused], parts, arithmetic)]
    for stretch in stretches[:-1]:
        _, state = _states(stretch, starts[-1], sets, arithmetic)
        starts.append(state)
    if not posterior:
        _, state = _states(stretches[-1], starts[-1], sets, arithmetic)
        return arithmetic.log(state[-1]), None

    # In reverse order, nothing has occurred behind the last position.
    end = _certain_state(_place_of_empty_set(sets, parts), parts, arithmetic)
    # f_k(L) at the end of each stretch. The loop begins with the last one, at whose end this is R.
    full_states: list[Tensor] = []
    posteriors: list[Tensor] = []
    for shares, start in zip(reversed(stretches), reversed(starts), strict=True):
        both_shares = torch.cat([shares, shares.flip(-1)], dim=1)
        both_starts = torch.cat([start, end], dim=1)
        before, last = _states(both_shares, both_starts, sets, arithmetic)
        forward, reverse = before.chunk(2, dim=1)
        end = last[:, num_bags:]
        full_states.append(last[-1, :num_bags])
        ratio = full_states[0]
        completed = _completed(forward, reverse.flip(-1), sets, arithmetic)
        joint = arithmetic.times(shares, completed)
        posteriors.append(arithmetic.exp(arithmetic.over(joint, ratio.unsqueeze(-1))))
    log_ratio = arithmetic.log(full_states[0])
    is_impossible = (log_ratio < IMPOSSIBLE).unsqueeze(-1)
    in_order = torch.cat(posteriors[::-1], dim=-1)
    return log_ratio, in_order.masked_fill(is_impossible, 0.0)


def every_set(parts: Columns, arithmetic: Arithmetic) -> Tensor:
    """Return (B, 2^n), the log-probability of every set of classes under the shares; set s has class i at bit i."""
    sets = _sets(parts)
    state = _certain_state(_place_of_empty_set(sets, parts), parts, arithmetic)
    for stretch in _stretches(parts, arithmetic):
        _, state = _states(stretch, state, sets, arithmetic)
    return arithmetic.log(state.index_select(0, sets.place)).T


def _stretches(parts: Columns, arithmetic: Arithmetic) -> list[Tensor]:
    """Return the shares (n+1, B, T) of stretches of positions that are short enough to be computed at once."""
    channels, bags, positions = parts.shares.shape
    slots = channels - 1
    most_states = AT_ONCE if parts.shares.device.type == "cpu" else AT_ONCE_ELSEWHERE
    states_of_position = max(1, bags) << slots
    length = max(1, min(positions, most_states // states_of_position))
    return list(arithmetic.of_log(parts.shares).split(length, dim=-1))


def _place_of_empty_set(sets: _Sets, parts: Columns) -> Tensor:
    """Return (B,), the place of the empty set, whose number is 0, for every bag."""
    return sets.place[:1].expand_as(parts.size)


def _certain_state(place: Tensor, parts: Columns, arithmetic: Arithmetic) -> Tensor:
    """Return (2^n, B), states of probability 1 at a place (B,), and 0 elsewhere."""
    slots = len(parts.shares) - 1
    places = torch.arange(2**slots, device=place.device)
    nowhere = parts.shares.new_full((len(places), len(place)), arithmetic.zero)
    return nowhere.masked_fill(places.unsqueeze(1) == place, arithmetic.one)


def _states(
    shares: Tensor, start: Tensor, sets: _Sets, arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    """Return f_{k-1}(S), the states before each position (2^n, B, T), and those after the last one (2^n, B).

    `shares` (n+1, B, T) are those of each class and, last, of the background; `start` (2^n, B) is
    f_0(S).
    """
    *required, allowed = shares.split(1)
    # x_S at each position, by the number of S: each class doubles the sets.
    for share in required:
        allowed = torch.cat([allowed, arithmetic.plus(allowed, share)])
    # X_S(k), in the order of the sets.
    scales = arithmetic.running_product(allowed.index_select(0, sets.number), -1)
    scales_by_size = scales.split(sets.counts)
    starts_by_size = start.unsqueeze(-1).split(sets.counts)
    # Of the sets of one size: before the first position, and after each.
    states: list[Tensor] = []
    for size, (scale, first) in enumerate(zip(scales_by_size, starts_by_size, strict=True)):
        if size == 0:
            state = arithmetic.times(first, scale)
        else:
            # f_{j-1}(S - l), which q_{l,j} makes a state in which l has just occurred for the first
            # time.
            below = states[-1][..., :-1].index_select(0, sets.without[size])
            by_member = arithmetic.times(shares.index_select(0, sets.members[size]), below)
            completed_here = arithmetic.total(by_member.unflatten(0, (-1, size)), 1)
            scaled = arithmetic.over(completed_here, scale)
            completed_so_far = arithmetic.running_total(scaled, -1)
            state = arithmetic.times(arithmetic.plus(first, completed_so_far), scale)
        states.append(torch.cat([first, state], dim=-1))
    every = torch.cat(states)
    # A copy, since a view would keep the states of every stretch.
    last = every[..., -1].clone()
    return every[..., :-1], last


def _completed(before: Tensor, after: Tensor, sets: _Sets, arithmetic: Arithmetic) -> Tensor:
    """Return (n+1, B, T), the probability that L occurs if a position shows a class or, last, the background.

    `before` and `after` (2^n, B, T) are the states of the positions before and after each one.
    """
    slots = len(sets.counts) - 1
    bags_and_positions = before.shape[1:]
    # One axis a class, the first class last.
    axes = (2,) * slots + bags_and_positions
    before = before.index_select(0, sets.place).view(axes)
    # b_k(S): in reverse, the number of a set is that of what it lacks.
    after = after.index_select(0, sets.place.flip(0)).view(axes)
    # Whether a class that occurred before occurs again does not matter.
    for axis in range(slots):
        without, having = after.unbind(axis)
        after = torch.stack([without, arithmetic.plus(without, having)], dim=axis)
    sums = []
    for axis in reversed(range(slots)):
        # The class of this axis occurs at the position, whether it occurred before or not.
        before_either = arithmetic.plus(*before.unbind(axis))
        having = arithmetic.times(before_either, after.select(axis, 1))
        sums.append(arithmetic.total(having.view(2 ** (slots - 1), *bags_and_positions), 0))
    with_background = arithmetic.times(before, after).view(2**slots, *bags_and_positions)
    sums.append(arithmetic.total(with_background, 0))
    return torch.stack(sums)


def _sets(parts: Columns) -> _Sets:
    """Return the sets of the classes in the slots, on their device."""
    slots = len(parts.shares) - 1
    device = parts.shares.device
    # What is made of fake or wrapped tensors is not for later calls with others.
    is_fake = transformed() or type(parts.shares) is not Tensor
    if is_fake:
        return _build_sets(slots, device)
    return _cached_sets(slots, device)


def _build_sets(slots: int, device: torch.device) -> _Sets:
    """Return the sets of `slots` classes; computed on the device, so that the host does not wait for a copy."""
    membership = columns.membership(slots, device).long()
    number = membership.sum(dim=1).argsort(stable=True)
    place = number.argsort()
    members_first = membership[number].argsort(dim=1, descending=True, stable=True)
    without = place[number.unsqueeze(1) ^ (1 << members_first)]

    counts = [math.comb(slots, size) for size in range(slots + 1)]
    # For each size, where the sets of one class less begin.
    starts_below = [0, 0, *itertools.accumulate(counts)]
    members_by_size = []
    for size, members in enumerate(members_first.split(counts)):
        members_by_size.append(members[:, :size].flatten())
    without_by_size = []
    for size, places in enumerate(without.split(counts)):
        without_by_size.append(places[:, :size].flatten() - starts_below[size])
    return _Sets(number, place, tuple(counts), tuple(members_by_size), tuple(without_by_size))


_cached_sets = cache(_build_sets)
