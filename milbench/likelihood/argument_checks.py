"""Checks of the arguments that the functions of the package share; each error is one line that names the shapes."""

import torch
from torch import Tensor

from milbench.contracts.autocast import tracing as tracing  # noqa: PLC0414 re-exported
from milbench.errors import UsageError

_SLACK = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 0.2}
"""The largest |log sum_c p_{c,k}| that is accepted; that of a softmax in the same type is much smaller."""


def _checkable(values: Tensor, validate: bool) -> bool:
    return validate and values.device.type != "meta" and not tracing()


def check_logits(logits: Tensor, mask: Tensor | None, validate: bool) -> None:
    """Raise UsageError unless `logits` is (B, C+1, *positions), finite, and `mask` fits it."""
    _check_shapes("logits", logits, mask)
    if not _checkable(logits, validate):
        return
    if index := _first_index(
        ~torch.isfinite(logits.detach()), None if mask is None else mask.unsqueeze(1)
    ):
        place = f"bag {index[0]}, channel {index[1]}, position {index[2:]}, of logits {tuple(logits.shape)}"
        raise UsageError(f"logits must be finite; got {logits[index]:.4g} at {place}")


def check_log_probs(log_probs: Tensor, mask: Tensor | None, validate: bool) -> None:
    """Raise UsageError unless `log_probs` is (B, C+1, *positions), normalised, and `mask` fits it."""
    _check_shapes("log_probs", log_probs, mask)
    if not _checkable(log_probs, validate):
        return
    values = log_probs.detach()
    total = torch.logsumexp(values.to(torch.promote_types(values.dtype, torch.float32)), dim=1)
    if index := _first_index(~(total.abs() <= _SLACK[values.dtype]), mask):
        expected = (
            "natural logarithms of probabilities that sum to 1 over dim 1, as from log_softmax"
        )
        place = f"bag {index[0]}, position {index[1:]}, of log_probs {tuple(log_probs.shape)}"
        raise UsageError(
            f"log_probs must be {expected}; got a sum of {total[index].exp():.4g} at {place}"
        )


def _first_index(bad: Tensor, mask: Tensor | None) -> tuple[int, ...]:
    """Return the index of the first entry that is bad and not masked, () if there is none."""
    if mask is not None:
        bad &= mask
    return tuple(torch.nonzero(bad)[0].tolist()) if bool(bad.any()) else ()


def check_labels(
    values: Tensor, labels: Tensor, validate: bool, *, name: str = "log_probs"
) -> None:
    """Raise UsageError unless `labels` is (B, C), bool or 0/1, for `values` (B, C+1, *positions), called `name`."""
    expected = (values.shape[0], values.shape[1] - 1)
    if tuple(labels.shape) != expected:
        shape = f"(B, C+1, *positions) = {tuple(values.shape)}"
        raise UsageError(
            f"labels must be (B, C) = {expected} for {name} {shape}, got shape {tuple(labels.shape)}"
        )
    if labels.device != values.device:
        raise UsageError(f"labels {expected} are on {labels.device}, {name} on {values.device}")
    if (
        labels.dtype != torch.bool
        and _checkable(labels, validate)
        and bool(((labels != 0) & (labels != 1)).any())
    ):
        raise UsageError(
            f"labels of shape {expected} must be bool or 0/1, got other values ({labels.dtype})"
        )


def largest_set(labels: Tensor, max_labels: int | None, limit: int | None = None) -> int:
    """Return the largest |L|, or an upper bound where values are not read; UsageError above the limits."""
    classes, shape = labels.shape[1], tuple(labels.shape)
    is_bound = (
        tracing()
        or labels.device.type == "meta"
        or (labels.device.type != "cpu" and max_labels is not None)
    )
    if is_bound:
        largest = classes if max_labels is None else min(classes, max_labels)
    else:
        largest = int(labels.sum(dim=1).max()) if len(labels) else 0
    if limit is not None and largest > limit:
        verb, hint = (
            ("may have bags of up to", "give max_labels, or ")
            if is_bound
            else ("have a bag with", "")
        )
        hint += "use bag_log_prob_bounds for larger label sets (method upper or lower)"
        raise UsageError(
            f"labels {shape} {verb} |L| = {largest}, above the exact limit of {limit}: {hint}"
        )
    if max_labels is not None and largest > max_labels:
        raise UsageError(
            f"labels {shape} have a bag with |L| = {largest}, above max_labels = {max_labels}"
        )
    return largest


def _check_shapes(name: str, values: Tensor, mask: Tensor | None) -> None:
    shape = tuple(values.shape)
    if not values.is_floating_point():
        raise UsageError(f"{name} must be floating point, got {values.dtype} of shape {shape}")
    if values.dim() < 2 or shape[1] < 1:
        raise UsageError(
            f"{name} must be (B, C+1, *positions) with the background last, got shape {shape}"
        )
    if mask is not None:
        expected = (shape[0], *shape[2:])
        if tuple(mask.shape) != expected:
            raise UsageError(
                f"mask must be (B, *positions) = {expected} for {name} {shape}, got {tuple(mask.shape)}"
            )
        if mask.dtype != torch.bool:
            raise UsageError(f"mask of shape {expected} must be bool, got {mask.dtype}")
