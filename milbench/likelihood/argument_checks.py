"""Checks of the arguments that the functions of the package share.

Each error message is one line that names the shapes.
"""

import torch
from torch import Tensor

from milbench.contracts.autocast import tracing
from milbench.errors import UsageError

_SLACK = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 0.2}
"""The largest |log of the sum of a position's probabilities| that is accepted, by type.

The sum should be 1. The error of a softmax in the same type is much smaller.
"""
_USE_BOUNDS = "use bag_log_prob_bounds for larger label sets (method upper or lower)"


def _checkable(values: Tensor, validate: bool) -> bool:
    """Return whether values are to be checked, and the tensor has values to look at."""
    return validate and values.device.type != "meta" and not tracing()


def check_logits(logits: Tensor, mask: Tensor | None, validate: bool) -> None:
    """Raise UsageError unless `logits` is (B, C+1, *positions), finite, and `mask` fits it.

    `mask` is True where there is an instance; masked positions, where it is False, are not checked.
    """
    _check_shapes("logits", logits, mask)
    if not _checkable(logits, validate):
        return
    is_bad = ~torch.isfinite(logits.detach())
    if mask is not None:
        is_bad &= mask.unsqueeze(1)
    index = _first_index(is_bad)
    if index is None:
        return
    bag, channel, *position = index
    where = (
        f"bag {bag}, channel {channel}, position {tuple(position)}, of logits {tuple(logits.shape)}"
    )
    raise UsageError(f"logits must be finite; got {logits[index]:.4g} at {where}")


def check_log_probs(log_probs: Tensor, mask: Tensor | None, validate: bool) -> None:
    """Raise UsageError unless `log_probs` is (B, C+1, *positions), normalised, and `mask` fits it.

    `mask` means the same as in `check_logits`.
    """
    _check_shapes("log_probs", log_probs, mask)
    if not _checkable(log_probs, validate):
        return
    values = log_probs.detach()
    slack = _SLACK[values.dtype]
    # In half precision the sum would have a rounding error of its own.
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    log_sums = torch.logsumexp(values, dim=1)
    # Written with `~` and `<=`, so that a NaN is bad too.
    is_bad = ~(log_sums.abs() <= slack)
    if mask is not None:
        is_bad &= mask
    index = _first_index(is_bad)
    if index is None:
        return
    bag, *position = index
    where = f"bag {bag}, position {tuple(position)}, of log_probs {tuple(log_probs.shape)}"
    raise UsageError(
        "log_probs must be natural logarithms of probabilities that sum to 1 over dim 1, as from "
        f"log_softmax; got a sum of {log_sums[index].exp():.4g} at {where}"
    )


def _first_index(is_bad: Tensor) -> tuple[int, ...] | None:
    """Return the index of the first True entry, None where there is none."""
    if not bool(is_bad.any()):
        return None
    return tuple(torch.nonzero(is_bad)[0].tolist())


def check_labels(
    values: Tensor, labels: Tensor, validate: bool, *, name: str = "log_probs"
) -> None:
    """Raise UsageError unless `labels` is (B, C), bool or 0/1, on the device of `values`.

    `values` are (B, C+1, *positions). The message calls them by `name`.
    """
    expected = (values.shape[0], values.shape[1] - 1)
    if tuple(labels.shape) != expected:
        shape = f"(B, C+1, *positions) = {tuple(values.shape)}"
        raise UsageError(
            f"labels must be (B, C) = {expected} for {name} {shape}, "
            f"got shape {tuple(labels.shape)}"
        )
    if labels.device != values.device:
        raise UsageError(f"labels {expected} are on {labels.device}, {name} on {values.device}")
    if labels.dtype == torch.bool or not _checkable(labels, validate):
        return
    is_other = (labels != 0) & (labels != 1)
    if bool(is_other.any()):
        raise UsageError(
            f"labels of shape {expected} must be bool or 0/1, got other values ({labels.dtype})"
        )


def largest_size(labels: Tensor, max_labels: int | None, limit: int | None = None) -> int:
    """Return the largest size |L| of a label set, or an upper bound where labels are not read.

    Args:
        labels: (B, C) bool.
        max_labels: an upper bound that the caller knows. With it the host does not wait for an
            accelerator to read the labels there. Label sets on an accelerator are then not compared
            with the bound; larger sets get the likelihood NaN.
        limit: the largest |L| that can be summed exactly; None: any.

    Raises:
        UsageError: a label set, or the bound, is larger than `limit`, or a label set is larger than
            `max_labels`.
    """
    shape = tuple(labels.shape)
    if _reads_labels(labels, max_labels):
        largest = int(labels.sum(dim=1).max()) if len(labels) else 0
        if limit is not None and largest > limit:
            raise UsageError(
                f"labels {shape} have a bag with |L| = {largest}, above the exact limit of "
                f"{limit}: {_USE_BOUNDS}"
            )
        if max_labels is not None and largest > max_labels:
            raise UsageError(
                f"labels {shape} have a bag with |L| = {largest}, above max_labels = {max_labels}"
            )
        return largest
    num_classes = shape[1]
    bound = num_classes if max_labels is None else min(num_classes, max_labels)
    if limit is not None and bound > limit:
        raise UsageError(
            f"labels {shape} may have bags of up to |L| = {bound}, above the exact limit of "
            f"{limit}: give max_labels, or {_USE_BOUNDS}"
        )
    return bound


def _reads_labels(labels: Tensor, max_labels: int | None) -> bool:
    """Return whether `largest_size` reads the labels to find the size of label sets."""
    # Traced tensors and those on the device "meta" have no values.
    if tracing() or labels.device.type == "meta":
        return False
    # Reading from an accelerator means waiting for it. A known upper bound makes that unnecessary.
    return labels.device.type == "cpu" or max_labels is None


def _check_shapes(name: str, values: Tensor, mask: Tensor | None) -> None:
    """Raise UsageError unless values are (B, C+1, *positions), and `mask` fits them.

    The message calls the values by `name`.
    """
    shape = tuple(values.shape)
    if not values.is_floating_point():
        raise UsageError(f"{name} must be floating point, got {values.dtype} of shape {shape}")
    if values.dim() < 2 or shape[1] < 1:
        raise UsageError(
            f"{name} must be (B, C+1, *positions) with the background last, got shape {shape}"
        )
    if mask is None:
        return
    expected = (shape[0], *shape[2:])
    if tuple(mask.shape) != expected:
        raise UsageError(
            f"mask must be (B, *positions) = {expected} for {name} {shape}, got {tuple(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        raise UsageError(f"mask of shape {expected} must be bool, got {mask.dtype}")
