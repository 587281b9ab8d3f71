"""The exact log-probability of a label set and the posterior of every position, with the choice of the algorithm.

On the CPU, bags are grouped by |L|, and value and posterior are computed together (`grouped`). Where the computation
must not depend on values (accelerators, torch.compile, torch.func), and for derivatives of the posterior, the same sums
are computed in logarithms (`tree`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, grouped, tree

EXACT_LABEL_LIMIT = 16
"""The largest |L| that is summed exactly; `bag_log_prob_bounds` has bounds for larger label sets."""


def bag_log_prob(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool | None = None,
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
        validate: whether values are checked as well as shapes; None: yes, except inside torch.compile, torch.func and
            CUDA graph capture. False avoids a synchronisation on an accelerator.
        max_labels: an upper bound of |L|. With it an accelerator needs no synchronisation to find the largest |L|, and
            compiled code does no work for more classes. Where no error can be raised, a larger label set gives NaN.

    Returns:
        (B,), in nats, in the type of `log_probs` (float32 for half precisions): -inf, with a gradient of zero, where L
        cannot occur, as where |L| exceeds the number of positions. Sums are computed in float64; on an accelerator the
        states of the tree have the type of the result.

    Raises:
        UsageError: a shape or type is wrong, labels are neither bool nor 0/1, probabilities do not sum to 1, or a
            label set has more than EXACT_LABEL_LIMIT or `max_labels` classes. It is a ValueError.

    Examples:
        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()  # two positions; one class and background, 1/2 each
        >>> labels = torch.tensor([[True]])
        >>> bag_log_prob(log_probs, labels).exp()  # three of four label maps contain the class
        tensor([0.7500])
        >>> bag_log_prob(log_probs, ~labels).exp()  # the empty label set: background at both positions
        tensor([0.2500])
        >>> bag_log_prob(log_probs - 1, labels)
        Traceback (most recent call last):
        milbench.errors.UsageError: the C+1 probabilities of a position must sum to 1 ... got 0.3679 at bag 0, ...

    Peak memory, with n = |L|, K positions and groups of G bags of one |L|, G K 2^n <= 2^21 or G = 1. On the CPU for
    n <= 8: 8 bytes * (2 B (C+1) K + B K (n+1) + 2 G K 2^n), the last term G K (5 n + 5 * 2^n) where bags are scanned;
    for n > 8: 8 bytes * 6 * 2^21, and 8 bytes * 4^n K / 2^21 more where bags are scanned. Elsewhere, and for second
    derivatives: about 8 B K 3^n numbers of the input's type for n <= 6, 4 n B K 2^n for larger n.

    Source: X.-L. Li, arXiv:1811.12346, 2018, Proposition 1, summed without alternating signs; see docs/likelihood.md.
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
    """Return the posterior: the probability of each class at each position, given the label set; differentiable.

    It is the gradient of `bag_log_prob` with respect to `log_probs`: Prb(position k emits c | L, P) =
    d log Prb(L | P) / d log p_{c,k}. Memory is that of `bag_log_prob`.

    Args:
        log_probs: (B, C+1, *positions) floating point, natural logarithms of probabilities that sum to 1 over dim 1,
            background last.
        labels: (B, C), bool or 0/1, the label sets; at most EXACT_LABEL_LIMIT classes each.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        validate: as in `bag_log_prob`.
        max_labels: as in `bag_log_prob`.

    Returns:
        (B, C+1, *positions), background last, summing to 1 over the classes of L and the background; zero for other
        classes, at masked positions, and in bags whose label set cannot occur.

    Raises:
        UsageError: as in `bag_log_prob`.

    Examples:
        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()  # two positions; one class and background, 1/2 each
        >>> instance_posterior(log_probs, torch.tensor([[True]]))  # in two of three label maps
        tensor([[[0.6667, 0.6667],
                 [0.3333, 0.3333]]])

    Source: X.-L. Li, arXiv:1811.12346, 2018, Proposition 1, differentiated; see docs/likelihood.md.
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
    """Return the labels as bool; values are checked unless `validate` is False or the call is being traced."""
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
    """The CPU path: the posterior is the gradient, hence both are computed in the forward pass."""

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
    """Return log Prb (B,) by differentiable operations, one |L| at a time."""
    sizes = labels.sum(dim=1)
    value = log_probs.new_zeros(len(labels), dtype=columns.result_dtype(log_probs))
    for size in sizes.unique().tolist():
        rows = torch.nonzero(sizes == size).squeeze(1)
        part = _traceable(log_probs[rows], labels[rows], None if mask is None else mask[rows], size)
        value = value.index_put((rows,), part)
    return value


def _traceable(log_probs: Tensor, labels: Tensor, mask: Tensor | None, max_labels: int | None) -> Tensor:
    """Return log Prb (B,) by differentiable operations; with `max_labels` their order depends on shapes alone."""
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
