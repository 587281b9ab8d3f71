"""The CPU path: bags are grouped by |L|, and each group runs the cheapest algorithm whose error is certified."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from milbench.likelihood import columns, hybrid, levels, scan, series, tree
from milbench.likelihood.columns import FLOOR, IMPOSSIBLE, Columns

BUDGET = 1 << 21
"""The most states of one group, G * K * 2^n: 16 MiB, about a core's share of cache and cheap to allocate."""
SCAN_LABELS = 8
"""The largest |L| that is scanned without trying `hybrid` first; above it 2^n numbers a position are expensive."""
_TOLERANCE = {torch.float64: 5e-13}
"""The largest certified relative error of a sum with alternating signs, over max(1, |log Prb|); 1e-8 for the smaller
types."""
_MOST = {torch.float64: 1e-10}
"""The largest one for any log Prb, since the posterior has the error of the sum; 1e-7 for the smaller types."""
_MORE = 20.0
"""How much more is accepted above SCAN_LABELS, where a scan takes seconds."""


def accepted(value: Tensor, dtype: torch.dtype, more: float = 1.0) -> Tensor:
    """Return the certified relative error of R that is accepted for an input of this type, from log Prb (G,).

    Args:
        value: log Prb, or a first part of it.
        dtype: of the input.
        more: by how much the bound for any log Prb is raised; the one for log Prb near 0 stays below 1e-12 in float64.
    """
    size = value.abs().clamp(min=1.0).nan_to_num(1.0, 1.0)
    return (min(more, 1.8) * _TOLERANCE.get(dtype, 1e-8) * size).clamp(max=more * _MOST.get(dtype, 1e-7))


class Posterior(NamedTuple):
    """The posterior of one group of bags.

    Attributes:
        rows: (G,) int64, the bags.
        classes: (G, n) int64, their required classes.
        background: (G, K), the probability of background.
        required: (G, n, K), the probability of each required class.
    """

    rows: Tensor
    classes: Tensor
    background: Tensor
    required: Tensor


def solve(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, *, posterior: bool, series_first: bool = True
) -> tuple[Tensor, list[Posterior]]:
    """Return log Prb (B,) in float64 and, with `posterior`, the posterior of every group.

    Args:
        log_probs: (B, C+1, *positions) floating point on the CPU, natural logarithms, background last.
        labels: (B, C) bool, the label sets.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        posterior: whether the posterior is computed as well.
        series_first: False: no bag of up to SCAN_LABELS classes is solved by the series, since it was found wanting.

    Returns:
        The log-likelihoods (B,) in float64, -inf where a label set is impossible, and one posterior for each group of
        bags with label sets of the same size; no posterior without `posterior`.
    """
    with torch.no_grad():
        values = log_probs.reshape(*log_probs.shape[:2], -1)
        flat_mask = None if mask is None else mask.reshape(len(mask), -1)
        total = torch.empty(len(values), dtype=torch.float64)
        found = []
        for rows, classes in _groups(labels, values.shape[-1]):
            parts = _columns(values, rows, classes, flat_mask)
            ratio, background, required = _solve_group(parts, posterior, log_probs.dtype, series_first)
            value = parts.log_scale + ratio
            possible = ~(value <= IMPOSSIBLE)  # NaN is to be seen
            total[rows] = columns.floor_to_infinity(value)
            if posterior:
                counts = possible.unsqueeze(-1) if flat_mask is None else possible.unsqueeze(-1) & flat_mask[rows]
                if flat_mask is not None or not bool(possible.all()):
                    background = background.masked_fill(~counts, 0.0)
                    required = required.masked_fill(~counts.unsqueeze(1), 0.0)
                found.append(Posterior(rows, classes, background, required))
        return total, found


def scattered(found: list[Posterior], like: Tensor) -> Tensor:
    """Return the posterior in the shape and type of `like` (B, C+1, *positions).

    Args:
        found: the posteriors from `solve`, one for each group of bags.
        like: (B, C+1, *positions), which gives shape and type of the result.

    Returns:
        (B, C+1, *positions), 0 for classes outside of the label set of a bag.
    """
    result = torch.zeros(*like.shape[:2], math.prod(like.shape[2:]), dtype=like.dtype)
    for rows, classes, background, required in found:
        result[rows, -1] = background.to(like.dtype)
        result[rows.unsqueeze(-1), classes] = required.to(like.dtype)
    return result.reshape(like.shape)


def _columns(values: Tensor, rows: Tensor, classes: Tensor, flat_mask: Tensor | None) -> Columns:
    """Return the columns of one group in float64; masked positions are background with probability 1."""
    background = values[rows, -1].double().clamp_(min=FLOOR)
    chosen = values[rows.unsqueeze(-1), classes].double().clamp_(min=FLOOR)
    if flat_mask is not None:
        background.masked_fill_(~flat_mask[rows], 0.0)
        chosen.masked_fill_(~flat_mask[rows].unsqueeze(1), FLOOR)
    return columns.renormalised(background, chosen, torch.full_like(rows, classes.shape[1]))


def _groups(labels: Tensor, positions: int) -> list[tuple[Tensor, Tensor]]:
    """Return groups of bags of one |L|, within BUDGET: their rows (G,) and required classes (G, n)."""
    sizes = labels.sum(dim=1)
    groups = []
    for size in sizes.unique().tolist():
        rows = torch.nonzero(sizes == size).squeeze(1)
        classes = torch.nonzero(labels[rows])[:, 1].reshape(len(rows), size)
        most = 1 if size > SCAN_LABELS else max(1, BUDGET // (max(1, positions) * 2**size))
        groups += list(zip(rows.split(most), classes.split(most), strict=True))
    return groups


def _solve_group(
    parts: Columns, posterior: bool, dtype: torch.dtype, series_first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log R (G,) and the posterior of background (G, K) and classes (G, n, K)."""
    slots, positions = parts.required.shape[1:]
    if slots == 0:
        return torch.zeros_like(parts.log_scale), torch.ones_like(parts.background), parts.required
    if slots > positions:
        return torch.full_like(parts.log_scale, FLOOR), parts.background, parts.required
    if slots == 1:
        return _one_class(parts)
    found, more = None, 1.0
    if slots > SCAN_LABELS:
        more = _MORE
        # Its terms are scanned: the errors of further series would add up, beyond what it certifies.
        tolerance = min(1e-9, float(accepted(parts.log_scale, dtype, more)))
        found = hybrid.solve(parts, scanned, posterior=posterior, tolerance=tolerance)
    elif series_first:
        found = series.solve(parts, posterior=posterior)
    if found is None:
        return scanned(parts, posterior)
    sure = found.error <= accepted(parts.log_scale + found.ratio, dtype, more)
    unsure = torch.nonzero(~sure).squeeze(1)
    if len(unsure) == len(found.ratio):
        return scanned(parts, posterior)
    if len(unsure):
        again = scanned(Columns(*(field[unsure] for field in parts)), posterior)
        for whole, part in zip((found.ratio, found.background, found.required), again, strict=True):
            whole[unsure] = part
    return found.ratio, found.background, found.required


def scanned(parts: Columns, posterior: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return log R and posterior by the scan; bags whose root may have lost digits to underflow, in logarithms."""
    scale = tree.label_scale(parts.required)
    found = scan.solve(parts.background, parts.required, scale, parts.size, posterior=posterior)
    ratio = found.root.log() + scale.sum(dim=-1)
    background = parts.background if found.background is None else found.background
    required = parts.required if found.required is None else found.required
    unsure = torch.nonzero(found.root < scan.CERTAIN).squeeze(1)
    if len(unsure):
        again = Columns(*(field[unsure] for field in parts))
        ratio[unsure], background[unsure], required[unsure] = levels.solve(again)
    return ratio, background, required


def _one_class(parts: Columns) -> tuple[Tensor, Tensor, Tensor]:
    """Return log R and posterior for one required class l: R = 1 - prod_k (1 - q_{l,k}), posterior q_{l,k} / R."""
    share = parts.required[:, 0]
    odds = share - parts.background
    rate = torch.log1p(torch.exp(-odds.abs())) + odds.clamp(min=0)
    rare = share.amax(dim=-1) < -40
    common = torch.log(-torch.expm1(-rate.sum(dim=-1)))
    ratio = torch.where(rare, torch.logsumexp(share, dim=-1), common)
    required = torch.exp(share - ratio.unsqueeze(-1)).clamp(max=1)
    return ratio, 1 - required, required.unsqueeze(1)
