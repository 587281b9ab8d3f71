"""The probability that a class occurs at all in a bag, whatever other classes occur."""

import math

import torch
from torch import Tensor

from milbench.likelihood import argument_checks, columns
from milbench.likelihood.columns import FLOOR

_SMALL = -18.0
"""The largest log x at which two series replace their functions.

Below it, log(-log(1 - x)) = log x + x / 2 and log(1 - exp(-x)) = log x - x / 2 in double precision.
"""


def presence_log_prob(
    log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True
) -> Tensor:
    """Return the log-probability that each class occurs at one position at least.

    It is log(1 - prod_k (1 - p_{c,k})), where p_{c,k} is the probability of class c at position k.
    It is accurate for rare classes, and differentiable. Only the validation looks at values.
    Memory: about eight float64 tensors of B (C+1) K numbers. Arguments and errors are those of
    `bag_log_prob`.

    Returns:
        (B, C), in nats, whatever other classes occur; -inf for impossible classes.

    Examples:
        At each of two positions the log-probability of the class is -200. A probability this small
        is 0 in float32, but its logarithm is found: log(2) - 200.

        >>> import torch
        >>> log_probs = torch.tensor([[[-200.0, -200.0], [0.0, 0.0]]])
        >>> presence_log_prob(log_probs)
        tensor([[-199.3069]])

    Source: O. Maron and T. Lozano-Perez, "A Framework for Multiple-Instance Learning", NIPS 1997
    (noisy-OR).
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    log_present = _log_present(_log_rate(log_probs, mask))
    return _restored(log_present, log_probs)


def presence_log_odds(
    log_probs: Tensor, mask: Tensor | None = None, *, validate: bool = True
) -> Tensor:
    """Return the log-odds (B, C) that each class occurs.

    They rank classes even where probabilities round to 1. They are infinite for certain and
    impossible classes. All else is as in `presence_log_prob`.

    Examples:
        The class occurs with probability 3/4, and its log-odds are log 3.

        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()
        >>> presence_log_odds(log_probs)
        tensor([[1.0986]])
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    log_rate = _log_rate(log_probs, mask)
    # The log-odds are log P - log(1 - P). The class is absent with probability exp(-r), so that
    # -log(1 - P) is the rate r.
    log_odds = _log_present(log_rate) + torch.exp(log_rate)
    return _restored(log_odds, log_probs)


def _log_rate(log_probs: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B, C), log r, where r = -sum_k log(1 - p_{c,k}) is called the rate of class c.

    The class is absent from the bag with probability exp(-r).
    """
    values = columns.renormalised_halves(log_probs, mask)
    values = values.reshape(*values.shape[:2], math.prod(values.shape[2:]))
    values = values.to(columns.working_dtype(values)).clamp(min=FLOOR)
    if mask is not None:
        # A masked position shows the background for certain.
        masked = ~mask.reshape(len(mask), 1, values.shape[-1])
        classes = values[:, :-1].masked_fill(masked, FLOOR)
        background = values[:, -1:].masked_fill(masked, 0.0)
        values = torch.cat([classes, background], dim=1)
    if values.shape[-1] == 0:
        # Without positions no class occurs.
        batch, channels, _ = values.shape
        return values.new_full((batch, channels - 1), FLOOR)

    channel = torch.arange(values.shape[1], device=values.device).reshape(1, -1, 1)
    is_largest = channel == values.argmax(dim=1, keepdim=True)
    # After rounding, two channels may both have probabilities a little above 1/2. Only the largest
    # is treated as likely.
    is_likely = is_largest & (values > math.log(0.5))
    # For a likely channel the difference 1 - p loses digits. The sum of the other channels is used
    # instead.
    others = torch.where(is_largest, torch.full_like(values, FLOOR), values)
    log_rest = torch.logsumexp(others, dim=1, keepdim=True)
    # Only likely channels use this value, and the rest of a likely channel is below 1/2. Where no
    # channel is likely, the rest may be 1, and the logarithm would have an infinite derivative. The
    # clamp avoids it, since the `where` below would make NaN of it.
    log_rate_by_rest = torch.log((-log_rest).clamp(min=torch.finfo(values.dtype).tiny))
    # The formula for unlikely channels has an infinite derivative at p = 1. So likely channels get
    # some other value there, which the next `where` leaves out.
    log_p = torch.where(is_likely, torch.full_like(values, -1.0), values)
    log_rate = torch.where(is_likely, log_rate_by_rest, _log_rate_of_unlikely(log_p))
    return torch.logsumexp(log_rate[:, :-1], dim=-1)


def _log_rate_of_unlikely(log_p: Tensor) -> Tensor:
    """Return log(-log(1 - p)) from log p, for p of at most 1/2."""
    by_series = log_p + torch.exp(log_p) / 2
    by_definition = torch.log(-torch.log1p(-torch.exp(log_p.clamp(min=_SMALL))))
    return torch.where(log_p < _SMALL, by_series, by_definition)


def _log_present(log_rate: Tensor) -> Tensor:
    """Return log(1 - exp(-r)) from log r."""
    by_series = log_rate - torch.exp(log_rate) / 2
    by_definition = torch.log(-torch.expm1(-torch.exp(log_rate.clamp(min=_SMALL))))
    return torch.where(log_rate < _SMALL, by_series, by_definition)


def _restored(value: Tensor, log_probs: Tensor) -> Tensor:
    """Return log-probabilities or log-odds with infinities, in the type of results.

    A value of about FLOOR belongs to an impossible class, and becomes -inf. Log-odds of about
    -FLOOR belong to a certain class, since the log-probability of its absence is about FLOOR. They
    become +inf.
    """
    value = columns.floor_to_infinity(value)
    value = -columns.floor_to_infinity(-value)
    return value.to(columns.result_dtype(log_probs))
