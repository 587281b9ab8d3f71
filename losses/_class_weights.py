"""Check the class weights that users give to a loss, which is then a weighted sum over classes."""

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
    """Return a tensor or an array of weights as a number or a list, and other values as they are.

    A loss keeps its arguments in this form, which JSON can store.
    """
    return values.tolist() if hasattr(values, "tolist") else values


def as_class_weights(name: str, values: PositiveWeights) -> Tensor | None:
    """Return weights as a tensor of shape () or (C,), or None if none are given.

    Args:
        name: what the weights are, the first words of an error message.
        values: what the user gave. `balanced` must have been replaced by the caller.

    Raises:
        UsageError: the values are not finite numbers of 0 or more, or have another shape.
    """
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
    """Return (C,) float32, how many bags lack each class for every bag that has it.

    It is (N - n_c) / n_c, or 1 for a class that all bags have, or none.

    Args:
        counts: (C,), n_c, the number of bags that have each class.
        bags: N, the number of bags.
    """
    absent = bags - counts
    is_mixed = (counts > 0) & (absent > 0)
    # The clamp avoids a division by 0 for a class without bags, whose ratio is not used.
    ratio = absent / counts.clamp(min=1)
    return torch.where(is_mixed, ratio, 1.0).float()
