"""The scan: sums of positive terms on the CPU, not in logarithms; value and posterior together, underflow detected.

The sums are those of `tree`, arranged for few passes over memory. K positions are cut into M blocks of T, which
advance side by side: f'(S) = f(S) x_S + sum over l in S of q_l / c_l f(S - l), where x_S is q_background + sum over l
in S of q_l. Blocks are then merged by a tree of covering products. States are probabilities divided by the product of
c_l over S (c_l: the sum of the class's probabilities over positions, at most 1). As occurrences are negatively
associated, every state lies in [0, 1]: nothing overflows, and what underflows is below 1e-300 times the number of
terms. A root above CERTAIN has therefore lost no digit that matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.likelihood.columns import membership

CERTAIN = 1e-200
"""No underflow matters to a root above this; bags with a smaller root are computed in logarithms by the caller."""
SEGMENT = 1 << 21
"""The most numbers in one stored stretch of states (16 MiB): longer scans store the first state of every stretch, and
compute the others again in the backward pass."""
MANY_BLOCKS_LABELS = 7
"""The largest |L| for up to 64 blocks; above it a merge (3^n) is expensive, and there are at most eight."""
BLOCKED_LABELS = 12
"""The largest |L| for more than one block; above it a merge costs more than the scan of thousands of positions."""


@dataclass(frozen=True)
class Solution:
    """The result of a scan.

    Attributes:
        root: (G,), R / prod_l c_l.
        background: (G, K), the posterior of background, where it was requested.
        required: (G, n, K), the posterior of each required class, where it was requested.
    """

    root: Tensor
    background: Tensor | None = None
    required: Tensor | None = None


def block_count(positions: int, slots: int) -> int:
    """Return M, a power of two: about sixteen positions a block, fewer blocks where merging is expensive."""
    most = 8 if slots > MANY_BLOCKS_LABELS else 64
    return 1 if slots > BLOCKED_LABELS else min(most, 1 << max(0, (positions // 16).bit_length() - 1))


def numbers(positions: int, slots: int) -> int:
    """Return about how many numbers the scan of one bag needs at a time: its states, or the factors of its merges."""
    blocks = block_count(positions, slots)
    merged: int = blocks * 3**slots if blocks > 1 else 1
    return max(positions << slots, merged)


def solve(background: Tensor, required: Tensor, scale: Tensor, size: Tensor, *, posterior: bool) -> Solution:
    """Return R / prod_l c_l and the posterior of G bags.

    Memory: 8 bytes * (G K (4 n + 4) + min(5 * 2^n G K, 6 * SEGMENT + 4^n G^2 K / SEGMENT)).

    Args:
        background: (G, K), log of the background's share of each position.
        required: (G, n, K), log of each class's share.
        scale: (G, n), log c_l.
        size: (G,) int64, |L|: the first |L| of the n classes have to occur.
        posterior: whether the posterior is computed as well.

    Returns:
        The roots (G,) and, with `posterior`, the posterior of background (G, K) and of the classes (G, n, K).
    """
    steps = _Steps(background, required, scale)
    starts, stack = steps.forward()
    merges, nodes = _forward_merges(stack[-1].reshape(steps.states, steps.blocks, -1), steps.scale)
    full_set = 2**steps.slots - 2 ** (steps.slots - size)
    root = nodes[:, 0].gather(0, full_set.unsqueeze(0)).squeeze(0)
    if not posterior:
        return Solution(root)
    seed = torch.zeros_like(nodes)
    seed[:, 0].scatter_(0, full_set.unsqueeze(0), (1 / root.clamp(min=CERTAIN)).unsqueeze(0))
    for first, second in reversed(merges):
        seed = _merge_backward(seed, first, second, steps.scale)
    return Solution(root, *steps.backward(seed.reshape(steps.states, -1), starts, stack))


class _Steps:
    """The scan inside the blocks: N = M * G columns side by side, T steps, states (2^n, N)."""

    def __init__(self, background: Tensor, required: Tensor, scale: Tensor) -> None:
        self.bags, self.slots, self.positions = required.shape
        self.states = 2**self.slots
        self.blocks = block_count(self.positions, self.slots)
        self.steps = -(-self.positions // self.blocks)
        self.width = self.blocks * self.bags
        self.scale = scale.exp().T.contiguous()
        self.background = self._columns(background.exp().unsqueeze(1), 1.0).squeeze(1)
        self.required = self._columns(required.exp(), 0.0)
        self.first = self._columns((required - scale.unsqueeze(-1)).exp(), 0.0)
        self.stretch = max(1, min(self.steps, SEGMENT // (self.states * self.width)))

    def _columns(self, values: Tensor, neutral: float) -> Tensor:
        """Return (G, n, K) as (T, n, N), padded with positions that are background with probability 1."""
        missing = self.steps * self.blocks - self.positions
        values = torch.nn.functional.pad(values, (0, missing), value=neutral)
        values = values.reshape(self.bags, values.shape[1], self.blocks, self.steps)
        return values.permute(3, 1, 2, 0).reshape(self.steps, values.shape[1], self.width)

    def _positions(self, columns: Tensor) -> Tensor:
        """Return (T, n, N) as (G, n, K): the inverse of `_columns`."""
        values = columns.reshape(self.steps, -1, self.blocks, self.bags).permute(3, 1, 2, 0)
        return values.reshape(self.bags, -1, self.steps * self.blocks)[..., : self.positions]

    def _totals(self, begin: int, end: int) -> Tensor:
        """Return x_S for every set, (end - begin, 2^n, N)."""
        totals = self.background[begin:end].unsqueeze(1)
        for i in reversed(range(self.slots)):
            totals = torch.cat([totals, totals + self.required[begin:end, i : i + 1]], dim=1)
        return totals

    def _halves(self, stack: Tensor, i: int) -> Tensor:
        """View (T, 2^n, N) by class i: (T, 2^i, without and with it, 2^(n-1-i), N)."""
        return stack.view(stack.shape[0], 2**i, 2, -1, self.width)

    def _views(self, stack: Tensor) -> tuple[list[tuple[Tensor, ...]], list[tuple[Tensor, ...]], tuple[Tensor, ...]]:
        """Return views of (T, 2^n, N), one a step: for each class the sets without it and with it; all sets."""
        halves = [self._halves(stack, i) for i in range(self.slots)]
        return [h[:, :, 0].unbind(0) for h in halves], [h[:, :, 1].unbind(0) for h in halves], stack.unbind(0)

    def forward(self) -> tuple[list[Tensor], Tensor]:
        """Return the states before each stretch, and the states before and after every step of the last one."""
        starts, stack = [], self._start().unsqueeze(0)
        for begin in range(0, self.steps, self.stretch):
            starts.append(stack[-1].clone())  # a view would keep the whole stretch
            stack = self._stretch(starts[-1], begin)
        return starts, stack

    def last(self) -> Tensor:
        """Return (2^n, N), the states after all steps; no others are kept."""
        state = self._start()
        for begin in range(0, self.steps, self.stretch):
            state = self._stretch(state, begin)[-1].clone()
        return state

    def _start(self) -> Tensor:
        """Return (2^n, N), the states before the first step: nothing has occurred."""
        state = torch.zeros(self.states, self.width, dtype=self.background.dtype)
        state[0] = 1.0
        return state

    def _stretch(self, state: Tensor, begin: int) -> Tensor:
        """Return (steps + 1, 2^n, N): the states before and after every step from `begin` on."""
        end = min(self.steps, begin + self.stretch)
        stack = state.new_empty(end - begin + 1, self.states, self.width)
        stack[0] = state
        without, having, rows = self._views(stack)
        first = self.first[begin:end].reshape(-1, self.width).unbind(0)
        for t, totals in enumerate(self._totals(begin, end).unbind(0)):
            torch.mul(rows[t], totals, out=rows[t + 1])
            for i in range(self.slots):
                having[i][t + 1].addcmul_(without[i][t], first[t * self.slots + i])
        return stack

    def backward(self, seed: Tensor, starts: list[Tensor], stack: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior (G, K) of background and (G, n, K) of classes; `seed` (2^n, N): d log root / d state."""
        background = torch.empty_like(self.background)
        required = torch.empty_like(self.required)
        for begin in reversed(range(0, self.steps, self.stretch)):
            end = min(self.steps, begin + self.stretch)
            if end < self.steps:
                stack = self._stretch(starts[begin // self.stretch], begin)
            closing = self._closing(seed, begin, end)
            seed = closing[0]
            self._posterior(stack[:-1], closing[1:], slice(begin, end), background, required)
        return self._positions(background.unsqueeze(1)).squeeze(1), self._positions(required)

    def _closing(self, seed: Tensor, begin: int, end: int) -> Tensor:
        """Return (steps + 1, 2^n, N): the derivative of log root by each state before and after every step."""
        stack = seed.new_empty(end - begin + 1, self.states, self.width)
        stack[-1] = seed
        without, having, rows = self._views(stack)
        first = self.first[begin:end].reshape(-1, self.width).unbind(0)
        totals = self._totals(begin, end).unbind(0)
        for t in reversed(range(end - begin)):
            torch.mul(rows[t + 1], totals[t], out=rows[t])
            for i in range(self.slots):
                without[i][t].addcmul_(having[i][t + 1], first[t * self.slots + i])
        return stack

    def _posterior(self, before: Tensor, after: Tensor, at: slice, background: Tensor, required: Tensor) -> None:
        """Write the posterior of the steps `at`: background, a class that occurred before, or one that had not."""
        kept = before * after
        members = membership(self.slots)
        sums = (kept.squeeze(-1) @ members.T).unsqueeze(-1) if self.width == 1 else members @ kept
        torch.mul(self.background[at], sums[:, 0], out=background[at])
        half = torch.ones(1, max(1, self.states // 2), dtype=before.dtype)
        for i in range(self.slots):
            meeting = self._halves(before, i)[:, :, 0] * self._halves(after, i)[:, :, 1]
            new = (half @ meeting.reshape(len(before), -1, self.width)).squeeze(1)
            required[at, i] = self.required[at, i] * sums[:, i + 1] + self.first[at, i] * new


def _forward_merges(nodes: Tensor, scale: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Return the merge of nodes (2^n, M, G) into (2^n, 1, G), and the expanded factors of every product."""
    merges = []
    while nodes.shape[1] > 1:
        half = nodes.shape[1] // 2
        first = nodes[:, :half].index_select(0, _pattern(nodes.shape[0], (0, 0, 1)))
        second = _expand(nodes[:, half:], scale)
        merges.append((first, second))
        nodes = _collapse(first * second, nodes.shape[0])
    return merges, nodes


def _merge_backward(seed: Tensor, first: Tensor, second: Tensor, scale: Tensor) -> Tensor:
    """Return derivatives by the two factors, (2^n, 2M, G), from those by the products, `seed` (2^n, M, G)."""
    seed3 = seed.index_select(0, _pattern(seed.shape[0], (0, 1, 1)))
    return torch.cat([_gather_first(seed3 * second, seed.shape[0]), _gather_second(seed3 * first, scale)], dim=1)


def _pattern(states: int, thirds: tuple[int, int, int]) -> Tensor:
    """Return the 3^n rows that the three-way split selects from 2^n."""
    rows = torch.zeros(1, dtype=torch.int64)
    for _ in range(states.bit_length() - 1):
        rows = (2 * rows.unsqueeze(-1) + torch.tensor(thirds)).flatten()
    return rows


def _expand(g: Tensor, scale: Tensor) -> Tensor:
    """Return (g0, g1) as (g0, g1, g0 + c g1), class by class."""
    for i, c in enumerate(scale):
        halves = g.reshape(3**i, 2, -1, *g.shape[1:])
        thirds = halves.new_empty(3**i, 3, *halves.shape[2:])
        thirds[:, :2] = halves
        torch.addcmul(halves[:, 0], halves[:, 1], c, out=thirds[:, 2])
        g = thirds.view(-1, *g.shape[1:])
    return g


def _collapse(h: Tensor, states: int) -> Tensor:
    """Return (a, b, c) as (a, b + c), class by class; overwrites h."""
    for i in reversed(range(states.bit_length() - 1)):
        thirds = h.reshape(3**i, 3, -1, *h.shape[1:])
        thirds[:, 1] += thirds[:, 2]
        h = thirds[:, :2].reshape(-1, *h.shape[1:])
    return h


def _gather_first(seed: Tensor, states: int) -> Tensor:
    """Apply the transpose of the split of f into (f0, f0, f1); overwrites seed."""
    for i in reversed(range(states.bit_length() - 1)):
        thirds = seed.reshape(3**i, 3, -1, *seed.shape[1:])
        thirds[:, 1] += thirds[:, 0]
        seed = thirds[:, 1:].reshape(-1, *seed.shape[1:])
    return seed


def _gather_second(seed: Tensor, scale: Tensor) -> Tensor:
    """Apply the transpose of `_expand`; overwrites seed."""
    for i in reversed(range(len(scale))):
        thirds = seed.reshape(3**i, 3, -1, *seed.shape[1:])
        thirds[:, 0] += thirds[:, 2]
        thirds[:, 1].addcmul_(thirds[:, 2], scale[i])
        seed = thirds[:, :2].reshape(-1, *seed.shape[1:])
    return seed


def every_set(background: Tensor, required: Tensor, scale: Tensor) -> Tensor:
    """Return (G, 2^n), the probability of every set divided by the product of c_l over its classes.

    Arguments are logarithms as in `solve`; the first class is the highest bit of a set's number.

    Args:
        background: (G, K), log of the background's share of each position.
        required: (G, n, K), log of each class's share.
        scale: (G, n), log c_l.

    Returns:
        (G, 2^n), each entry in [0, 1]; column S is the set whose number in binary is S.
    """
    steps = _Steps(background, required, scale)
    _, nodes = _forward_merges(steps.last().reshape(steps.states, steps.blocks, -1), steps.scale)
    return nodes[:, 0].T
