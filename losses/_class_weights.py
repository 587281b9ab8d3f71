"""Weights of the classes, as users give them to a loss that is a sum over classes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from milbench import UsageError

if TYPE_CHECKING:
    ClassWeights = float | Sequence[float] | Tensor | None
    PositiveWeights = ClassWeights | Literal["balanced"]
else:
    # Parameters from a spec are checked against these types at run time, and JSON has no tensors.
    ClassWeights = float | list[float] | None
    PositiveWeights = float | list[float] | Literal["balanced"] | None


def as_argument(values: Any) -> Any:
    """Return weights as a loss keeps them among its arguments: a tensor or an array as a number or a list."""
    return values.tolist() if hasattr(values, "tolist") else values


def as_class_weights(name: str, values: PositiveWeights) -> Tensor | None:
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


def balanced_weights(counts: Tensor, bags: int) -> Tensor:
    """Return (C,) float32, (N - n_c) / n_c, where n_c of the N bags have the class; 1 where all have it, or none.

    Args:
        counts: (C,), n_c.
        bags: N.
    """
    absent = bags - counts
    is_mixed = (counts > 0) & (absent > 0)
    # A class without bags gets the weight 1 below. The clamp keeps its ratio from being divided by
    # 0.
    ratio = absent / counts.clamp(min=1)
    return torch.where(is_mixed, ratio, 1.0).float()
