"""The exact likelihood as an alternating series, with a bound of its rounding error.

The series is Proposition 1 of X.-L. Li, arXiv:1811.12346, 2018. It is summed on the CPU. Let s_k be
the probability at position k of the classes of the label set L and of the background. Then Prb(L) =
prod_k s_k * R, and

    R = sum over the subsets T of L of (-1)^|T| A_T.

A_T is the probability that no class of T occurs, a product over positions of sums of shares. A
share is a probability divided by s_k. All these sums are of positive numbers, and A_T of the empty
set is exactly 1. So the error of R is at most the rounding error of a term, times the sum of the
other A_T. This bound is known once the series is summed. It is small where the classes are likely
to occur, and far too large where the background dominates. Bags whose error is not certified are
left to `levels`.

From logits, let o_k be the probability at position k of the classes outside L. Then log Prb(L) =
-sum_k log(1 + o_k / s_k) + log R. No terms cancel, so that the softmax may be computed in the type
of the logits. The gradient by the logits is the posterior minus the softmax.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from milbench.likelihood.columns import membership

GROUP = 1 << 21
"""The most numbers, G * K * 2^n, that the terms of a group of G bags have at all K positions.

They take 16 MiB, about a core's share of the cache.
"""
ONE_STRETCH = 8
"""The largest |L| for which the terms of all positions are kept in memory.

For a larger |L|, the positions are cut into stretches, and the terms are computed twice: for the
value and for the gradient.
"""
_TOLERANCE = {torch.float64: (5e-13, 1e-10), torch.float32: (1e-8, 1e-7)}
"""By type, the largest certified relative error of R that is accepted.

The first number is accepted where |log Prb| is at most 1; above that, the number times |log Prb|.
The second number is never exceeded, since the posterior has the same relative error.
"""
_SMALL = {torch.float64: 1e-250, torch.float32: 1e-30}
"""By type, the least s_k that is accepted.

The two are far above 1e-308 and 1e-38: smaller numbers are subnormal, and have less precision.
"""


class _Group(NamedTuple):
    """Bags with label sets of one size."""

    bags: np.ndarray
    """(G,), the indices of the bags."""
    rows: np.ndarray
    """(n+1, G), for each bag the rows of its required classes and, last, of its background.

    They are rows of values (B*(C+1), K).
    """


def solve(
    values: Tensor, labels: Tensor, mask: Tensor | None, *, normalise: bool, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return log Prb (B,) in float64, and its gradient (B, C+1, K) in the type of the values.

    Without `gradient` the second result is None. Where no error is certified, as for impossible
    label sets, log Prb is NaN and the gradient has no meaning. At masked positions the gradient is
    zero. The values (B, C+1, K) are on the CPU, background last. With `normalise` they are finite
    logits, float32 or float64, otherwise log-probabilities. Peak memory: a copy of the values, and
    8 bytes * 2.5 * GROUP.
    """
    probs = values.softmax(dim=1) if normalise else values.double().exp().contiguous()
    if mask is not None:
        # A masked position shows the background for certain.
        probs.masked_fill_(~mask.unsqueeze(1), 0.0)
        probs[:, -1].masked_fill_(~mask, 1.0)
    groups = _groups(labels, values.shape[-1])
    log_prob, slope = _solve_groups(groups, probs, normalise=normalise, gradient=gradient)
    if slope is None:
        return log_prob, None
    if mask is not None:
        slope.masked_fill_(~mask.unsqueeze(1), 0.0)
    return log_prob, slope.to(values.dtype)


def _solve_groups(
    groups: list[_Group], probs: Tensor, *, normalise: bool, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return log Prb (B,), NaN where it is not certified, and the gradient (B, C+1, K).

    The gradient overwrites `probs` (B, C+1, K).
    """
    order = np.concatenate([group.bags for group in groups])
    rows = torch.from_numpy(np.concatenate([group.rows.ravel() for group in groups]))
    flat = probs.view(-1, probs.shape[-1])
    chosen = flat.index_select(0, rows)
    own, others = _sums(groups, probs, order)

    shares = chosen.split([group.rows.size for group in groups])
    totals = own.split([len(group.bags) for group in groups])
    log_ratios = []
    errors = []
    # Where a division by 0 occurs, no error is certified, and the bag is solved by `levels`.
    with np.errstate(divide="ignore", invalid="ignore"):
        for group, share, total in zip(groups, shares, totals, strict=True):
            # A view of `chosen`. With `gradient`, `_series` overwrites it by the posterior.
            group_share = share.view(*group.rows.shape, -1)
            log_ratio, error = _series(group_share, total, gradient=gradient)
            log_ratios.append(log_ratio)
            errors.append(error)
    scale = -torch.div(others, own).log1p_() if normalise else own.log()
    value = np.concatenate(log_ratios) + scale.sum(dim=-1, dtype=torch.float64).numpy()
    is_sure = _is_sure(value, np.concatenate(errors), own)
    log_prob = torch.empty(len(probs), dtype=torch.float64)
    log_prob.numpy()[order] = np.where(is_sure, value, np.nan)
    if not gradient:
        return log_prob, None
    # From logits the gradient is the posterior minus the softmax, otherwise the posterior alone.
    slope = flat.neg_() if normalise else flat.zero_()
    return log_prob, slope.index_add_(0, rows, chosen).view_as(probs)


def _is_sure(value: np.ndarray, error: np.ndarray, own: Tensor) -> np.ndarray:
    """Return (B,) bool, where values of log Prb (B,) are certified.

    `error` (B,) are bounds of the relative errors of R. `own` (B, K) is s_k, in the type in which
    probabilities were computed.
    """
    tolerance, most = _TOLERANCE[own.dtype]
    size = np.maximum(np.abs(value), 1.0)
    accepted = np.minimum(tolerance * np.nan_to_num(size, nan=1.0, posinf=1.0), most)
    has_full_precision = own.amin(dim=-1).numpy() > _SMALL[own.dtype]
    sure: np.ndarray = (error <= accepted) & np.isfinite(value) & has_full_precision
    return sure


def _sums(groups: list[_Group], probs: Tensor, order: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return s_k and o_k, (B, K) each, of the bags in the order of the groups.

    s_k is the probability of L and the background, and o_k that of all other classes.
    """
    dtype = np.float32 if probs.dtype == torch.float32 else np.float64
    # The first row selects the channels of L and the background, the second all other channels.
    is_selected = np.zeros((2, probs.shape[0] * probs.shape[1]), dtype)
    for group in groups:
        is_selected[0, group.rows] = 1.0
    np.subtract(1.0, is_selected[0], out=is_selected[1])
    selected = torch.from_numpy(is_selected).view(2, *probs.shape[:2]).transpose(0, 1)
    sums = torch.bmm(selected, probs)
    own, others = sums.index_select(0, torch.from_numpy(order)).unbind(dim=1)
    return own, others


def _groups(labels: Tensor, positions: int) -> list[_Group]:
    """Return groups of bags with one |L|, each with at most GROUP numbers or one bag."""
    is_required = labels.numpy()
    channels = is_required.shape[1] + 1
    sizes = is_required.sum(axis=1)
    groups = []
    for size in np.flatnonzero(np.bincount(sizes)):
        bags = np.flatnonzero(sizes == size)
        rows = np.empty((size + 1, len(bags)), dtype=np.int64)
        _, classes = is_required[bags].nonzero()
        rows[:-1] = classes.reshape(len(bags), size).T
        rows[-1] = channels - 1
        rows += bags * channels
        bags_at_once = max(1, GROUP // (max(1, positions) << int(size)))
        for begin in range(0, len(bags), bags_at_once):
            part = slice(begin, begin + bags_at_once)
            groups.append(_Group(bags[part], rows[:, part]))
    return groups


def _series(share: Tensor, total: Tensor, *, gradient: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return log R (G,) and a bound of the relative error of R (G,).

    With `gradient`, `share` is overwritten by the posterior. `share` (n+1, G, K) are the
    probabilities of the required classes and, last, of the background. `total` (G, K) is their sum.
    It may have a rounding error, since R is computed as a ratio of two products over positions, in
    which any divisor cancels.
    """
    channels, bags, positions = share.shape
    classes = channels - 1
    if classes > positions:
        # The label set is impossible. An infinite error means that no value is certified.
        return np.zeros(bags), np.full(bags, np.inf)
    allowed, allowed_transposed, sign = _sets(classes)
    length = positions if classes <= ONE_STRETCH else max(1, GROUP >> classes)
    stretches = list(zip(share.split(length, dim=-1), total.split(length, dim=-1), strict=True))
    first_share, first_total = stretches[0]
    remaining = _remaining(first_share, first_total, allowed)
    # A_T, (2^n, G). An underflow here is far below the error.
    absent = remaining.prod(dim=-1).numpy()
    for part, part_total in stretches[1:]:
        absent *= _remaining(part, part_total, allowed).prod(dim=-1).numpy()
    terms = absent * sign
    ratio = terms.sum(axis=0)
    condition = absent.sum(axis=0) / np.maximum(ratio, 0.0)
    log_ratio = np.log(np.maximum(ratio, 0.0) / absent[0])

    if gradient:
        weights = torch.from_numpy(terms / ratio).unsqueeze(-1)
        for part, part_total in stretches:
            # With a single stretch, `remaining` is still there from the sum above.
            if len(stretches) > 1:
                remaining = _remaining(part, part_total, allowed)
            if not absent.all():
                # Where a factor of A_T is 0 at a position, the quotient below would be 0 / 0. The
                # clamp makes it 0, as it should be.
                remaining.clamp_(min=torch.finfo(torch.float64).tiny)
            slopes = torch.div(weights, remaining, out=remaining)
            by_channel = torch.mm(allowed_transposed, slopes.view(len(terms), -1)).view_as(part)
            part.mul_(by_channel.div_(part_total))
    # The relative error of A_T, in units of eps. At each position, each share has one rounding, the
    # sum of n + 1 shares has n, and the product has one: n + 2 roundings of half an eps. The rest
    # of the number is for the sum over the sets T, and for the division by it.
    roundings = positions * (channels + 1) / 2 + channels + 15
    rounding = roundings * torch.finfo(torch.float64).eps
    return log_ratio, condition * rounding


def _remaining(share: Tensor, total: Tensor, allowed: Tensor) -> Tensor:
    """Return (2^n, G, K), the summed share of the classes of L outside T and of the background.

    There is a row for every subset T of L. A_T is the product of its row over positions.
    """
    shares = (share / total.double()).view(len(share), -1)
    return torch.mm(allowed, shares).view(-1, *total.shape)


@cache
def _sets(size: int) -> tuple[Tensor, Tensor, np.ndarray]:
    """Return three arrays in float64 about the 2^n subsets T of n classes.

    The first, (2^n, n+1), is 1 for the classes that T lacks and for the background, and 0 for the
    classes of T. The second is its transpose. The third, (2^n, 1), is (-1)^|T|.
    """
    members = membership(size)
    allowed = functional.pad((~members).double(), (0, 1), value=1.0)
    is_odd = (members.sum(dim=1, keepdim=True) % 2).double()
    sign = 1.0 - 2.0 * is_odd
    return allowed, allowed.T.contiguous(), sign.numpy()
