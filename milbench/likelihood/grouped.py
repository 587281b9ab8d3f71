"""The CPU's course through a batch: bags grouped by |L|, each group by the cheapest engine that is sure to be right."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.likelihood import columns, hybrid, scan, series, tree
from milbench.likelihood.columns import FLOOR, IMPOSSIBLE, Columns

BUDGET = 1 << 21
"""States of one group at a time, G * K * 2^n: 16 MiB, about a core's share of cache and cheap to allocate."""
SCAN_LABELS = 8
"""Up to here 2^n numbers a position are few; above it `series` first looks for classes that are sure to occur."""


def solve(values: Tensor, labels: Tensor, *, posterior: bool, tolerance: float = 1e-13) -> tuple[Tensor, Tensor]:
    """Return log Prb (B,) and the posterior (B, C+1, K) of `values` (B, C+1, K); an empty tensor if not asked for."""
    with torch.no_grad():
        total = values.new_empty(len(values))
        shares = torch.zeros_like(values) if posterior else values.new_empty(0)
        for rows, classes in _groups(labels, values.shape[-1]):
            bag = rows.unsqueeze(-1)
            size = torch.full_like(rows, classes.shape[1])
            parts = columns.renormalised(values[rows, -1], values[bag, classes], size)
            ratio, background, required = _solve_group(parts, posterior, tolerance)
            value = parts.log_scale + ratio
            possible = value > IMPOSSIBLE
            total[rows] = torch.where(possible, value, torch.full_like(value, -torch.inf))
            if posterior:
                if not bool(possible.all()):
                    background = torch.where(possible.unsqueeze(-1), background, torch.zeros_like(background))
                    required = torch.where(possible.reshape(-1, 1, 1), required, torch.zeros_like(required))
                shares[rows, -1] = background
                shares[bag, classes] = required
        return total, shares


def _groups(labels: Tensor, positions: int) -> list[tuple[Tensor, Tensor]]:
    """Return (rows (G,), their required classes (G, n)): one |L| at a time, no more bags than BUDGET allows."""
    sizes = labels.sum(dim=1)
    groups = []
    for size in sizes.unique().tolist():
        rows = torch.nonzero(sizes == size).squeeze(1)
        classes = torch.nonzero(labels[rows])[:, 1].reshape(len(rows), size)
        most = 1 if size > SCAN_LABELS else max(1, BUDGET // (max(1, positions) * 2**size))
        groups += list(zip(rows.split(most), classes.split(most), strict=True))
    return groups


def _solve_group(parts: Columns, posterior: bool, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return log R (G,) and the posterior of background (G, K) and classes (G, n, K)."""
    slots, positions = parts.required.shape[1:]
    if slots == 0:
        return torch.zeros_like(parts.log_scale), torch.ones_like(parts.background), parts.required  # nothing to choose
    if slots > positions:
        return torch.full_like(parts.log_scale, FLOOR), parts.background, parts.required
    if slots == 1:
        return _one_class(parts)
    if slots > SCAN_LABELS:
        wanted = min(1e-10, tolerance * max(1.0, abs(float(parts.log_scale))))
        large = hybrid.solve(
            parts, lambda part, need: _solve_group(part, need, tolerance), posterior=posterior, tolerance=wanted
        )
        if large is None:
            return scanned(parts, posterior)
        found = large
    else:
        found = series.solve(parts, posterior=posterior)
    size = (parts.log_scale + found.ratio).abs().clamp(min=1.0).nan_to_num(1.0, 1.0)
    unsure = torch.nonzero(~(found.error <= tolerance * size)).squeeze(1)
    if len(unsure) == len(found.ratio):
        return scanned(parts, posterior)
    if len(unsure):
        again = scanned(Columns(*(field[unsure] for field in parts)), posterior)
        for whole, part in zip((found.ratio, found.background, found.required), again, strict=True):
            whole[unsure] = part
    return found.ratio, found.background, found.required


def scanned(parts: Columns, posterior: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Solve by the scan, and again in logarithms the bags where it cannot vouch for its root."""
    scale = tree.label_scale(parts.required)
    found = scan.solve(parts.background, parts.required, scale, parts.size, posterior=posterior)
    ratio = found.root.log() + scale.sum(dim=-1)
    background = parts.background if found.background is None else found.background
    required = parts.required if found.required is None else found.required
    unsure = torch.nonzero(found.root < scan.CERTAIN).squeeze(1)
    if len(unsure):
        again = Columns(*(field[unsure] for field in parts))
        ratio[unsure], background[unsure], required[unsure] = _in_logarithms(again)
    return ratio, background, required


def _in_logarithms(parts: Columns) -> tuple[Tensor, Tensor, Tensor]:
    with torch.enable_grad():
        leaves = parts.background.detach().requires_grad_(), parts.required.detach().requires_grad_()
        ratio = tree.log_ratio(Columns(parts.log_scale, *leaves, parts.size))
        background, required = torch.autograd.grad(ratio.sum(), leaves)
    return ratio.detach(), background, required


def _one_class(parts: Columns) -> tuple[Tensor, Tensor, Tensor]:
    """One required class: R = 1 - prod q_phi, and a position that emits it leaves nothing to ask of the others."""
    share = parts.required[:, 0]
    odds = share - parts.background
    rate = torch.log1p(torch.exp(-odds.abs())) + odds.clamp(min=0)
    rare = share.amax(dim=-1) < -40
    common = torch.log(-torch.expm1(-rate.sum(dim=-1)))
    ratio = torch.where(rare, torch.logsumexp(share, dim=-1), common)
    required = torch.exp(share - ratio.unsqueeze(-1)).clamp(max=1)
    return ratio, 1 - required, required.unsqueeze(1)
