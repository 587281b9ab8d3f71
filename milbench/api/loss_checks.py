"""What a loss is given and returns, checked: label sets, and what its methods compute."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import torch
from torch import Tensor

from milbench.errors import UsageError

LabelSets = Tensor | Sequence[Iterable[int]]
"""Multi-hot (B, C), zeros and ones of any type, or the numbers of the classes of every bag, as [[0, 2], []]."""


def label_sets(labels: LabelSets, logits: Tensor, mask: Tensor | None, values: bool) -> Tensor:
    """Return label sets as (B, C) bool, checked against flattened logits and, where `values`, against the bags."""
    batch, channels, positions = logits.shape
    if not isinstance(labels, Tensor):
        array = labels.__array__() if hasattr(labels, "__array__") else labels
        lists = str(getattr(array, "dtype", "object")) == "object"
        labels = _from_lists(array, batch, channels - 1) if lists else torch.tensor(array)
        labels = labels.to(logits.device)
    if labels.shape != (batch, channels - 1):
        raise UsageError(
            f"labels must have shape {(batch, channels - 1)} beside logits of {channels} channels "
            f"(the last is the background), got {kind_of(labels)}"
        )
    if not values:
        return labels.bool()
    if labels.dtype != torch.bool and not bool(((labels == 0) | (labels == 1)).all()):
        raise UsageError(f"labels must be 0 and 1, got values from {labels.min():g} to {labels.max():g}")
    labels = labels.bool()
    if not bool(torch.isfinite(logits).all()):
        bad = (~torch.isfinite(logits)).flatten(1).any(dim=1).nonzero().flatten().tolist()
        raise UsageError(f"logits are not finite in bag {bad[0]} ({len(bad)} of {batch} bags)")
    sizes = mask.sum(dim=1) if mask is not None else torch.full((batch,), positions, device=labels.device)
    larger = labels.sum(dim=1) > sizes
    if bool(larger.any()):
        bag = int(larger.nonzero()[0])
        raise UsageError(
            f"bag {bag} has {int(labels[bag].sum())} classes in its label set and only "
            f"{int(sizes[bag])} positions: no instance for every class"
        )
    return labels


def _from_lists(labels: Sequence[Iterable[int]], batch: int, num_classes: int) -> Tensor:
    if not isinstance(labels, Sized) or len(labels) != batch:
        size = len(labels) if isinstance(labels, Sized) else repr(labels)
        raise UsageError(f"labels must be one list of class numbers for each of the {batch} bags, got {size}")
    matrix = torch.zeros(batch, num_classes, dtype=torch.bool)
    for bag, classes in enumerate(labels):
        numbers = classes.tolist() if hasattr(classes, "tolist") else classes
        if not isinstance(numbers, Iterable) or isinstance(numbers, str):
            raise UsageError(f"labels must be a list of class numbers for each bag, got {numbers!r} for bag {bag}")
        for number in numbers:
            if isinstance(number, (bool, float, str)) or not 0 <= number < num_classes:
                expected = f"class numbers from 0 to {num_classes - 1}"
                raise UsageError(f"labels of bag {bag} must be {expected}, got {number!r}")
            if matrix[bag, number]:  # a list of zeros and ones would pass for the classes 0 and 1
                raise UsageError(
                    f"labels of bag {bag} name class {number} twice: expected each class once, or a tensor of 0 and 1"
                )
            matrix[bag, number] = True
    return matrix


def kind_of(tensor: object) -> str:
    """Return the type and shape of a tensor, or its type, if it is not a tensor, for an error."""
    if not isinstance(tensor, Tensor):
        return type(tensor).__name__
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def checked(loss: Any, method: str, result: object, shape: tuple[int, ...]) -> Tensor:
    """Return what a method of a loss returned, if it has the right type and shape, else raise UsageError.

    It does not wait for a GPU.
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
