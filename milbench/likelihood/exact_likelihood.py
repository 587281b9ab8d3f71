"""The exact log-probability of a label set, and the posterior of every position given this set.

The value and its gradient are computed together. On the CPU this is done by an alternating series,
where the error of its sum is certified (`series`). Otherwise it is done by sums of positive terms
(`levels`), which also give second derivatives.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from milbench.contracts.autocast import tracing, transformed
from milbench.likelihood import argument_checks, columns, levels, log_sums, series

EXACT_LABEL_LIMIT = 16
"""The largest number of classes in a label set whose likelihood is summed exactly.

`bag_log_prob_bounds` has bounds for larger label sets.
"""


def bag_log_prob(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool = True,
    max_labels: int | None = None,
) -> Tensor:
    """Return the exact log-likelihood of every bag's label set; twice differentiable.

    It is log Prb(L | P), for a bag with label set L and probabilities P. Prb(L | P) is the
    probability that every class of L occurs at one position at least, and that all positions show a
    class of L or the background.

    Args:
        log_probs: (B, C+1, *positions) floating point, natural logarithms of probabilities that sum
            to 1 over dim 1, background last; -inf rules a class out.
        labels: (B, C), bool or 0/1, the label sets; at most EXACT_LABEL_LIMIT classes each.
        mask: (B, *positions) bool, True where there is an instance; None: everywhere.
        validate: whether values are checked as well as shapes, which makes the host wait for a GPU.
            Inside torch.compile, torch.func and CUDA graph capture, values are never checked.
        max_labels: an upper bound of the number of classes |L|. With it the host does not wait for
            an accelerator to find the largest |L|, and compiled code does no work for more classes.
            A larger label set raises UsageError; on an accelerator and in compiled code it gives
            NaN.

    Returns:
        (B,), in nats, in the type of `log_probs` (float32 for half precisions). The value is -inf,
        with a gradient of zero, where L cannot occur, for example because |L| exceeds the number of
        positions. Sums are computed in float64. Half-precision probabilities are normalised again
        before: rounding moves their sum at a position by up to 1 %.

    Raises:
        UsageError: a shape or type is wrong, labels are neither bool nor 0/1, probabilities do not
            sum to 1, or a label set has more than EXACT_LABEL_LIMIT or `max_labels` classes. It is
            a ValueError.

    Examples:
        Two positions, at which one class and the background have probability 1/2 each. Three of the
        four possible label maps contain the class.

        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()
        >>> bag_log_prob(log_probs, torch.tensor([[True]])).exp()
        tensor([0.7500])

    Peak memory, with n = |L| and K positions: on the CPU 8 bytes * (2 B (C+1) K + 2.5 * 2^21) where
    the error of the series is certified; otherwise about 12 times 8 bytes * 2^17, or 8 bytes * K
    4^n / 2^17 if that is more. On a GPU about 12 times 8 bytes * B K 2^n, of which intermediate
    results take at most 12 GiB. Second derivatives store about 20 n B K 2^n numbers.

    Source: X.-L. Li, arXiv:1811.12346, 2018, Proposition 1; see docs/likelihood.md.
    """
    values, bags = _check_log_probs(log_probs, labels, mask, validate, max_labels)
    return _log_prob(values, bags)


def bag_log_prob_from_logits(
    logits: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool = True,
    max_labels: int | None = None,
) -> Tensor:
    """Return `bag_log_prob` of the softmax of logits over dim 1.

    On the CPU this is quicker than a softmax and `bag_log_prob`, for small label sets. Logits are
    (B, C+1, *positions) floating point, finite, background last; all other arguments and the result
    are as in `bag_log_prob`. The gradient by the logits is the posterior minus the softmax. It is
    computed together with the value.

    Examples:
        Two positions, at which one class and the background have probability 1/2 each. Three of the
        four possible label maps contain the class.

        >>> import torch
        >>> logits = torch.zeros(1, 2, 2)
        >>> bag_log_prob_from_logits(logits, torch.tensor([[True]])).exp()
        tensor([0.7500])
    """
    values, bags = _check_logits(logits, labels, mask, validate, max_labels)
    return _log_prob(values, bags)


def instance_posterior(
    log_probs: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    validate: bool = True,
    max_labels: int | None = None,
) -> Tensor:
    """Return the probability of each class at each position, given the label set; differentiable.

    This posterior is the gradient of `bag_log_prob`: where p_{c,k} is the probability of class c at
    position k, Prb(position k emits c | L, P) = d log Prb(L | P) / d log p_{c,k}. Arguments, errors
    and memory are those of `bag_log_prob`.

    Returns:
        (B, C+1, *positions), background last. It sums to 1 over the classes of L and the
        background. It is zero for other classes, at masked positions, and in bags whose label set
        cannot occur.

    Examples:
        Two positions, at which one class and the background have probability 1/2 each. Three label
        maps contain the class. In two of them it occurs at the first position.

        >>> import torch
        >>> log_probs = torch.full((1, 2, 2), 0.5).log()
        >>> instance_posterior(log_probs, torch.tensor([[True]]))
        tensor([[[0.6667, 0.6667],
                 [0.3333, 0.3333]]])
    """
    log_probs, bags = _check_log_probs(log_probs, labels, mask, validate, max_labels)
    if len(log_probs) == 0:
        return log_probs.clone()
    if _needs_gradient(log_probs) or _has_own_derivatives(log_probs):
        _, posterior = _solve_by_levels(log_probs, bags, gradient=True)
    else:
        _, posterior = _solve(log_probs, bags, gradient=True)
    return posterior


class _Bags(NamedTuple):
    """What a computation has to know about bags besides their values.

    The values are logits or log-probabilities (B, C+1, *positions).
    """

    labels: Tensor
    """(B, C) bool."""
    mask: Tensor | None
    """(B, *positions) bool."""
    slots: int
    """The largest |L|, or an upper bound of it."""
    are_logits: bool
    """Whether the values are logits."""

    def select(self, bags: Tensor) -> "_Bags":
        """Return the same for the bags with indices (G,)."""
        mask = None if self.mask is None else self.mask[bags]
        return self._replace(labels=self.labels[bags], mask=mask)


def _check_log_probs(
    log_probs: Tensor, labels: Tensor, mask: Tensor | None, validate: bool, max_labels: int | None
) -> tuple[Tensor, _Bags]:
    """Check the arguments of a public function, and return the values and all else about the bags.

    The values are log-probabilities. Half precision becomes float32.
    """
    argument_checks.check_log_probs(log_probs, mask, validate)
    argument_checks.check_labels(log_probs, labels, validate)
    labels = labels.bool()
    log_probs = columns.renormalised_halves(log_probs, mask)
    slots = argument_checks.largest_size(labels, max_labels, EXACT_LABEL_LIMIT)
    values = log_probs.to(columns.result_dtype(log_probs))
    return values, _Bags(labels, mask, slots, are_logits=False)


def _check_logits(
    logits: Tensor, labels: Tensor, mask: Tensor | None, validate: bool, max_labels: int | None
) -> tuple[Tensor, _Bags]:
    """Check the arguments of a public function, and return the values and all else about the bags.

    The values are logits. Half precision becomes float32.
    """
    argument_checks.check_logits(logits, mask, validate)
    argument_checks.check_labels(logits, labels, validate, name="logits")
    labels = labels.bool()
    if mask is not None:
        # A masked position may hold anything. Through the softmax, a NaN would reach its gradient.
        logits = logits.masked_fill(~mask.unsqueeze(1), 0.0)
    slots = argument_checks.largest_size(labels, max_labels, EXACT_LABEL_LIMIT)
    values = logits.to(columns.result_dtype(logits))
    return values, _Bags(labels, mask, slots, are_logits=True)


def _log_prob(values: Tensor, bags: _Bags) -> Tensor:
    """Return log Prb (B,) in the type of the values; it can be differentiated."""
    if len(values) == 0:
        # The sum is 0. It connects the result to the values, so that `backward` works.
        return values.new_zeros(0) + values.sum()
    if _has_own_derivatives(values):
        log_prob, _ = _solve_by_levels(values, bags, gradient=False)
        return log_prob.to(values.dtype)
    if not _needs_gradient(values):
        log_prob, _ = _solve(values, bags, gradient=False)
        return log_prob.to(values.dtype)
    with_gradient: Tensor = _LogProb.apply(values, bags)
    return with_gradient


def _needs_gradient(values: Tensor) -> bool:
    return torch.is_grad_enabled() and values.requires_grad


def _has_own_derivatives(values: Tensor) -> bool:
    """Return whether torch has to differentiate through the operations of `levels`.

    This is so in forward mode and under torch.func and torch.compile, where `_LogProb` is not used.
    """
    return transformed() or log_sums.has_tangent(values)


def _solve(values: Tensor, bags: _Bags, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return log Prb (B,) and, with `gradient`, its gradient in the shape and type of the values.

    Without `gradient` the second tensor has no meaning.
    """
    if values.device.type != "cpu" or values.numel() == 0 or tracing():
        return _solve_by_levels(values, bags, gradient=gradient)
    # Autocast would compute the sums in bfloat16.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        flat = values.reshape(*values.shape[:2], -1)
        flat_mask = None if bags.mask is None else bags.mask.reshape(len(values), -1)
        log_prob, slope = series.solve(
            flat, bags.labels, flat_mask, normalise=bags.are_logits, gradient=gradient
        )
        # Without `gradient` any tensor may be returned as the second one.
        slope = log_prob if slope is None else slope.view(values.shape)
        # The bags for which the series certifies no value.
        unsure = torch.nonzero(log_prob.isnan()).squeeze(1)
        if len(unsure) == 0:
            return log_prob, slope
        log_prob[unsure], slope_of_unsure = _solve_by_levels(
            values[unsure], bags.select(unsure), gradient=gradient
        )
        if gradient:
            slope[unsure] = slope_of_unsure
            slope[log_prob.isnan()] = torch.nan
        return log_prob, slope


def _solve_by_levels(values: Tensor, bags: _Bags, *, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return the same as `_solve`, on any device, differentiable any number of times."""
    # Logits get the working type before the softmax: differences of large logits would round in
    # float32.
    log_probs = values.to(columns.working_dtype(values))
    if bags.are_logits:
        log_probs = log_sums.log_softmax(log_probs, 1)
    log_prob, posterior = levels.solve_bags(
        log_probs, bags.labels, bags.mask, bags.slots, posterior=gradient
    )
    if posterior is None:
        # Without `gradient` any tensor may be returned as the second one.
        return log_prob, log_prob
    slope = posterior.reshape(values.shape)
    if bags.are_logits:
        is_impossible = _per_bag(log_prob == -torch.inf, slope)
        slope = (slope - log_probs.exp()).masked_fill(is_impossible, 0.0)
    if bags.mask is not None:
        slope = slope.masked_fill(~bags.mask.unsqueeze(1), 0.0)
    return log_prob, slope.to(values.dtype)


def _per_bag(of_bags: Tensor, values: Tensor) -> Tensor:
    """Return a tensor (B,) as (B, 1, ...), which broadcasts over values (B, ...)."""
    other_dimensions = values.dim() - 1
    return of_bags.view(-1, *[1] * other_dimensions)


class _LogProb(torch.autograd.Function):
    """log Prb, with a gradient that is computed together with the value in the forward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, bags: _Bags) -> Tensor:
        log_prob, slope = _solve(values, bags, gradient=True)
        ctx.save_for_backward(values, slope)
        ctx.bags = bags
        return log_prob.to(values.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        values, slope = ctx.saved_tensors
        if _needs_gradient(values):
            # For a second derivative: the slope keeps its value from the forward pass, and gets the
            # derivative that `levels` computes.
            _, differentiable = _solve_by_levels(values, ctx.bags, gradient=True)
            slope = slope + (differentiable - differentiable.detach())
        return slope * _per_bag(grad, slope), None
