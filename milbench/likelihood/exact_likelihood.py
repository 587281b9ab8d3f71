"""The exact log-probability of a label set and the posterior of every position.

The value and its gradient come from one pass: on the CPU by the alternating series where its error is certified
(`series`), elsewhere by sums of positive terms (`levels`), which also give second derivatives.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from milbench.contracts.autocast import transformed
from milbench.likelihood import argument_checks, columns, levels, log_sums, series

EXACT_LABEL_LIMIT = 16
"""The largest |L| that is summed exactly; `bag_log_prob_bounds` has bounds for larger label sets."""


def bag_log_prob(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool = True,
    max_labels: int | None = None,
) -> Tensor:
    """Return the exact log-likelihood of every bag's label set, log Prb(L | P); twice differentiable.

    Prb(L | P) is the probability that the positions together emit every class of L at least once, and otherwise
    background alone.

    Args:
        log_probs: (B, C+1, *positions) floating point, natural logarithms of probabilities that sum to 1 over dim 1,
            background last; -inf rules a class out.
        labels: (B, C), bool or 0/1, the label sets; at most EXACT_LABEL_LIMIT classes each.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        validate: whether values are checked as well as shapes, which makes a GPU wait; never inside torch.compile,
            torch.func and CUDA graph capture.
        max_labels: an upper bound of |L|. With it an accelerator does not wait to find the largest |L|, and compiled
            code does no work for more classes. Where no error can be raised, a larger label set gives NaN.

    Returns:
        (B,), in nats, in the type of `log_probs` (float32 for half precisions): -inf, with a gradient of zero, where L
        cannot occur, as where |L| exceeds the number of positions. Sums are computed in float64. Half precisions are
        normalised anew before: their rounding moves the sum of the probabilities of a position by up to 1 %.

    Raises:
        UsageError: a shape or type is wrong, labels are neither bool nor 0/1, probabilities do not sum to 1, or a
            label set has more than EXACT_LABEL_LIMIT or `max_labels` classes. It is a ValueError.

    Examples:
        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()  # two positions; one class and background, 1/2 each
        >>> bag_log_prob(log_probs, torch.tensor([[True]])).exp()  # three of four label maps contain the class
        tensor([0.7500])

    Peak memory, with n = |L| and K positions: on the CPU 8 bytes * (2 B (C+1) K + 2.5 * 2^21) where the series is
    certified, and about 12 times 8 bytes * 2^17 (or 8 bytes * K 4^n / 2^17 if that is more) elsewhere. On a GPU
    8 bytes * B K 2^n, about 12 times, and at most 12 GiB for its intermediate results. Second derivatives store about
    20 n B K 2^n numbers.

    Source: X.-L. Li, arXiv:1811.12346, 2018, Proposition 1; see docs/likelihood.md.
    """
    return _log_prob(*_check(log_probs, labels, mask, validate, max_labels))


def bag_log_prob_from_logits(
    logits: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool = True,
    max_labels: int | None = None,
) -> Tensor:
    """Return `bag_log_prob` of the softmax of logits over dim 1; on the CPU it is quicker for small label sets.

    Logits are (B, C+1, *positions) floating point, finite, background last; all else is as in `bag_log_prob`. The
    gradient by the logits, the posterior minus the softmax, is computed with the value.

    Examples:
        >>> import torch
        >>> logits = torch.zeros(1, 2, 2)  # two positions; one class and background, 1/2 each
        >>> bag_log_prob_from_logits(logits, torch.tensor([[True]])).exp()  # three of four label maps
        tensor([0.7500])
    """
    return _log_prob(*_check(logits, labels, mask, validate, max_labels, are_logits=True))


def instance_posterior(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool = True,
    max_labels: int | None = None,
) -> Tensor:
    """Return the posterior: the probability of each class at each position, given the label set; differentiable.

    It is the gradient of `bag_log_prob`: Prb(position k emits c | L, P) = d log Prb(L | P) / d log p_{c,k}. Arguments,
    errors and memory are those of `bag_log_prob`.

    Returns:
        (B, C+1, *positions), background last, summing to 1 over the classes of L and the background; zero for other
        classes, at masked positions, and in bags whose label set cannot occur.

    Examples:
        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()  # two positions; one class and background, 1/2 each
        >>> instance_posterior(log_probs, torch.tensor([[True]]))  # in two of three label maps
        tensor([[[0.6667, 0.6667],
                 [0.3333, 0.3333]]])
    """
    log_probs, bags = _check(log_probs, labels, mask, validate, max_labels)
    if len(log_probs) == 0:
        return log_probs.clone()
    solver = (
        _solve_by_levels
        if _needs_gradient(log_probs) or _has_own_derivatives(log_probs)
        else _solve
    )
    return solver(log_probs, bags, gradient=True)[1]


class _Bags(NamedTuple):
    """What belongs to values (B, C+1, *positions), which are logits or log-probabilities."""

    labels: Tensor  # (B, C) bool
    mask: Tensor | None  # (B, *positions) bool
    slots: int  # the largest |L|, or an upper bound of it
    are_logits: bool


def _check(
    values: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    validate: bool,
    max_labels: int | None,
    are_logits: bool = False,
) -> tuple[Tensor, _Bags]:
    """Return the values, in float32 if they are halves, and what belongs to them; raise UsageError for bad input."""
    (argument_checks.check_logits if are_logits else argument_checks.check_log_probs)(
        values, mask, validate
    )
    argument_checks.check_labels(
        values, labels, validate, name="logits" if are_logits else "log_probs"
    )
    labels = labels.bool()
    if not are_logits:
        values = columns.renormalised_halves(values, mask)
    elif mask is not None:
        values = values.masked_fill(~mask.unsqueeze(1), 0.0)
    slots = argument_checks.largest_set(labels, max_labels, EXACT_LABEL_LIMIT)
    return values.to(columns.result_dtype(values)), _Bags(labels, mask, slots, are_logits)


def _log_prob(values: Tensor, bags: _Bags) -> Tensor:
    """Return log Prb (B,) in the type of the values, with its derivatives."""
    if len(values) == 0:
        return values.new_zeros(0) + values.sum()
    if _has_own_derivatives(values):
        return _solve_by_levels(values, bags, gradient=False)[0].to(values.dtype)
    if not _needs_gradient(values):
        return _solve(values, bags, gradient=False)[0].to(values.dtype)
    value: Tensor = _LogProb.apply(values, bags)
    return value


def _needs_gradient(values: Tensor) -> bool:
    return torch.is_grad_enabled() and values.requires_grad


def _has_own_derivatives(values: Tensor) -> bool:
    """Return whether the operations of `levels` must be differentiated themselves, as in forward mode."""
    return transformed() or log_sums.has_tangent(values)


def _solve(values: Tensor, bags: _Bags, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return log Prb (B,) and, with `gradient`, its gradient by the values, in their shape and type."""
    if values.device.type != "cpu" or values.numel() == 0 or argument_checks.tracing():
        return _solve_by_levels(values, bags, gradient=gradient)
    labels, mask, _, are_logits = bags
    with (
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
    ):  # autocast would take the sums in bfloat16
        flat = values.reshape(*values.shape[:2], -1)
        flat_mask = None if mask is None else mask.reshape(len(mask), -1)
        value, slope = series.solve(
            flat, labels, flat_mask, normalise=are_logits, gradient=gradient
        )
        slope = value if slope is None else slope.view(values.shape)
        unsure = torch.nonzero(value.isnan()).squeeze(1)
        if len(unsure):
            unsure_bags = bags._replace(
                labels=labels[unsure], mask=None if mask is None else mask[unsure]
            )
            value[unsure], recomputed = _solve_by_levels(
                values[unsure], unsure_bags, gradient=gradient
            )
            if gradient:
                slope[unsure] = recomputed
                slope[value.isnan()] = torch.nan
        return value, slope


def _solve_by_levels(values: Tensor, bags: _Bags, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return the same as `_solve`, on any device, differentiable any number of times."""
    labels, mask, slots, are_logits = bags
    log_probs = values.to(
        columns.working_dtype(values)
    )  # also since float32 would round differences of large logits
    if are_logits:
        log_probs = log_sums.log_softmax(log_probs, 1)
    value, slope = levels.solve_bags(log_probs, labels, mask, slots, posterior=gradient)
    if slope is None:
        return value, value
    slope = slope.reshape(values.shape)
    if are_logits:
        impossible = (value == -torch.inf).view(-1, *[1] * (values.dim() - 1))
        slope = (slope - log_probs.exp()).masked_fill(impossible, 0.0)
    if mask is not None:
        slope = slope.masked_fill(~mask.unsqueeze(1), 0.0)
    return value, slope.to(values.dtype)


class _LogProb(torch.autograd.Function):
    """log Prb, whose gradient is computed with it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, bags: _Bags) -> Tensor:
        value, slope = _solve(values, bags, gradient=True)
        ctx.save_for_backward(values, slope)
        ctx.bags = bags
        return value.to(values.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        values, slope = ctx.saved_tensors
        if _needs_gradient(values):  # a second derivative is that of `levels`
            differentiable = _solve_by_levels(values, ctx.bags, gradient=True)[1]
            slope = slope + (differentiable - differentiable.detach())
        return slope * grad.view(-1, *[1] * (slope.dim() - 1)), None
