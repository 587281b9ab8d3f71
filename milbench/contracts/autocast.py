"""What a training loop has switched on around a call: autocast, which losses leave, and tracing."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from milbench.errors import UsageError

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def without_autocast(function: AnyFunction) -> AnyFunction:
    """Return a function `(loss, logits, ...)` that autocast does not reach: bfloat16 would give a loss two digits."""

    @functools.wraps(function)
    def precise(loss: Any, logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(logits, torch.Tensor):
            raise UsageError(f"{loss.name}: logits must be a tensor, got {type(logits).__name__}")
        # PyTorch 2.10 cannot compile the call itself, and what is compiled runs on devices that have autocast. To mark
        # it as constant for the compiler would import the compiler: more than a second in every process.
        kind = logits.device.type
        if not torch.compiler.is_compiling() and not torch.amp.is_autocast_available(kind):
            return function(loss, logits, *args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(loss, logits, *args, **kwargs)

    return cast("AnyFunction", precise)


def inside_function_transform() -> bool:
    """Return whether torch.func transforms what is called, and torch.compile does not."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active()  # noqa: SLF001


def transformed() -> bool:
    """Return whether torch.compile or torch.func transforms what is called."""
    return torch.compiler.is_compiling() or inside_function_transform()


def tracing() -> bool:
    """Return whether values are unavailable: inside torch.compile, torch.func transforms or a CUDA graph capture."""
    return transformed() or (
        torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    )
