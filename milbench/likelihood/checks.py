"""Checks of the arguments that the functions of the package share; each error is one line that names the shapes."""

from __future__ import annotations

import torch
from torch import Tensor

from milbench.api.autocast import tracing as tracing  # noqa: PLC0414 re-exported
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
    bad = ~torch.isfinite(logits.detach())
    if mask is not None:
        bad &= mask.unsqueeze(1)
    if bool(bad.any()):
        where: list[int] = torch.nonzero(bad)[0].tolist()
        raise UsageError(
            f"logits must be finite; got {logits[tuple(where)]:.4g} at bag {where[0]}, channel {where[1]}, position "
            f"{tuple(where[2:])}, of logits {tuple(logits.shape)}"
        )


def check_log_probs(log_probs: Tensor, mask: Tensor | None, validate: bool) -> None:
    """Raise UsageError unless `log_probs` is (B, C+1, *positions), normalised, and `mask` fits it."""
    _check_shapes("log_probs", log_probs, mask)
    if not _checkable(log_probs, validate):
        return
    values = log_probs.detach()
    total = torch.logsumexp(values.to(torch.promote_types(values.dtype, torch.float32)), dim=1)
    bad = ~(total.abs() <= _SLACK[values.dtype])
    if mask is not None:
        bad &= mask
    if bool(bad.any()):
        where: list[int] = torch.nonzero(bad)[0].tolist()
        raise UsageError(
            "log_probs must be natural logarithms of probabilities that sum to 1 over dim 1, as from log_softmax; got "
            f"a sum of {total[tuple(where)].exp():.4g} at bag {where[0]}, position {tuple(where[1:])}, of log_probs "
            f"{tuple(log_probs.shape)}"
        )


def check_labels(values: Tensor, labels: Tensor, validate: bool, *, name: str = "log_probs") -> None:
    """Raise UsageError unless `labels` is (B, C), bool or 0/1, for `values` (B, C+1, *positions), called `name`."""
    expected = (values.shape[0], values.shape[1] - 1)
    if tuple(labels.shape) != expected:
        raise UsageError(
            f"labels must be (B, C) = {expected} for {name} (B, C+1, *positions) = {tuple(values.shape)}, "
            f"got shape {tuple(labels.shape)}"
        )
    if labels.device != values.device:
        raise UsageError(f"labels {expected} are on {labels.device}, {name} on {values.device}")
    if labels.dtype == torch.bool or not _checkable(labels, validate):
        return
    if bool(((labels != 0) & (labels != 1)).any()):
        raise UsageError(f"labels of shape {expected} must be bool or 0/1, got other values ({labels.dtype})")


def largest_set(labels: Tensor, max_labels: int | None, limit: int | None = None) -> int:
    """Return the largest |L|, or an upper bound where values are not read; UsageError above the limits."""
    classes = labels.shape[1]
    is_bound = tracing() or labels.device.type == "meta" or (labels.device.type != "cpu" and max_labels is not None)
    if is_bound:
        largest = classes if max_labels is None else min(classes, max_labels)
    else:
        largest = int(labels.sum(dim=1).max()) if len(labels) else 0
    if limit is not None and largest > limit:
        what, hint = ("may have bags of up to", "give max_labels, or ") if is_bound else ("have a bag with", "")
        raise UsageError(
            f"labels {tuple(labels.shape)} {what} |L| = {largest}, above the exact limit of {limit}: "
            f"{hint}use bag_log_prob_bounds for larger label sets (method upper or lower)"
        )
    if max_labels is not None and largest > max_labels:
        raise UsageError(
            f"labels {tuple(labels.shape)} have a bag with |L| = {largest}, above max_labels = {max_labels}"
        )
    return largest


def _check_shapes(name: str, values: Tensor, mask: Tensor | None) -> None:
    shape = tuple(values.shape)
    if not values.is_floating_point():
        raise UsageError(f"{name} must be floating point, got {values.dtype} of shape {shape}")
    if values.dim() < 2 or shape[1] < 1:
        raise UsageError(f"{name} must be (B, C+1, *positions) with the background last, got shape {shape}")
    if mask is not None:
        expected = (shape[0], *shape[2:])
        if tuple(mask.shape) != expected:
            raise UsageError(f"mask must be (B, *positions) = {expected} for {name} {shape}, got {tuple(mask.shape)}")
        if mask.dtype != torch.bool:
            raise UsageError(f"mask of shape {expected} must be bool, got {mask.dtype}")
