"""Read back the arguments with which an object was constructed.

The object keeps each argument of its constructor as an attribute of the same name.
"""

import inspect
from typing import Any

import torch

_NOT_KEPT = object()
"""Stands for an argument that the object does not keep. None could be the value of an argument."""


def kept_arguments(module: torch.nn.Module) -> dict[str, Any]:
    """Return the arguments of the constructor that a module keeps, by name."""
    kept = {}
    for name in inspect.signature(type(module)).parameters:
        value = getattr(module, name, _NOT_KEPT)
        # A trained weight is no argument, even where both have the same name.
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
    """Return whether an argument is its default, or has the same type and an equal value."""
    if value is default:
        return True
    # In Python True equals 1, but the two are different settings.
    if type(value) is not type(default):
        return False
    # `==` compares tensors element by element, and gives a tensor instead of True or False.
    if isinstance(value, torch.Tensor):
        return False
    return value == default


def _as_plain(value: Any) -> Any:
    """Return a tensor or an array as lists of numbers, and any other value unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value
