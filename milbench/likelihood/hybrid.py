"""Large label sets: a pruned alternating series over the likely classes, with the other classes summed in each term.

L is split into its likeliest classes U and the others V. R = sum over T in U of (-1)^|T| R_T, where R_T is the
probability that all of V occurs and T does not, with U - T as background. By negative association R_T <= b V*, where b
is the product over T of A_l, and V* the product over V of the probability that the class occurs when all of U is
absent. Terms with small b are left out, and the bound of their sum is part of the certified error. Ten classes that are
almost certain cost one term, not 1024.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from milbench.likelihood.columns import FLOOR, Columns
from milbench.likelihood.series import Series, product

_TERMS = 1 << 21
"""The most numbers in one batch of terms: terms * K * 2^|V|."""


class Inner(Protocol):
    """A function that returns, for bags with the classes V, log R and the posterior of background and classes."""

    def __call__(self, parts: Columns, posterior: bool) -> tuple[Tensor, Tensor, Tensor]: ...  # noqa: D102


class _Split(NamedTuple):
    """A split of L: estimated cost, |U|, the terms that are kept (N, |U|), and the sum of b over the others."""

    cost: float
    outer: int
    terms: Tensor
    dropped: float


def solve(parts: Columns, inner: Inner, *, posterior: bool, tolerance: float) -> Series | None:
    """Return the sum of one bag's series; None where every split is estimated to cost more than the scan of L.

    Memory: 8 bytes * (3 K n + about 6 * 2^21) for any number of terms.

    Args:
        parts: the columns of one bag.
        inner: returns log R and posterior for the classes V of a batch of terms.
        posterior: whether the posterior is computed as well.
        tolerance: the relative error of R below which terms may be left out.

    Returns:
        log R (1,), the posterior if it is computed, and the bound on the error; or None.
    """
    share = parts.required[0].exp()
    background = parts.background[0].exp()
    log_absent = torch.log1p(-share.clamp(max=1.0)).sum(dim=-1)
    order = log_absent.argsort()
    split = _cheapest(log_absent[order].clamp(max=-1e-300), tolerance)
    if split.outer == 0:
        return None
    outer, rest = order[: split.outer], order[split.outer :]
    sums = _Sums(background, share[outer], share[rest], posterior)
    for terms in split.terms.split(max(1, _TERMS // (len(background) << len(rest)))):
        sums.add(terms, parts, inner)
    slack = split.dropped * _most(background, share[rest])
    required = torch.empty_like(share)
    root, error = sums.finish(slack, len(background))
    required[outer] = (sums.outer_posterior / root).clamp_(min=0)
    required[rest] = (sums.rest_posterior / root).clamp_(min=0)
    return Series(
        root.clamp(min=0).log().reshape(1),
        error.nan_to_num(torch.inf).reshape(1),
        (sums.background_posterior / root).clamp_(min=0).unsqueeze(0),
        required.unsqueeze(0),
    )


def _cheapest(log_absent: Tensor, tolerance: float) -> _Split:
    """Return the cheapest split from log A_l (n,) in ascending order, U taken from the front."""
    slots = len(log_absent)
    cut = tolerance / (8 * 2**slots)
    absent = log_absent.exp()
    condition = torch.cumprod((1 + absent) / (1 - absent), dim=0).tolist()
    bounds, terms, dropped = torch.zeros(1), torch.zeros(1, 0), 0.0
    best = _Split((slots / 2 + 1) * 2**slots, 0, terms, 0.0)
    for j in range(1, slots + 1):
        if condition[j - 1] * 1e-13 > 100 * tolerance:
            break
        bounds = torch.cat([bounds, bounds + log_absent[j - 1]])
        terms = torch.cat([_with(terms, 0.0), _with(terms, 1.0)])
        keep = bounds.exp() >= cut
        dropped = dropped * (1 + float(absent[j - 1])) + float(bounds[~keep].exp().sum())
        bounds, terms = bounds[keep], terms[keep]
        cost = len(terms) * 2.0 ** (slots - j) * ((slots - j) / 2 + 2)
        if cost < best.cost:
            best = _Split(cost, j, terms.double(), dropped)
    return best


def _with(terms: Tensor, value: float) -> Tensor:
    """Return terms (N, |U|) with one more class, whose entries are `value`."""
    return torch.nn.functional.pad(terms, (0, 1), value=value)


def _most(background: Tensor, rest: Tensor) -> float:
    """Return V*, an upper bound of R_T / prod_{l in T} A_l."""
    alone = rest / (background + rest.sum(dim=0)).clamp(min=torch.finfo(rest.dtype).tiny)
    return float(alone.sum(dim=-1).clamp(max=1.0).prod())


class _Sums:
    """The running sums over terms: R, the absolute values of its terms, and the unnormalised posterior."""

    def __init__(self, background: Tensor, outer: Tensor, rest: Tensor, posterior: bool) -> None:
        self.background, self.outer, self.rest = background, outer, rest
        self.posterior = posterior
        self.root = self.total = self.largest = background.new_zeros(())
        self.background_posterior = torch.zeros_like(background)
        self.outer_posterior = torch.zeros_like(outer)
        self.rest_posterior = torch.zeros_like(rest)

    def add(self, terms: Tensor, parts: Columns, inner: Inner) -> None:
        """Add the terms of N sets T, given as `terms` (N, |U|): 1 where T contains the class."""
        present = 1 - terms
        background = self.background + present @ self.outer
        alone, shares, log_value = self._inner(terms, background, parts, inner)
        value = (1 - 2 * (terms.sum(dim=-1) % 2)) * log_value.exp()
        self.root = self.root + value.sum()
        self.total = self.total + value.abs().sum()
        self.largest = torch.maximum(self.largest, value.abs().max())
        if not self.posterior:
            return
        weights = value.unsqueeze(-1) * alone / background.clamp(min=torch.finfo(background.dtype).tiny)
        self.background_posterior += self.background * weights.sum(dim=0)
        self.outer_posterior += self.outer * (present.T @ weights)
        self.rest_posterior += torch.einsum("t,tnk->nk", value, shares)

    def _inner(self, terms: Tensor, background: Tensor, parts: Columns, inner: Inner) -> tuple[Tensor, Tensor, Tensor]:
        """Return posterior of the joint background (N, K) and of V (N, |V|, K), and log R_T (N,)."""
        slots = len(self.rest)
        log_scale = product(background + self.rest.sum(dim=0)).log()
        log_scale = torch.where(terms.sum(dim=-1) == 0, torch.zeros_like(log_scale), log_scale)  # nothing absent
        if slots == 0:
            return torch.ones_like(background), background.new_zeros(len(terms), 0, background.shape[-1]), log_scale
        log_x = torch.log(background + self.rest.sum(dim=0)).clamp(min=FLOOR)
        columns = Columns(
            log_scale,
            background.log().clamp(min=FLOOR) - log_x,
            self.rest.log().clamp(min=FLOOR) - log_x.unsqueeze(1),
            parts.size.new_full((len(terms),), slots),
        )
        ratio, alone, shares = inner(columns, self.posterior)
        return alone, shares, log_scale + ratio

    def finish(self, slack: float, positions: int) -> tuple[Tensor, Tensor]:
        """Return R and a bound of its relative error, from the terms that were left out and from rounding."""
        steps = (positions + 2 * len(self.outer)) * (self.total - self.largest) + 64 * self.total
        rounding = steps * torch.finfo(self.root.dtype).eps
        return self.root, (rounding + slack) / self.root.clamp(min=0)
