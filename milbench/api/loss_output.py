"""Checks of what the methods of a loss return, with the file and line of the method at fault."""

from __future__ import annotations

import inspect
from typing import ClassVar, Protocol

from torch import Tensor

from milbench.errors import UsageError


class Named(Protocol):
    """A loss, as far as its errors tell of it."""

    name: ClassVar[str]


def checked(loss: Named, method: str, result: object, shape: tuple[int, ...]) -> Tensor:
    """Return what a method of a loss returned, if it has the right type and shape. Nothing here waits for a GPU.

    Args:
        loss: whose method returned the result.
        method: its name.
        result: to be checked.
        shape: that it must have.

    Raises:
        UsageError: the result is not a floating-point tensor of this shape.
    """
    if not isinstance(result, Tensor):
        raise fault(loss, method, f"a tensor {_tuple(shape)}", type(result).__name__)
    if result.shape != shape:
        raise fault(loss, method, _tuple(shape), _tuple(result.shape))
    if not result.is_floating_point():
        raise fault(loss, method, "floating point", str(result.dtype).removeprefix("torch."))
    return result


def fault(loss: Named, method: str, expected: str, got: str) -> UsageError:
    """Return the error that a method of a loss returned something else than it must.

    Args:
        loss: whose method it is.
        method: its name.
        expected: what the method must return.
        got: what it returned.
    """
    function = inspect.unwrap(getattr(type(loss), method))
    code = getattr(function, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return UsageError(f"loss {loss.name}{place} must return {expected} from {method}, got {got}")


def _tuple(shape: tuple[int, ...]) -> str:
    return str(tuple(shape))
