"""The exact likelihood as sums of positive terms.

The terms are ordered by when classes occur for the first time. In this file q_{l,j} is the share of
class l at position j, which `milbench.likelihood.columns` defines, and R the probability that all
classes of the label set L occur.

Let f_k(S) be the probability that the first k positions emit exactly the classes S, apart from
background. Let l be the last class of S to occur for the first time, and j the position where it
does. No new class occurs after j. So

    f_k(S) = X_S(k) sum over j <= k, l in S of q_{l,j} f_{j-1}(S - l) / X_S(j),

where S - l is S without l, and X_S(k) is the product of x_{S,i} = q_background,i + sum over l in S
of q_{l,i} over the positions i <= k. The probabilities f_k(S) are called states. The sets S of one
size form a level. One cumulative sum over positions computes a level from the level below, so few
operators are needed, however many positions there are.

For the posterior, the same states g_k(T) are computed in reverse order, for the positions after k.
Let b_k(S) be the sum of g_k(T) over the sets T that contain all classes of L outside S. Then the
posterior of class l at position k is q_{l,k} / R times the sum over S of f_{k-1}(S) b_k(S with l).
Both directions run in one batch.

The sums are of probabilities (`Numbers`) or of their logarithms (`Logs`). With probabilities, all
states and all factors that are applied to them are at most 1, so that underflows change R by less
than 1e-290: an R above SAFE_FROM_UNDERFLOW has all its digits. Logarithms are right for any R, but
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
"""The digits of a probability above this are not changed by underflows."""
AT_ONCE = 1 << 17
"""The most states, B * K * 2^n, that a CPU computes at once.

The numbers of larger groups of bags would not fit into its cache. A single bag with more states is
computed in stretches of positions.
"""
AT_ONCE_ELSEWHERE = 1 << 27
"""The most states that an accelerator computes at once: 1 GiB for each intermediate result."""


class Arithmetic(NamedTuple):
    """Operations on representations of probabilities: the numbers themselves, or logarithms."""

    zero: float
    one: float
    of_log: Callable[[Tensor], Tensor]
    """From the logarithm of a probability to its representation."""
    log: Callable[[Tensor], Tensor]
    """From the representation of a probability to its logarithm."""
    exp: Callable[[Tensor], Tensor]
    """From the representation of a probability to the probability."""
    times: Callable[[Tensor, Tensor], Tensor]
    over: Callable[[Tensor, Tensor], Tensor]
    plus: Callable[[Tensor, Tensor], Tensor]
    total: Callable[[Tensor, int], Tensor]
    running_total: Callable[[Tensor, int], Tensor]
    running_product: Callable[[Tensor, int], Tensor]


def _unchanged(values: Tensor) -> Tensor:
    return values


def _running_product_of_numbers(values: Tensor, dim: int) -> Tensor:
    """Return the running product, at least the smallest positive number.

    Callers divide by the product. Where it underflows, 0 / 0 would be NaN instead of 0.
    """
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
    """The sets of n classes, sorted by their sizes.

    Each set has a number, in which bit i is 1 if the set contains class i.
    """

    number: Tensor
    """(2^n,) int64, the number of each set, in sorted order."""
    rank: Tensor
    """(2^n,) int64, the index in sorted order of the set with each number."""
    counts: tuple[int, ...]
    """How many sets there are of each size, from 0 to n."""
    members: tuple[Tensor, ...]
    """For each size, the members of every set, in one dimension."""
    without: tuple[Tensor, ...]
    """For each size and each entry of `members`, the set without this member.

    It is given as an index among the sets that have one class less.
    """


def solve_bags(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, posterior: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return log Prb (B,) and the posterior (B, C+1, K), both differentiable, in the working type.

    Without `posterior` the second result is None. On the CPU, bags are grouped by |L|, and
    logarithms are used only where numbers underflow. On other devices, and where a call is traced,
    no operation looks at a value: `slots` is an upper bound of |L|, and a bag with a larger label
    set gets NaN.
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
    # In place where possible. vmap cannot write into a tensor that was made inside it.
    index_copy = torch.Tensor.index_copy_ if reads_values else torch.Tensor.index_copy
    filled = index_copy(every_column, 0, torch.cat(indices), torch.cat(posteriors))
    return value, filled.view(batch, channels, positions)


def _groups_by_size(labels: Tensor, positions: int) -> list[tuple[Tensor | None, int]]:
    """Return groups of bags with one size |L|: the indices (G,) of the bags, and the size.

    A group has at most AT_ONCE states, or consists of one bag.
    """
    most_states = AT_ONCE // max(1, positions)
    groups: list[tuple[Tensor | None, int]] = []
    for bags, size in columns.by_size(labels):
        bags_at_once = max(1, most_states >> size)
        groups += [(part, size) for part in bags.split(bags_at_once)]
    return groups


def _solve_with_fallback(parts: Columns, *, posterior: bool) -> tuple[Tensor, Tensor | None]:
    """Return what `solve` does, by logarithms for bags where numbers underflow."""
    log_ratio, shares = solve(parts, Numbers, posterior=posterior)
    is_safe = log_ratio > math.log(SAFE_FROM_UNDERFLOW)
    if is_safe.all():
        return log_ratio, shares
    # An underflow gives no derivative. So the two kinds of bags are solved separately, and the
    # results above are dropped.
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
    """Return log R (B,) and the posterior (n+1, B, K) of the required classes and the background.

    The background is last. log R is below IMPOSSIBLE where L cannot occur. Memory: about 12 times 8
    bytes * B K 2^n, or * AT_ONCE where that is less, and 8 bytes * B K 4^n / AT_ONCE.
    """
    num_bags = len(parts.size)
    slots = len(parts.shares) - 1
    sets = _sets(parts)
    stretches = _stretches(parts, arithmetic)
    # Slots beyond |L| count as classes that have occurred before the first position.
    set_of_unused = 2**slots - 2 ** parts.size.clamp(max=slots)
    starts = [_certain_state(sets.rank[set_of_unused], parts, arithmetic)]
    for stretch in stretches[:-1]:
        _, state = _states(stretch, starts[-1], sets, arithmetic)
        starts.append(state)
    if not posterior:
        _, state = _states(stretches[-1], starts[-1], sets, arithmetic)
        return arithmetic.log(state[-1]), None

    # In reverse order, no class has occurred before the last position.
    end = _certain_state(_rank_of_empty_set(sets, parts), parts, arithmetic)
    # f_k(L) at the end of each stretch. The loop goes from the last stretch to the first, so the
    # first entry is R.
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
    """Return (B, 2^n), the log-probability of every set of classes under the shares.

    The sets are in the order of their numbers: set s contains class i if bit i of s is 1.
    """
    sets = _sets(parts)
    state = _certain_state(_rank_of_empty_set(sets, parts), parts, arithmetic)
    for stretch in _stretches(parts, arithmetic):
        _, state = _states(stretch, state, sets, arithmetic)
    return arithmetic.log(state.index_select(0, sets.rank)).T


def _stretches(parts: Columns, arithmetic: Arithmetic) -> list[Tensor]:
    """Return the shares of the positions, cut into stretches that are computed one after another.

    A stretch is (n+1, B, T), with T positions and about as many states as the device computes at
    once.
    """
    channels, bags, positions = parts.shares.shape
    slots = channels - 1
    most_states = AT_ONCE if parts.shares.device.type == "cpu" else AT_ONCE_ELSEWHERE
    states_of_position = max(1, bags) << slots
    length = max(1, min(positions, most_states // states_of_position))
    return list(arithmetic.of_log(parts.shares).split(length, dim=-1))


def _rank_of_empty_set(sets: _Sets, parts: Columns) -> Tensor:
    """Return (B,), the rank of the empty set, whose number is 0, once for every bag."""
    return sets.rank[:1].expand_as(parts.size)


def _certain_state(rank: Tensor, parts: Columns, arithmetic: Arithmetic) -> Tensor:
    """Return (2^n, B), states of probability 1 for the set of a rank (B,), and 0 for all others."""
    slots = len(parts.shares) - 1
    ranks = torch.arange(2**slots, device=rank.device)
    zeros = parts.shares.new_full((len(ranks), len(rank)), arithmetic.zero)
    return zeros.masked_fill(ranks.unsqueeze(1) == rank, arithmetic.one)


def _states(
    shares: Tensor, start: Tensor, sets: _Sets, arithmetic: Arithmetic
) -> tuple[Tensor, Tensor]:
    """Return the states before each position (2^n, B, T), and after the last position (2^n, B).

    The state before position k is f_{k-1}(S). `shares` (n+1, B, T) are the shares of the classes
    and, last, of the background. `start` (2^n, B) is f_0(S).
    """
    *required, allowed = shares.split(1)
    # x_S at each position, in the order of the numbers of S. Each class doubles the number of sets.
    for share in required:
        allowed = torch.cat([allowed, arithmetic.plus(allowed, share)])
    # X_S(k), in the sorted order of the sets.
    scales = arithmetic.running_product(allowed.index_select(0, sets.number), -1)
    scales_by_size = scales.split(sets.counts)
    starts_by_size = start.unsqueeze(-1).split(sets.counts)
    # For each size of sets, the states before the first position and after each position.
    states: list[Tensor] = []
    for size, (scale, first) in enumerate(zip(scales_by_size, starts_by_size, strict=True)):
        if size == 0:
            state = arithmetic.times(first, scale)
        else:
            # f_{j-1}(S - l). The product with q_{l,j} is the probability that l then occurs at
            # position j for the first time.
            below = states[-1][..., :-1].index_select(0, sets.without[size])
            by_member = arithmetic.times(shares.index_select(0, sets.members[size]), below)
            completed_here = arithmetic.total(by_member.unflatten(0, (-1, size)), 1)
            scaled = arithmetic.over(completed_here, scale)
            completed_so_far = arithmetic.running_total(scaled, -1)
            state = arithmetic.times(arithmetic.plus(first, completed_so_far), scale)
        states.append(torch.cat([first, state], dim=-1))
    every = torch.cat(states)
    # A copy, since a view would keep the states of the whole stretch in memory.
    last = every[..., -1].clone()
    return every[..., :-1], last


def _completed(before: Tensor, after: Tensor, sets: _Sets, arithmetic: Arithmetic) -> Tensor:
    """Return (n+1, B, T), the probability that all of L occurs, given what a position shows.

    Along the first dimension the position shows each class and, last, the background. `before` and
    `after` (2^n, B, T) are the states of the positions before and after each position.
    """
    slots = len(sets.counts) - 1
    bags_and_positions = before.shape[1:]
    # One axis for each class, with the index 1 if a set contains the class. Bit 0 of a set's number
    # changes fastest, so the first class has the last axis.
    axes = (2,) * slots + bags_and_positions
    before = before.index_select(0, sets.rank).view(axes)
    # The next steps turn `after` into b_k(S). In the reverse order of numbers, each set T is at the
    # number of its complement: along an axis, T contains the class at index 0 and lacks it at 1.
    after = after.index_select(0, sets.rank.flip(0)).view(axes)
    # A class outside S (index 0) must occur after the position. A class of S (index 1) may occur
    # there again, or not.
    for axis in range(slots):
        occurs_after, not_after = after.unbind(axis)
        after = torch.stack([occurs_after, arithmetic.plus(occurs_after, not_after)], dim=axis)
    sums = []
    for axis in reversed(range(slots)):
        # The class of this axis occurs at the position. Whether it occurred before does not matter.
        before_either = arithmetic.plus(*before.unbind(axis))
        with_class = arithmetic.times(before_either, after.select(axis, 1))
        sums.append(arithmetic.total(with_class.view(2 ** (slots - 1), *bags_and_positions), 0))
    with_background = arithmetic.times(before, after).view(2**slots, *bags_and_positions)
    sums.append(arithmetic.total(with_background, 0))
    return torch.stack(sums)


def _sets(parts: Columns) -> _Sets:
    """Return the sets of the classes in the slots, on the device of the shares."""
    slots = len(parts.shares) - 1
    device = parts.shares.device
    # Tensors that are made inside a transform, or beside fake tensors, must not be cached: later
    # calls could not use them.
    is_fake = transformed() or type(parts.shares) is not Tensor
    if is_fake:
        return _build_sets(slots, device)
    return _cached_sets(slots, device)


def _build_sets(slots: int, device: torch.device) -> _Sets:
    """Return the sets of `slots` classes.

    They are computed on the device, so that the host does not wait for a copy.
    """
    membership = columns.membership(slots, device).long()
    number = membership.sum(dim=1).argsort(stable=True)
    rank = number.argsort()
    # (2^n, n): the classes in each set, then those outside it.
    members_first = membership[number].argsort(dim=1, descending=True, stable=True)
    without = rank[number.unsqueeze(1) ^ (1 << members_first)]

    counts = [math.comb(slots, size) for size in range(slots + 1)]
    # For each size, the rank of the first set that has one class less. Size 0 has no such set.
    starts_below = [0, 0, *itertools.accumulate(counts)]
    members_by_size = []
    for size, members in enumerate(members_first.split(counts)):
        members_by_size.append(members[:, :size].flatten())
    without_by_size = []
    for size, ranks in enumerate(without.split(counts)):
        without_by_size.append(ranks[:, :size].flatten() - starts_below[size])
    return _Sets(number, rank, tuple(counts), tuple(members_by_size), tuple(without_by_size))


_cached_sets = cache(_build_sets)
