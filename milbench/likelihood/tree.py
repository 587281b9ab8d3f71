"""The tree: sums of positive terms in logarithms, over a balanced tree of positions, without a branch on values.

A node contains, for every set S of required classes, the log-probability that its positions emit exactly S. Two
neighbours merge by the covering product h(S) = sum over A u B = S of f(A) g(B). Split by one class,
h0 = f0 g0 and h1 = f0 g1 + f1 (g0 + g1): three products of half the size and no subtraction, 3^n in all.

Sets are scaled by their classes: f(S) stands for f(S) / prod_{l in S} c_l, with c_l the sum of the class's
probabilities over positions (at most 1), so that rare classes keep all their digits; then
h1 = f0 g1 + f1 (g0 + c g1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.likelihood.columns import FLOOR, IMPOSSIBLE, Columns

MERGED_LABELS = 6
"""The largest |L| for which single positions are merged; above it a merge (3^n) costs more than a scan."""
BLOCKS = 16
"""The number of blocks of positions that are scanned side by side for label sets above MERGED_LABELS."""


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """Return log(exp a + exp b), with correct first and second derivatives also where a = b or one is FLOOR.

    expm1(high - top) is 0 with derivative 1: a small addend is not rounded away against 1, and ties are smooth.
    """
    larger = a >= b
    high, low = torch.where(larger, a, b), torch.where(larger, b, a)
    top = high.detach()
    return top + torch.log1p(torch.expm1(high - top) + torch.exp(low - top))


def log_ratio(columns: Columns) -> Tensor:
    """Return (B,), log R; below IMPOSSIBLE where L cannot occur.

    Numbers stored for the backward pass: about 8 B K 3^n up to MERGED_LABELS classes, 4 n B K 2^n above.
    """
    if columns.background.shape[-1] == 0:
        return torch.where(columns.size == 0, 0.0, FLOOR).to(columns.background)
    scale = label_scale(columns.required)
    nodes = _blocks(columns, scale) if columns.required.shape[1] > MERGED_LABELS else _leaves(columns, scale)
    while nodes.shape[-1] > 1:
        if nodes.shape[-1] % 2:
            nodes = torch.cat([nodes, _nothing(nodes)], dim=-1)
        nodes = _merge(nodes[..., 0::2], nodes[..., 1::2], scale)
    slots = columns.required.shape[1]
    position = torch.arange(2**slots, device=nodes.device)
    full_set = 2**slots - 2 ** (slots - columns.size.clamp(max=slots))
    root = torch.where(position == full_set.unsqueeze(-1), nodes[..., 0], torch.zeros_like(nodes[..., 0])).sum(dim=-1)
    return root + scale.sum(dim=-1)


def label_scale(required: Tensor) -> Tensor:
    """Return (B, n), log c_l = log min(1, sum of the class's probabilities), 0 for impossible classes; no gradient."""
    if required.shape[-1] == 0:
        return required.new_zeros(required.shape[:2])
    total = torch.logsumexp(required.detach(), dim=-1).clamp(max=0.0)
    return torch.where(total < IMPOSSIBLE, torch.zeros_like(total), total)


def _leaves(columns: Columns, scale: Tensor) -> Tensor:
    """Return (B, 2^n, K), one node a position, which emits background or one class."""
    background, required = columns.background, columns.required - scale.unsqueeze(-1)
    slots = required.shape[1]
    empty = torch.full_like(background, FLOOR)
    rows = [empty] * 2**slots
    rows[0] = background
    for i in range(slots):
        rows[2 ** (slots - 1 - i)] = required[:, i]
    return torch.stack(rows, dim=1)


def _blocks(columns: Columns, scale: Tensor) -> Tensor:
    """Return (B, 2^n, M), one node a block, whose positions are scanned because merging them one by one costs more."""
    slots, positions = columns.required.shape[1:]
    length = -(-positions // min(positions, BLOCKS))
    pad = (0, -positions % length)
    background = torch.nn.functional.pad(columns.background, pad, value=0.0).unflatten(-1, (-1, length))
    required = torch.nn.functional.pad(columns.required, pad, value=FLOOR).unflatten(-1, (-1, length))
    nodes = _nothing(background.new_empty(len(background), 2**slots, 1)).expand(-1, -1, background.shape[1])
    for t in range(length):
        total = background[..., t].unsqueeze(1)
        for i in reversed(range(slots)):
            total = torch.cat([total, log_add(total, required[:, i : i + 1, :, t])], dim=1)
        after = nodes + total
        for i in range(slots):
            shape = (len(nodes), 2**i, 2, -1, nodes.shape[-1])
            first = (required[:, i, :, t] - scale[:, i : i + 1]).reshape(-1, 1, 1, nodes.shape[-1])
            without, having = after.reshape(shape).unbind(2)
            having = log_add(having, nodes.reshape(shape)[:, :, 0] + first)
            after = torch.stack([without, having], dim=2).reshape_as(nodes)
        nodes = after.clamp(min=FLOOR * 1e6)
    return nodes


def _nothing(nodes: Tensor) -> Tensor:
    """Return (B, 2^n, 1), a node without positions."""
    rows = torch.arange(nodes.shape[1], device=nodes.device).unsqueeze(-1)
    return torch.where(rows == 0, torch.zeros_like(nodes[..., :1]), torch.full_like(nodes[..., :1], FLOOR))


def _merge(f: Tensor, g: Tensor, scale: Tensor) -> Tensor:
    """Return the covering product of two rows of nodes, each (B, 2^n, M)."""
    batch, states, width = f.shape
    slots = states.bit_length() - 1
    for i in range(slots):
        shape = (batch, 3**i, 2, -1, width)
        f0, f1 = f.reshape(shape).unbind(2)
        g0, g1 = g.reshape(shape).unbind(2)
        f = torch.stack([f0, f0, f1], dim=2)
        g = torch.stack([g0, g1, log_add(g0, g1 + scale[:, i].reshape(-1, 1, 1, 1))], dim=2)
    product = f.reshape(batch, -1, width) + g.reshape(batch, -1, width)
    for i in reversed(range(slots)):
        absent, second, first = product.reshape(batch, 3**i, 3, -1, width).unbind(2)
        product = torch.stack([absent, log_add(second, first)], dim=2)
    return product.reshape(batch, states, width).clamp(min=FLOOR * 1e6)
