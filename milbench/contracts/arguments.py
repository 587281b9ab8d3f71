"""The arguments of a constructor, as an object keeps them: each as an attribute of the same name."""

import inspect
from typing import Any

import torch

_NOT_KEPT = object()


def kept_arguments(module: torch.nn.Module) -> dict[str, Any]:
    """Return the arguments of the constructor that a module keeps, by name."""
    kept = {}
    for name in inspect.signature(type(module)).parameters:
        value = getattr(module, name, _NOT_KEPT)
        # A weight that is trained is no argument, even where it has the name of one.
        if value is not _NOT_KEPT and not isinstance(value, torch.nn.Parameter):
            kept[name] = value
    return kept


def changed_arguments(module: torch.nn.Module) -> str:
    """Return the arguments that differ from their defaults, for the `repr` of a module."""
    parameters = inspect.signature(type(module)).parameters
    parts = []
    for name, value in kept_arguments(module).items():
        if not _is_same(value, parameters[name].default):
            parts.append(f"{name}={_as_plain(value)!r}")
    return ", ".join(parts)


def _is_same(value: object, default: object) -> bool:
    """Return whether an argument is the default, or equal to it. True and 1 are not equal."""
    if value is default:
        return True
    if type(value) is not type(default):
        return False
    # Tensors are compared value by value, which gives no answer for the whole.
    if isinstance(value, torch.Tensor):
        return False
    return value == default


def _as_plain(value: Any) -> Any:
    """Return a tensor or an array as lists, and anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value
