"""Weights of the classes, as users give them to a loss that is a sum over classes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from milbench import UsageError

if TYPE_CHECKING:
    ClassWeights = float | Sequence[float] | Tensor | None
    PositiveWeights = ClassWeights | Literal["balanced"]
else:
    # What a cell stores as JSON. A tensor becomes a list before it is checked against this.
    ClassWeights = float | list[float] | None
    PositiveWeights = float | list[float] | Literal["balanced"] | None


def as_class_weights(name: str, values: ClassWeights) -> Tensor | None:
    """Return weights as a tensor, () or (C,); raise UsageError, which begins with `name`, for anything else."""
    if values is None:
        return None
    expected = f"{name} must be a number of 0 or more, or a list of one for each class"
    if isinstance(values, str | bool):
        raise UsageError(f"{expected}, got {values!r}")
    try:
        weights = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(f"{expected}, got {values!r}") from None
    if weights.dtype == torch.bool or weights.is_complex():
        raise UsageError(f"{expected}, got {weights.dtype}")
    if weights.dim() > 1 or weights.numel() == 0:
        raise UsageError(f"{expected}, got the shape {tuple(weights.shape)}")
    if not weights.is_floating_point():
        weights = weights.float()
    is_bad = ~torch.isfinite(weights) | (weights < 0)
    if bool(is_bad.any()):
        raise UsageError(f"{expected}, got {float(weights[is_bad][0]):g}")
    return weights.detach().clone()
