"""The likelihood and its gradient from logits on the CPU: one softmax, and one alternating series a size of label set.

With p the softmax, s_k the sum of the probabilities of L and the background at position k, and o_k that of the other
classes, log Prb(L) = -sum_k log(1 + o_k / s_k) + log R: no term cancels, so that p may have the type of the logits. R,
the probability that all of L occurs given that the others do not, is the alternating series of `series` in float64. Its
gradient by the logits is the posterior minus p. Where the rounding error of the series is not certified, a bag is
solved by `grouped`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from milbench.likelihood import grouped, series

_SMALL = {torch.float64: 1e-250, torch.float32: 1e-30}
"""The least s_k whose digits are all there: probabilities below 1e-308 and 1e-38 lose theirs."""


class _Group(NamedTuple):
    """Bags with label sets of one size.

    Attributes:
        bags: (G,) their numbers.
        rows: (n + 1, G) the rows of their required classes, then of the background, in the logits as (B (C+1), K).
    """

    bags: np.ndarray
    rows: np.ndarray


def solve(logits: Tensor, labels: Tensor, mask: Tensor | None, *, gradient: bool) -> tuple[Tensor, Tensor | None]:
    """Return log Prb (B,) in float64 and its gradient by the logits.

    Peak memory: that of the logits, and 8 bytes * 2.5 * 2^21 (see `grouped.BUDGET`), besides what `grouped` needs.

    Args:
        logits: (B, C+1, K) float32 or float64 on the CPU, finite, background last.
        labels: (B, C) bool, the label sets.
        mask: (B, K) bool, True where there is an instance; None: everywhere.
        gradient: whether the gradient is computed as well.

    Returns:
        The log-likelihoods, -inf where a label set is impossible, and the gradient (B, C+1, K) in the type of the
        logits, zero at masked positions and in bags whose label set is impossible; None without `gradient`.
    """
    groups = _groups(labels, logits.shape[-1])
    values = torch.empty(len(logits), dtype=torch.float64)
    if min(len(group.rows) for group in groups) > grouped.SCAN_LABELS + 1:
        slope = torch.empty_like(logits) if gradient else None
        _solve_again(torch.arange(len(logits)), logits, labels, mask, values, slope)
    else:
        slope = _solve_groups(groups, _probs(logits, mask), values, gradient=gradient)
        unsure = torch.nonzero(values.isnan()).squeeze(1)
        if len(unsure):
            _solve_again(unsure, logits, labels, mask, values, slope)
    if slope is not None and mask is not None:
        slope.masked_fill_(~mask.unsqueeze(1), 0.0)
    return values, slope


def _solve_groups(groups: list[_Group], probs: Tensor, values: Tensor, *, gradient: bool) -> Tensor | None:
    """Write log Prb into `values` (B,), NaN where it is not certain; return the gradient, which overwrites `probs`."""
    order = np.concatenate([group.bags for group in groups])
    rows = torch.from_numpy(np.concatenate([group.rows.ravel() for group in groups]))
    flat = probs.view(-1, probs.shape[-1])
    chosen = flat.index_select(0, rows)
    own, others = _sums(groups, probs, order)
    ratio, error = _every_series(groups, chosen, own, gradient=gradient)
    value = ratio - torch.div(others, own).log1p_().sum(dim=-1, dtype=torch.float64).numpy()
    sure = error <= grouped.accepted(torch.from_numpy(value), probs.dtype).numpy()
    sure &= np.isfinite(value) & (own.amin(dim=-1).numpy() > _SMALL[probs.dtype])
    values.numpy()[order] = np.where(sure, value, np.nan)
    return flat.neg_().index_add_(0, rows, chosen).view_as(probs) if gradient else None


def _probs(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C+1, K), the softmax over the channels; masked positions are background with probability 1."""
    probs = logits.softmax(dim=1)
    if mask is not None:
        probs.masked_fill_(~mask.unsqueeze(1), 0.0)
        probs[:, -1].masked_fill_(~mask, 1.0)
    return probs


def _sums(groups: list[_Group], probs: Tensor, order: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return (B, K) each, in the order of the groups: the probability of L and the background, and of the others."""
    which = np.zeros(
        (2, probs.shape[0] * probs.shape[1]), dtype=np.float32 if probs.dtype == torch.float32 else np.float64
    )
    for group in groups:
        which[0, group.rows] = 1.0
    np.subtract(1.0, which[0], out=which[1])
    sums = torch.bmm(torch.from_numpy(which).view(2, *probs.shape[:2]).transpose(0, 1), probs)
    own, others = sums.index_select(0, torch.from_numpy(order)).unbind(dim=1)
    return own, others


def _groups(labels: Tensor, positions: int) -> list[_Group]:
    """Return groups of bags of one |L|, within `grouped.BUDGET`."""
    held, channels = labels.numpy(), labels.shape[1] + 1
    sizes = held.sum(axis=1)
    groups = []
    for size in np.flatnonzero(np.bincount(sizes)):
        bags = np.flatnonzero(sizes == size)
        rows = np.empty((size + 1, len(bags)), dtype=np.int64)
        rows[:-1] = held[bags].nonzero()[1].reshape(len(bags), size).T
        rows[-1] = channels - 1
        rows += bags * channels
        most = max(1, grouped.BUDGET // (positions << min(int(size), grouped.SCAN_LABELS)))
        groups += [_Group(bags[i : i + most], rows[:, i : i + most]) for i in range(0, len(bags), most)]
    return groups


def _every_series(
    groups: list[_Group], chosen: Tensor, own: Tensor, *, gradient: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return log R (B,) and a bound of its error, in the order of the groups, from their rows and sums.

    With `gradient`, the rows `chosen` (N, K) are overwritten by the posterior.
    """
    rows = chosen.split([group.rows.size for group in groups])
    sums = own.split([len(group.bags) for group in groups])
    with np.errstate(divide="ignore", invalid="ignore"):  # of bags that are solved again
        solved = [
            _series(share.view(*group.rows.shape, -1), total, gradient=gradient)
            for group, share, total in zip(groups, rows, sums, strict=True)
        ]
    ratios, errors = zip(*solved, strict=True)
    return np.concatenate(ratios), np.concatenate(errors)


def _series(share: Tensor, total: Tensor, *, gradient: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return log R (G,) and a bound of its error; with `gradient`, overwrite `share` by the posterior.

    Args:
        share: (n + 1, G, K), the probabilities of the required classes and, last, the background.
        total: (G, K), their sum, up to rounding: R is a ratio of two products over positions, and any divisor cancels.
        gradient: whether the posterior is computed.
    """
    channels, bags, positions = share.shape
    if channels - 1 > min(grouped.SCAN_LABELS, positions):
        return np.zeros(bags), np.full(bags, np.inf)
    sets = _sets(channels - 1)
    remaining = torch.mm(sets.allowed, (share / total.double()).view(channels, -1)).view(-1, bags, positions)
    absent = remaining.prod(dim=-1).numpy()  # (2^n, G); what underflows here is far below the error
    terms = absent * sets.sign
    root = terms.sum(axis=0)
    condition = absent.sum(axis=0) / np.maximum(root, 0.0)
    ratio = np.log(np.maximum(root, 0.0) / absent[0])
    if gradient:
        if not absent.all():  # 0 / 0 stands for 0: what is 0 at a position has no share to lose there
            remaining.clamp_(min=torch.finfo(torch.float64).tiny)
        weights = torch.from_numpy(terms / root).unsqueeze(-1)
        slopes = torch.div(weights, remaining, out=remaining)
        share.mul_(torch.mm(sets.back, slopes.view(len(terms), -1)).view_as(share).div_(total))
    return ratio, condition * series.rounding(positions, channels - 1)


class _Sets(NamedTuple):
    """The sets T of n classes.

    Attributes:
        allowed: (2^n, n + 1) float64, 1 for the classes that T lacks, and for the background.
        sign: (2^n, 1) float64, (-1)^|T|.
        back: the transpose of `allowed`.
    """

    allowed: Tensor
    sign: np.ndarray
    back: Tensor


@cache
def _sets(size: int) -> _Sets:
    held = torch.arange(2**size).unsqueeze(1) >> torch.arange(size + 1) & 1
    allowed = (1 - held).double()
    sign = 1.0 - 2.0 * (held.sum(dim=1, keepdim=True) % 2).double()
    return _Sets(allowed, sign.numpy(), allowed.T.contiguous())


def _solve_again(
    bags: Tensor, logits: Tensor, labels: Tensor, mask: Tensor | None, values: Tensor, slope: Tensor | None
) -> None:
    """Overwrite value and gradient of some `bags` by those of `grouped`, without the series; NaN where a logit is."""
    log_probs = logits[bags].double().log_softmax(dim=1)  # float32 would round differences of large logits away
    some = None if mask is None else mask[bags]
    value, found = grouped.solve(log_probs, labels[bags], some, posterior=slope is not None, series_first=False)
    broken = log_probs.isnan().flatten(1).any(dim=1)
    values[bags] = value.masked_fill(broken, torch.nan)
    if slope is not None:
        posterior = grouped.scattered(found, log_probs)
        again = (posterior - log_probs.exp()).masked_fill_((value == -torch.inf).view(-1, 1, 1), 0.0)
        slope[bags] = again.masked_fill_(broken.view(-1, 1, 1), torch.nan).to(slope.dtype)
