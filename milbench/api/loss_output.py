"""Checks of what the methods of a loss return, with the file and line of the method at fault."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from milbench.errors import UsageError


def checked(loss: Any, method: str, result: object, shape: tuple[int, ...]) -> Tensor:
    """Return what a method of a loss returned, if it has the right type and shape, else raise UsageError.

    Nothing here waits for a GPU.
    """
    if not isinstance(result, Tensor):
        raise fault(loss, method, f"a tensor {tuple(shape)}", type(result).__name__)
    if result.shape != shape:
        raise fault(loss, method, str(tuple(shape)), str(tuple(result.shape)))
    if not result.is_floating_point():
        raise fault(loss, method, "floating point", str(result.dtype).removeprefix("torch."))
    return result


def fault(loss: Any, method: str, expected: str, got: str) -> UsageError:
    """Return the error that a method of a loss returned something else than it must."""
    function = inspect.unwrap(getattr(type(loss), method))
    code = getattr(function, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return UsageError(f"loss {loss.name}{place} must return {expected} from {method}, got {got}")
