"""The exact log-probability of a label set and the posterior of every position.

The value and its gradient come from one pass: on the CPU by the alternating series where its error is certified
(`series`), elsewhere by sums of positive terms (`levels`), which also give second derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milbench.errors import UsageError
from milbench.likelihood import checks, columns, levels, series

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
    log_probs, labels, slots = _checked(log_probs, labels, mask, validate, max_labels)
    return _log_prob(log_probs, labels, mask, slots, normalise=False)


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
        validate: as in `bag_log_prob`; the values are those of labels and logits.
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
    checks.check_labels(logits, labels, validate, name="logits")
    labels = labels.bool()
    return _log_prob(logits, labels, mask, _largest(labels, max_labels), normalise=True)


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
    d log Prb(L | P) / d log p_{c,k}. Arguments, errors and memory are those of `bag_log_prob`.

    Returns:
        (B, C+1, *positions), background last, summing to 1 over the classes of L and the background; zero for other
        classes, at masked positions, and in bags whose label set cannot occur.

    Examples:
        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()  # two positions; one class and background, 1/2 each
        >>> instance_posterior(log_probs, torch.tensor([[True]]))  # in two of three label maps
        tensor([[[0.6667, 0.6667],
                 [0.3333, 0.3333]]])

    Source: X.-L. Li, arXiv:1811.12346, 2018, Proposition 1, differentiated; see docs/likelihood.md.
    """
    log_probs, labels, slots = _checked(log_probs, labels, mask, validate, max_labels)
    if len(log_probs) == 0:
        return log_probs.clone()
    _, posterior = _solved(log_probs, labels, mask, slots, normalise=False, gradient=True)
    return _with_derivative(posterior, log_probs, labels, mask, slots, normalise=False)


def _checked(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, validate: bool | None, max_labels: int | None
) -> tuple[Tensor, Tensor, int]:
    """Return the log-probabilities, renormalised in float32 if they are halves, labels as bool, and the largest |L|."""
    checks.check_log_probs(log_probs, mask, validate)
    checks.check_labels(log_probs, labels, validate)
    labels = labels.bool()
    return columns.renormalised_halves(log_probs, mask), labels, _largest(labels, max_labels)


def _largest(labels: Tensor, max_labels: int | None) -> int:
    """Return the largest |L|, or an upper bound where values are not looked at; UsageError above the limits."""
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


def _log_prob(values: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, normalise: bool) -> Tensor:
    """Return log Prb (B,) in the type of the values, with its derivatives."""
    if len(values) == 0:
        return values.new_zeros(0) + values.sum()
    derived = _derived(values) or checks.tracing()
    if torch.compiler.is_compiling() or not derived:  # what is compiled must not have derivatives of its own
        return _solved(values, labels, mask, slots, normalise=normalise, gradient=False)[0].to(values.dtype)
    value: Tensor = _applied(_LogProb, values, labels, mask, slots, normalise)[0]
    return value


def _applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """Apply a function; where functions are not transformed, without a look at its signature.

    The look takes a tenth of the time of value and gradient of a small batch.
    """
    if checks.tracing():
        return function.apply(*args)
    return super(torch.autograd.Function, function).apply(*args)  # type: ignore[misc]


def _derived(values: Tensor) -> bool:
    dual = torch.autograd.forward_ad.unpack_dual(values).tangent is not None
    return dual or (torch.is_grad_enabled() and values.requires_grad)


def _solved(
    values: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, normalise: bool, gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return log Prb (B,) and, with `gradient`, its gradient by the values, in their shape and type."""
    if values.device.type != "cpu" or values.numel() == 0 or checks.tracing():
        return _by_levels(values, labels, mask, slots, normalise=normalise, gradient=gradient)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):  # autocast would take the sums in bfloat16
        flat = values.reshape(*values.shape[:2], -1)
        flat_mask = None if mask is None else mask.reshape(len(mask), -1)
        found, slope = series.solve(flat, labels, flat_mask, normalise=normalise, gradient=gradient)
        return found, found if slope is None else slope.view(values.shape)


def _by_levels(
    values: Tensor, labels: Tensor, mask: Tensor | None, slots: int, *, normalise: bool, gradient: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the same as `_solved`, on any device, and with a gradient that is differentiable."""
    log_probs = values.to(columns.working_dtype(values))
    if normalise:
        log_probs = log_probs.log_softmax(dim=1)
    value, slope = levels.solve_bags(log_probs, labels, mask, slots, posterior=gradient)
    if slope is None:
        return value, value
    slope = slope.reshape(values.shape)
    if normalise:
        impossible = (value == -torch.inf).view(-1, *[1] * (values.dim() - 1))
        slope = (slope - log_probs.exp()).masked_fill(impossible, 0.0)
    if mask is not None:
        slope = slope.masked_fill(~mask.unsqueeze(1), 0.0)
    return value, slope.to(values.dtype)


class _LogProb(torch.autograd.Function):
    """log Prb and its gradient by the values, which are log-probabilities or, with `normalise`, logits."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        values: Tensor, labels: Tensor, mask: Tensor | None, slots: int, normalise: bool
    ) -> tuple[Tensor, Tensor]:
        value, slope = _solved(values, labels, mask, slots, normalise=normalise, gradient=True)
        return value.to(values.dtype), slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        values, labels, mask, ctx.slots, ctx.normalise = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # zeros in the shape of the values, for nothing
        ctx.save_for_backward(values, labels, mask, output[1])
        ctx.save_for_forward(values, labels, mask, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, None, None, None, None]:
        if grad is None:
            return None, None, None, None, None
        values, labels, mask, slope = ctx.saved_tensors
        slope = _with_derivative(slope, values, labels, mask, ctx.slots, ctx.normalise)
        return slope * grad.view(-1, *[1] * (slope.dim() - 1)), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        return torch.sum((ctx.saved_tensors[3] * tangent).flatten(1), dim=1), None


def _with_derivative(
    slope: Tensor, values: Tensor, labels: Tensor, mask: Tensor | None, slots: int, normalise: bool
) -> Tensor:
    """Return the gradient of log Prb as a differentiable function of the values."""
    if torch.compiler.is_compiling() or not (_derived(values) or checks.tracing()):
        return slope
    found: Tensor = _applied(_Slope, values, labels, mask, slope, slots, normalise)
    return found


class _Slope(torch.autograd.Function):
    """The gradient of log Prb, which is known; its derivative, a symmetric matrix, is that of `levels`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*given: Any) -> Tensor:
        slope: Tensor = given[3]
        return slope.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        *tensors, _, ctx.slots, ctx.normalise = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        return _Slope._product(ctx, grad), None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _Slope._product(ctx, tangent)

    @staticmethod
    def _product(ctx: Any, vector: Tensor) -> Tensor:
        values, labels, mask = ctx.saved_tensors

        def slope(values: Tensor) -> Tensor:
            return _by_levels(values, labels, mask, ctx.slots, normalise=ctx.normalise)[1]

        product: Tensor
        if checks.tracing():
            (product,) = torch.func.vjp(slope, values)[1](vector)
            return product
        again = torch.is_grad_enabled() and values.requires_grad
        with torch.enable_grad():
            leaf = values if again else values.detach().requires_grad_()
            (product,) = torch.autograd.grad(slope(leaf), leaf, vector, create_graph=again)
        return product
