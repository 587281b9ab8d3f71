"""The alternating series of Li's Proposition 1, with a bound of its rounding error.

R = sum over T in L of (-1)^|T| A_T, where A_T is the probability that no class of T occurs, a product over positions of
y_{T,k} = q_background + sum over l in L - T of q_l. Every y is a sum of positive numbers and A_{} is exactly 1. The
error of the sum is therefore at most that of `rounding` times the sum of the other A_T: known once the sum is, small
where the classes are likely to occur, and far too large where the background dominates. The caller scans such bags.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milbench.likelihood.columns import Columns, membership

_RUN = 16
"""Positions that are multiplied before a logarithm is taken: where such a product underflows, A_T is 0 in float64."""


class Series(NamedTuple):
    """The sum of a series.

    Attributes:
        ratio: (G,), log R.
        error: (G,), a bound of the relative error of R.
        background: (G, K), the posterior of background, meaningful where it was requested.
        required: (G, n, K), the posterior of each required class, meaningful where it was requested.
    """

    ratio: Tensor
    error: Tensor
    background: Tensor
    required: Tensor


def solve(parts: Columns, *, posterior: bool) -> Series:
    """Return the sums of the series of G bags with n classes each. Peak memory: 8 bytes * 1.5 G K 2^n."""
    bags, slots, positions = parts.required.shape
    share = parts.required.exp().transpose(0, 1).contiguous()
    remaining = parts.background.exp().unsqueeze(0)
    sign = torch.ones(1, 1, dtype=remaining.dtype)
    for i in reversed(range(slots)):
        remaining = torch.cat([remaining + share[i], remaining])
        sign = torch.cat([sign, -sign])
    absent = product(remaining)
    absent[0] = 1.0
    root = (sign * absent).sum(dim=0)
    error = rounding(positions, slots) * absent[1:].sum(dim=0) / root.clamp(min=0)
    ratio = root.clamp(min=0).log()
    if not posterior:
        return Series(ratio, error.nan_to_num(torch.inf), parts.background, parts.required)
    weight = (sign * absent / root).unsqueeze(-1)
    tiny = torch.finfo(root.dtype).tiny
    weights = torch.div(weight, remaining.clamp_(min=tiny), out=remaining).reshape(2**slots, -1)
    sums = (_allowed(slots) @ weights).reshape(slots + 1, bags, positions)
    background = (parts.background.exp() * sums[0]).clamp_(min=0)  # rounding may leave -1e-16 instead of 0
    required = (share * sums[1:]).clamp_(min=0).transpose(0, 1)
    return Series(ratio, error.nan_to_num(torch.inf), background, required)


def rounding(positions: int, slots: int) -> float:
    """Return a bound of the relative error of A_T in float64.

    At each position, n + 1 shares with a rounding each are added in n roundings, and multiplied in one: half an eps
    each. The logarithms of runs of the product, the sum over sets and the division by it round some more.
    """
    return (positions * (slots + 2) / 2 + slots + _RUN) * torch.finfo(torch.float64).eps


def product(remaining: Tensor) -> Tensor:
    """Return (2^n, G), the product of (2^n, G, K) over positions."""
    whole = remaining.shape[-1] // _RUN * _RUN
    runs = remaining[..., :whole].reshape(*remaining.shape[:-1], _RUN, -1)
    while runs.shape[-2] > 1:
        half = runs.shape[-2] // 2
        runs = runs[..., :half, :] * runs[..., half:, :]
    total = runs.squeeze(-2).log().sum(dim=-1) + remaining[..., whole:].log().sum(dim=-1)
    return total.exp()


def _allowed(slots: int) -> Tensor:
    """Return (n+1, 2^n): a row of ones for the background, then for each class 1 where the set T lacks it."""
    allowed = membership(slots)
    allowed[1:] = 1 - allowed[1:]
    return allowed
