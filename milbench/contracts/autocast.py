"""Switch autocast off around a loss, and tell whether the values of tensors can be looked at.

A training loop may call a loss under autocast, inside torch.compile or inside a torch.func
transform.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from milbench.errors import UsageError

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def without_autocast(function: AnyFunction) -> AnyFunction:
    """Return a function `(loss, logits, ...)` that switches autocast off while it runs.

    Autocast would compute a part of a loss in bfloat16, which has only two digits.
    """

    @functools.wraps(function)
    def precise(loss: Any, logits: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(logits, torch.Tensor):
            raise UsageError(f"{loss.name}: logits must be a tensor, got {type(logits).__name__}")
        # PyTorch 2.10 cannot compile `is_autocast_available`, so compiled code does not call it:
        # code is compiled only for devices that have autocast. PyTorch could be told to treat the
        # answer as a constant, but that would import the compiler, which takes over a second in
        # every process.
        device_type = logits.device.type
        if not torch.compiler.is_compiling() and not torch.amp.is_autocast_available(device_type):
            return function(loss, logits, *args, **kwargs)
        with torch.autocast(device_type, enabled=False):
            return function(loss, logits, *args, **kwargs)

    return cast("AnyFunction", precise)


def inside_function_transform() -> bool:
    """Return whether a torch.func transform is active; False inside compiled code."""
    if torch.compiler.is_compiling():
        return False
    # PyTorch has no public function for this question.
    return torch._C._are_functorch_transforms_active()  # noqa: SLF001


def transformed() -> bool:
    """Return whether this runs inside torch.compile or a torch.func transform."""
    return torch.compiler.is_compiling() or inside_function_transform()


def tracing() -> bool:
    """Return whether tensors have no values that code could look at.

    This is so inside torch.compile, torch.func transforms and the capture of a CUDA graph.
    """
    if transformed():
        return True
    # Nothing is captured before CUDA is initialised, and asking for a stream would initialise CUDA.
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
