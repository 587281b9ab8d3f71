"""The probability that a class occurs at all in a bag, whatever else does."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from milbench.likelihood import checks, columns
from milbench.likelihood.columns import FLOOR, IMPOSSIBLE

_SMALL = -18.0
"""Below this logarithm, x and log(1 + x) differ by less than x^2 / 2 does from double precision."""


def presence_prob(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool | None = None) -> Tensor:
    """Return (B, C), the probability that class c occurs at one position at least.

    Differentiable; nothing here looks at values unless it validates them (as `bag_log_prob` does and with the same
    errors). Memory: about 8 bytes * 8 B (C+1) K.
    """
    return torch.exp(presence_log_prob(log_probs, mask, validate=validate))


def presence_log_prob(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool | None = None) -> Tensor:
    """Return (B, C), the log of `presence_prob` in nats, accurate for rare classes too; -inf where ruled out."""
    checks.check_log_probs(log_probs, mask, validate)
    present = _log_present(_log_rate(log_probs, mask))
    return _restored(present).to(columns.result_dtype(log_probs))


def presence_log_odds(log_probs: Tensor, mask: Tensor | None = None, *, validate: bool | None = None) -> Tensor:
    """Return (B, C), log Prb(c occurs) - log Prb(c does not): ranks classes where probabilities saturate."""
    checks.check_log_probs(log_probs, mask, validate)
    log_rate = _log_rate(log_probs, mask)
    odds = _restored(_log_present(log_rate) + torch.exp(log_rate))
    return odds.to(columns.result_dtype(log_probs))


def _log_rate(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C) log of -sum_k log(1 - p): the rate of the Poisson count that is zero as often as the class's."""
    values = columns.flat(log_probs, mask)
    if values.shape[-1] == 0:
        return torch.full_like(values[:, :-1].sum(dim=-1), FLOOR)
    top = torch.arange(values.shape[1], device=values.device).reshape(1, -1, 1) == values.argmax(dim=1, keepdim=True)
    others = torch.logsumexp(torch.where(top, torch.full_like(values, FLOOR), values), dim=1, keepdim=True)
    likely = top & (values > math.log(0.5))
    small = torch.where(likely, torch.full_like(values, -1.0), values)
    from_rest = torch.log((-others).clamp(min=torch.finfo(values.dtype).tiny))
    from_self = torch.where(
        small < _SMALL, small + torch.exp(small) / 2, torch.log(-torch.log1p(-torch.exp(small.clamp(min=_SMALL))))
    )
    rate = torch.where(likely, from_rest, from_self)
    return torch.logsumexp(rate[:, :-1], dim=-1)


def _log_present(log_rate: Tensor) -> Tensor:
    """Return log(1 - exp(-rate))."""
    safe = log_rate.clamp(min=_SMALL)
    return torch.where(log_rate < _SMALL, log_rate - torch.exp(log_rate) / 2, torch.log(-torch.expm1(-torch.exp(safe))))


def _restored(value: Tensor) -> Tensor:
    """Put infinities back where the floor stands for them."""
    value = torch.where(value < IMPOSSIBLE, torch.full_like(value, -torch.inf), value)
    return torch.where(value > -IMPOSSIBLE, torch.full_like(value, torch.inf), value)
