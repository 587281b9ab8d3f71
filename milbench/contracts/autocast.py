"""What a training loop may have switched on around the call of a loss: autocast, a compiler, or transforms."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from milbench.errors import UsageError

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def without_autocast(function: AnyFunction) -> AnyFunction:
    """Return a function `(loss, logits, ...)` that is computed without autocast: bfloat16 has only two digits."""

    @functools.wraps(function)
    def precise(loss: Any, logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(logits, torch.Tensor):
            raise UsageError(f"{loss.name}: logits must be a tensor, got {type(logits).__name__}")
        # PyTorch 2.10 cannot compile `is_autocast_available`. So it is not called while code is
        # compiled, which is done only for devices that have autocast. PyTorch could be told to take
        # its answer for a constant, but that would import the compiler, over a second in every
        # process.
        kind = logits.device.type
        if not torch.compiler.is_compiling() and not torch.amp.is_autocast_available(kind):
            return function(loss, logits, *args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(loss, logits, *args, **kwargs)

    return cast("AnyFunction", precise)


def inside_function_transform() -> bool:
    """Return whether a torch.func transform is active outside of compiled code."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active()  # noqa: SLF001


def transformed() -> bool:
    """Return whether this runs inside torch.compile or a torch.func transform."""
    return torch.compiler.is_compiling() or inside_function_transform()


def tracing() -> bool:
    """Return whether values are unavailable: inside torch.compile, torch.func transforms or a CUDA graph capture."""
    if transformed():
        return True
    # Where CUDA is not initialised nothing is captured, and to ask for a stream would initialise
    # it.
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
