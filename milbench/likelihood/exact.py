"""The exact log-probability of a label set and the posterior of every instance: which engine runs where.

On the CPU bags are grouped by |L| and solved with value and posterior together (`grouped`); anywhere that values
must not be looked at, or where derivatives of the posterior are wanted, the same sums run in logarithms (`tree`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, grouped, tree

EXACT_LABEL_LIMIT = 16
"""The largest |L| that is summed exactly; `bag_log_prob_bounds` brackets larger ones."""


def bag_log_prob(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool | None = None,
    max_labels: int | None = None,
) -> Tensor:
    """Return the exact log Prb(L | P) of every bag's label set: (B,), in nats, twice differentiable.

    Args:
        log_probs: (B, C+1, *positions), natural logarithms that sum to 1 over dim 1, background last; -inf is a
            class ruled out. Computed in float64 (the tree's states in the input's own type on an accelerator) and
            returned in the input's type; half precisions count as float32.
        labels: (B, C), bool or 0/1: exactly these classes occur in the bag.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        validate: look at the values and raise on bad ones; None: do, except inside torch.compile, torch.func and
            CUDA graph capture. False avoids a synchronisation on an accelerator.
        max_labels: an upper bound of |L| that spares an accelerator the synchronisation that finds it, and compiled
            code the work for all C classes. A bag with more classes gets NaN where it cannot be raised.

    The value is -inf, with gradient zero, where L cannot occur, for one where |L| exceeds the number of positions.

    Raises:
        UsageError: a ValueError of one line, naming shapes: wrong rank, wrong number of classes, labels that are
            neither bool nor 0/1, a mask of another shape, log_probs that are positive or do not sum to 1, and label
            sets above EXACT_LABEL_LIMIT classes (see `bag_log_prob_bounds`).

    Peak memory, with n = |L|, K positions, G bags of one size at a time so that G K 2^n <= 2^21 (or one bag): on the
    CPU 8 bytes * (2 B (C+1) K + B K (n+1) + 2 G K 2^n, or where the series will not do G K (5 n + 5 * 2^n)); above 8
    classes instead 8 bytes * (6 * 2^21, and where the full scan must run 4^n K / 2^21). Elsewhere, and for second
    derivatives, about 8 B K 3^n numbers of the input's type for n <= 6, 4 n B K 2^n above.

    Source: Li, arXiv:1811.12346, Proposition 1, summed without its alternating signs; see docs/likelihood.md.
    """
    labels = _checked(log_probs, labels, mask, validate, max_labels)
    if log_probs.shape[0] == 0:
        return log_probs.new_zeros(0, dtype=columns.result_dtype(log_probs)) + log_probs.sum()
    if log_probs.device.type != "cpu" or checks.tracing():
        return _traceable(log_probs, labels, mask, max_labels)
    if torch.is_grad_enabled() and log_probs.requires_grad:
        value: Tensor = _Exact.apply(log_probs, labels, mask)
        return value
    return grouped.solve(log_probs, labels, mask, posterior=False)[0].to(columns.result_dtype(log_probs))


def instance_posterior(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool | None = None,
    max_labels: int | None = None,
) -> Tensor:
    """Return (B, C+1, *positions): Prb(position emits c | L, P), the background last; differentiable.

    Every position's numbers sum to 1 over c in L and the background and are zero elsewhere. All zero where masked and
    where L cannot occur. It is also the gradient of `bag_log_prob` with respect to log_probs; arguments, errors and
    memory are the same.
    """
    labels = _checked(log_probs, labels, mask, validate, max_labels)
    differentiable = torch.is_grad_enabled() and log_probs.requires_grad
    if log_probs.device.type == "cpu" and not differentiable and not checks.tracing() and log_probs.shape[0]:
        found = grouped.solve(log_probs, labels, mask, posterior=True)[1]
        return grouped.scattered(found, log_probs.to(columns.result_dtype(log_probs)))
    if torch._C._are_functorch_transforms_active():  # noqa: SLF001
        derivative: Tensor = torch.func.grad(lambda p: _traceable(p, labels, mask, max_labels).sum())(log_probs)
        return derivative
    with torch.enable_grad():
        leaf = log_probs if differentiable else log_probs.detach().requires_grad_()
        value = bag_log_prob(leaf, labels, mask, validate=False, max_labels=max_labels)
        (posterior,) = torch.autograd.grad(value.sum(), leaf, create_graph=differentiable)
    return posterior.to(columns.result_dtype(log_probs))


def _checked(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, validate: bool | None, max_labels: int | None
) -> Tensor:
    """Return the labels as bool, all inputs looked at as far as the circumstances allow."""
    checks.check_log_probs(log_probs, mask, validate)
    checks.check_labels(log_probs, labels, validate)
    labels = labels.bool()
    if checks.tracing() or validate is False or len(labels) == 0:
        return labels
    largest = int(labels.sum(dim=1).max())
    limit = EXACT_LABEL_LIMIT if max_labels is None else min(max_labels, EXACT_LABEL_LIMIT)
    if largest > limit:
        raise UsageError(
            f"labels {tuple(labels.shape)} have a bag with |L| = {largest}, above the "
            f"{'exact limit' if limit == EXACT_LABEL_LIMIT else 'max_labels'} of {limit}: "
            "use bag_log_prob_bounds for larger label sets (method upper or lower)"
        )
    return labels


class _Exact(torch.autograd.Function):
    """The CPU path: the posterior is the gradient, so it is computed along with the value."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        value, found = grouped.solve(log_probs, labels, mask, posterior=True)
        ctx.save_for_backward(log_probs, labels, mask, *(tensor for group in found for tensor in group))
        return value.to(columns.result_dtype(log_probs))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        log_probs, labels, mask, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled() and (log_probs.requires_grad or grad.requires_grad):
            value = _by_size(log_probs, labels, mask)
            (gradient,) = torch.autograd.grad(value, log_probs, grad, create_graph=True)
            return gradient, None, None
        found = [grouped.Posterior(*tensors[i : i + 4]) for i in range(0, len(tensors), 4)]
        return grouped.scattered(found, log_probs, grad), None, None


def _by_size(log_probs: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return the values by differentiable operations, the bags of each size on their own."""
    sizes = labels.sum(dim=1)
    value = log_probs.new_zeros(len(labels), dtype=columns.result_dtype(log_probs))
    for size in sizes.unique().tolist():
        rows = torch.nonzero(sizes == size).squeeze(1)
        part = _traceable(log_probs[rows], labels[rows], None if mask is None else mask[rows], size)
        value = value.index_put((rows,), part)
    return value


def _traceable(log_probs: Tensor, labels: Tensor, mask: Tensor | None, max_labels: int | None) -> Tensor:
    """Return the values by differentiable operations whose course depends on shapes alone."""
    slots = labels.shape[1]
    if max_labels is not None:
        slots = min(slots, max_labels)
    elif not checks.tracing():
        slots = int(labels.sum(dim=1).max())
    parts = columns.select(columns.flat(log_probs, mask), labels, slots)
    total = parts.log_scale + tree.log_ratio(columns.narrowed(parts, columns.result_dtype(log_probs)))
    total = columns.floor_to_infinity(total)
    if slots < labels.shape[1]:
        total = torch.where(parts.size > slots, torch.full_like(total, torch.nan), total)
    return total.to(columns.result_dtype(log_probs))
