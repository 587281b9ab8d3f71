"""The exact log-probability of a label set and the posterior of every position, with the choice of the algorithm.

Value and posterior are computed together, by one algorithm on the CPU, where bags are grouped by |L| (`fused` from
logits, `grouped` from their logarithms), and another on accelerators, which takes few operators and never looks at a
value (`levels`). For derivatives of the posterior, torch.compile and torch.func, the same sums are written in
differentiable operators (`tree`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, fused, grouped, levels, tree

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
        cannot occur, as where |L| exceeds the number of positions. Sums are computed in float64. Half precisions are
        normalised anew before: their rounding moves the sum of the probabilities of a position by up to 1 %.

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
    for n > 8: 8 bytes * 6 * 2^21, and 8 bytes * 4^n K / 2^21 more where bags are scanned. On an accelerator: 8 bytes *
    B K 2^n, about 12 times, and for n <= 6 another 2 (n + 1) times. For second derivatives: about 8 B K 3^n numbers of
    the input's type for n <= 6, 4 n B K 2^n for larger n.

    Source: X.-L. Li, arXiv:1811.12346, 2018, Proposition 1, summed without alternating signs; see docs/likelihood.md.
    """
    log_probs, labels, slots = _checked(log_probs, labels, mask, validate, max_labels)
    if log_probs.shape[0] == 0:
        return log_probs.new_zeros(0) + log_probs.sum()
    if checks.tracing():
        return _traceable(log_probs, labels, mask, slots)
    if (torch.is_grad_enabled() and log_probs.requires_grad) or _has_tangent(log_probs):
        value: Tensor = _Exact.apply(log_probs, labels, mask, slots)
        return value
    return _solved(log_probs, labels, mask, slots, posterior=False)[0].to(log_probs.dtype)


def bag_log_prob_from_logits(
    logits: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool | None = None,
    max_labels: int | None = None,
) -> Tensor:
    """Return `bag_log_prob` of the softmax of logits over dim 1; on the CPU it is quicker for small label sets.

    The gradient by the logits is the posterior minus the softmax, and is computed with the value. Twice differentiable.

    Args:
        logits: (B, C+1, *positions) floating point, finite, background last.
        labels: (B, C), bool or 0/1, the label sets; at most EXACT_LABEL_LIMIT classes each.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        validate: as in `bag_log_prob`; here the values that are checked are those of the labels and that of every
            logit, which has to be finite.
        max_labels: as in `bag_log_prob`.

    Returns:
        (B,), in nats, in the type of `logits` (float32 for half precisions), as `bag_log_prob` returns it.

    Raises:
        UsageError: as in `bag_log_prob`, or a logit is not finite.

    Examples:
        >>> import torch
        >>> logits = torch.zeros(1, 2, 2)  # two positions; one class and background, 1/2 each
        >>> bag_log_prob_from_logits(logits, torch.tensor([[True]])).exp()  # three of four label maps
        tensor([0.7500])

    Source: as `bag_log_prob`; see docs/likelihood.md for the form of the sum.
    """
    checks.check_logits(logits, mask, validate)
    if mask is not None:
        logits = logits.masked_fill(~mask.unsqueeze(1), 0.0)
    logits = logits.to(columns.result_dtype(logits))
    if logits.device.type != "cpu" or checks.tracing() or logits.numel() == 0:
        return bag_log_prob(logits.log_softmax(dim=1), labels, mask, validate=False, max_labels=max_labels)
    checks.check_labels(logits, labels, validate, name="logits")
    labels = labels.bool()
    _largest(labels, max_labels)
    if (torch.is_grad_enabled() and logits.requires_grad) or _has_tangent(logits):
        value: Tensor = _ExactFromLogits.apply(logits, labels, mask)
        return value
    return _fused(logits, labels, mask, gradient=False)[0].to(logits.dtype)


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
    given, dtype = log_probs, columns.result_dtype(log_probs)
    log_probs, labels, slots = _checked(log_probs, labels, mask, validate, max_labels)
    if checks.tracing():
        derivative: Tensor = torch.func.grad(lambda p: _traceable(p, labels, mask, slots).sum())(log_probs)
        return derivative
    differentiable = torch.is_grad_enabled() and given.requires_grad
    if not differentiable and log_probs.shape[0]:
        return _solved(log_probs, labels, mask, slots, posterior=True)[1]
    with torch.enable_grad():
        leaf = log_probs if differentiable else log_probs.detach().requires_grad_()
        value = bag_log_prob(leaf, labels, mask, validate=False, max_labels=max_labels)
        (posterior,) = torch.autograd.grad(value.sum(), leaf, create_graph=differentiable)
    return posterior.to(dtype)


def _checked(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, validate: bool | None, max_labels: int | None
) -> tuple[Tensor, Tensor, int]:
    """Return the log-probabilities, renormalised in float32 if they are halves, labels as bool, and the largest |L|."""
    checks.check_log_probs(log_probs, mask, validate)
    checks.check_labels(log_probs, labels, validate)
    labels = labels.bool()
    return columns.renormalised_halves(log_probs, mask), labels, _largest(labels, max_labels)


def _largest(labels: Tensor, max_labels: int | None) -> int:
    """Return the largest |L|, or where values are not looked at, an upper bound of it.

    Raises:
        UsageError: it exceeds EXACT_LABEL_LIMIT or `max_labels`.
    """
    classes = labels.shape[1]
    known = checks.tracing() or labels.device.type == "meta" or (labels.device.type != "cpu" and max_labels is not None)
    if known:
        largest = classes if max_labels is None else min(classes, max_labels)
    else:
        largest = int(labels.sum(dim=1).max()) if len(labels) else 0
    limit = EXACT_LABEL_LIMIT if max_labels is None else min(max_labels, EXACT_LABEL_LIMIT)
    if largest > limit:
        what, hint = ("may have bags of up to", "give max_labels, or ") if known else ("have a bag with", "")
        raise UsageError(
            f"labels {tuple(labels.shape)} {what} |L| = {largest}, above the "
            f"{'exact limit' if limit == EXACT_LABEL_LIMIT else 'max_labels'} of {limit}: "
            f"{hint}use bag_log_prob_bounds for larger label sets (method upper or lower)"
        )
    return largest


def _has_tangent(value: Tensor) -> bool:
    """Return whether forward-mode differentiation needs the derivative of a function of `value`."""
    return torch.autograd.forward_ad.unpack_dual(value).tangent is not None


def _solved(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, posterior: bool
) -> tuple[Tensor, Tensor]:
    """Return log Prb (B,) and, with `posterior`, the posterior (B, C+1, *positions) in the type of `log_probs`."""
    with torch.no_grad():
        if log_probs.device.type != "cpu":
            return _by_levels(log_probs, labels, mask, slots, posterior=posterior)
        value, found = grouped.solve(log_probs, labels, mask, posterior=posterior)
        return value, grouped.scattered(found, log_probs) if posterior else value


def _by_levels(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, posterior: bool
) -> tuple[Tensor, Tensor]:
    """Return the same by `levels`, on any device and without a look at a value."""
    parts = columns.select(columns.flat(log_probs, mask), labels, slots)
    if not posterior:
        value = _total(parts, levels.log_ratio(parts), slots)
        return value, value
    solution = levels.solve(parts)
    order = columns.label_order(labels, slots).unsqueeze(-1).expand_as(solution.required)
    others = solution.required.new_zeros(*labels.shape, solution.required.shape[-1])
    dense = torch.cat([others.scatter(1, order, solution.required), solution.background.unsqueeze(1)], dim=1)
    value = _total(parts, solution.ratio, slots)
    dense = dense.masked_fill((value == -torch.inf).view(-1, 1, 1), 0.0)
    if mask is not None:
        dense = dense.masked_fill(~mask.reshape(len(mask), 1, -1), 0.0)
    return value, dense.reshape(log_probs.shape).to(log_probs.dtype)


class _Exact(torch.autograd.Function):
    """log Prb, whose gradient is the posterior: both are computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int) -> Tensor:
        value, posterior = _solved(log_probs, labels, mask, slots, posterior=True)
        _keep(ctx, log_probs, labels, mask, posterior)
        ctx.slots = slots
        return value.to(log_probs.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        log_probs, labels, mask, posterior = ctx.saved_tensors
        if _differentiated_again(log_probs, grad):
            with torch.enable_grad():
                value = _differentiable(log_probs, labels, mask, ctx.slots)
                (gradient,) = torch.autograd.grad(value, log_probs, grad, create_graph=True)
            return gradient, None, None, None
        return _weighted(posterior, grad), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return torch.sum((ctx.saved_tensors[3] * tangent).flatten(1), dim=1)


class _ExactFromLogits(torch.autograd.Function):
    """log Prb of the softmax of logits on the CPU, computed together with its gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        value, gradient = _fused(logits, labels, mask, gradient=True)
        _keep(ctx, logits, labels, mask, gradient)
        return value.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, mask, gradient = ctx.saved_tensors
        if _differentiated_again(logits, grad):
            with torch.enable_grad():
                value = _differentiable(logits.log_softmax(dim=1), labels, mask, labels.shape[1])
                (again,) = torch.autograd.grad(value, logits, grad, create_graph=True)
            return again, None, None
        return _weighted(gradient, grad), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return torch.sum((ctx.saved_tensors[3] * tangent).flatten(1), dim=1)


def _fused(logits: Tensor, labels: Tensor, mask: Tensor | None, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return log Prb (B,) and, with `gradient`, its gradient in the shape of the logits."""
    # Autocast would take the sums in bfloat16.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        flat = logits.reshape(*logits.shape[:2], -1)
        flat_mask = None if mask is None else mask.reshape(len(mask), -1)
        value, slope = fused.solve(flat, labels, flat_mask, gradient=gradient)
        return value, value if slope is None else slope.view(logits.shape)


def _differentiated_again(value: Tensor, grad: Tensor) -> bool:
    """Return whether the derivative by `value` is itself to be differentiated."""
    return (torch.is_grad_enabled() and (value.requires_grad or grad.requires_grad)) or _has_tangent(value)


def _keep(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def _weighted(gradient: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient (B, ...) times the weight (B,) of each bag."""
    return gradient * weight.view(-1, *[1] * (gradient.dim() - 1))


def _differentiable(log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int) -> Tensor:
    """Return log Prb (B,) by differentiable operations; on the CPU one |L| at a time."""
    if log_probs.device.type != "cpu":
        return _traceable(log_probs, labels, mask, slots)
    sizes = labels.sum(dim=1)
    value = torch.zeros_like(log_probs.flatten(1).sum(dim=1))
    for size in sizes.unique().tolist():
        rows = torch.nonzero(sizes == size).squeeze(1)
        part = _traceable(log_probs[rows], labels[rows], None if mask is None else mask[rows], size)
        value = value.index_put((rows,), part)
    return value


def _traceable(log_probs: Tensor, labels: Tensor, mask: Tensor | None, slots: int) -> Tensor:
    """Return log Prb (B,) by differentiable operations whose order depends on shapes and `slots` alone."""
    parts = columns.select(columns.flat(log_probs, mask), labels, slots)
    dtype = columns.result_dtype(log_probs)
    return _total(parts, tree.log_ratio(columns.narrowed(parts, dtype)), slots).to(dtype)


def _total(parts: columns.Columns, ratio: Tensor, slots: int) -> Tensor:
    """Return log Prb (B,) from log R: -inf where L cannot occur, NaN where it has more classes than there are slots."""
    total = columns.floor_to_infinity(parts.log_scale + ratio)
    return torch.where(parts.size > slots, torch.full_like(total, torch.nan), total)
