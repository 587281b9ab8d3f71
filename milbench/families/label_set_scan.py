"""The posterior of instances where every label set has a weight of its own, by one scan over the positions and back."""

from __future__ import annotations

import torch
from torch import Tensor

NUMBERS = 1 << 22
"""At most about how many states of one group of bags are kept (32 MiB), unless one bag has more."""


def scan(probs: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over all label sets L of weight(L) Prb(L), and the parts of it by the class of each position.

    Forwards, state S is the probability that the positions so far have the label set S; backwards, it is the expected
    weight of what S and the positions that follow have. Terms are positive. One scan serves all label sets, in
    O(K C 2^C) a bag, where the posterior given each L would take K C 2^|L| for each. States may underflow: a sum above
    1e-200, with weights of at most 1, has lost no digit by it.

    Args:
        probs: (B, C+1, K) float64, the probability of each class at each position, background last.
        weight: (B, 2^C) float64, from 0 to 1, of set s, which contains class c where bit c of s is 1.

    Returns:
        The sum (B,), and (B, C+1, K), the sum over those assignments of classes to positions in which position k has
        class c; divided by the sum it is the posterior of the class.

    Examples:
        Two positions that show class 0 with probability 0.3, or background; the weight is 1 where the class occurs.

        >>> import torch
        >>> probs = torch.tensor([[0.3, 0.3], [0.7, 0.7]]).double().unsqueeze(0)
        >>> scan(probs, torch.tensor([[0.0, 1.0]]).double())  # 1 - 0.7^2, and 0.3 and 0.7 * 0.3
        (tensor([0.5100], dtype=torch.float64), tensor([[[0.3000, 0.3000],
                 [0.2100, 0.2100]]], dtype=torch.float64))
    """
    group = max(1, NUMBERS // (weight.shape[1] * probs.shape[2]))
    parts = [_scan(p, w) for p, w in zip(probs.split(group), weight.split(group), strict=True)]
    total, by_class = zip(*parts, strict=True)
    return torch.cat(total), torch.cat(by_class)


def _scan(probs: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    columns = probs.permute(2, 1, 0).contiguous()  # (K, C+1, B)
    forward = torch.zeros_like(weight.T, memory_format=torch.contiguous_format)
    forward[0] = 1
    before = []
    for column in columns:
        before.append(forward)
        after = forward * _within(column)
        for c, p in enumerate(column[:-1]):
            without, having = _halves(forward, c)[0], _halves(after, c)[1]
            having.add_(without * p)
        forward = after
    backward = weight.T.contiguous()
    total = (forward * backward).sum(dim=0)
    by_class = torch.empty_like(columns)
    for k in reversed(range(len(columns))):
        column, state = columns[k], before[k]
        by_class[k, -1] = column[-1] * (state * backward).sum(dim=0)
        after = backward * _within(column)
        for c, p in enumerate(column[:-1]):
            having = _halves(backward, c)[1]
            by_class[k, c] = p * (sum(_halves(state, c)) * having).sum(dim=(0, 1))
            _halves(after, c)[0].add_(having * p)
        backward = after
    return total, by_class.permute(2, 1, 0)


def _within(column: Tensor) -> Tensor:
    """Return (2^C, B), the probability of background or a class of each set, from that of each class (C+1, B)."""
    total = column[-1:]
    for p in column[:-1]:
        total = torch.cat([total, total + p])
    return total


def _halves(states: Tensor, c: int) -> tuple[Tensor, Tensor]:
    """Return views (2^(C-1-c), 2^c, B) of states (2^C, B): the sets without class c, and the same sets with it."""
    without, having = states.view(-1, 2, 2**c, states.shape[1]).unbind(dim=1)
    return without, having
