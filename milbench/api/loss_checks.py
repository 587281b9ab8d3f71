"""The input of a loss, label sets and targets, and the output of its methods, checked."""

import inspect
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import torch
from torch import Tensor

from milbench.errors import UsageError

LabelSets = Tensor | Sequence[Iterable[int]]
"""Multi-hot (B, C), zeros and ones of any type, or the numbers of the classes of every bag, as [[0, 2], []]."""

Target = Tensor | Sequence[Any]
"""Integers of any type, as a tensor, an array or lists."""


def label_sets(
    labels: LabelSets, logits: Tensor, mask: Tensor | None, check_values: bool
) -> Tensor:
    """Return label sets as (B, C) bool, checked against flattened logits and, if values are, against the bags."""
    batch, channels, positions = logits.shape
    if not isinstance(labels, Tensor):
        labels = _multi_hot(labels, batch, channels - 1).to(logits.device)
    if labels.shape != (batch, channels - 1):
        raise UsageError(
            f"labels must have shape {(batch, channels - 1)} beside logits of {channels} channels "
            f"(the last is the background), got {describe(labels)}"
        )
    if not check_values:
        return labels.bool()
    if labels.dtype != torch.bool and not bool(((labels == 0) | (labels == 1)).all()):
        raise UsageError(
            f"labels must be 0 and 1, got values from {labels.min():g} to {labels.max():g}"
        )
    labels = labels.bool()
    infinite = ~torch.isfinite(logits).flatten(1).all(dim=1)
    if bool(infinite.any()):
        raise UsageError(
            f"logits are not finite in bag {_first(infinite)} ({int(infinite.sum())} of {batch} bags)"
        )
    sizes = (
        mask.sum(dim=1)
        if mask is not None
        else torch.full((batch,), positions, device=labels.device)
    )
    too_large = labels.sum(dim=1) > sizes
    if bool(too_large.any()):
        bag = _first(too_large)
        classes, places = (
            f"{int(labels[bag].sum())} classes in its label set",
            f"{int(sizes[bag])} positions",
        )
        raise UsageError(f"bag {bag} has {classes} and only {places}: no instance for every class")
    return labels


def _multi_hot(labels: Sequence[Iterable[int]], batch: int, num_classes: int) -> Tensor:
    """Return an array of zeros and ones as a tensor, and lists of class numbers as (B, C) bool."""
    array = labels.__array__() if hasattr(labels, "__array__") else labels
    if str(getattr(array, "dtype", "object")) != "object":
        return torch.tensor(array)
    size = len(array) if isinstance(array, Sized) else repr(array)
    if size != batch:
        raise UsageError(
            f"labels must be one list of class numbers for each of the {batch} bags, got {size}"
        )
    matrix = torch.zeros(batch, num_classes, dtype=torch.bool)
    for bag, classes in enumerate(array):
        numbers = classes.tolist() if hasattr(classes, "tolist") else classes
        if not isinstance(numbers, Iterable) or isinstance(numbers, str):
            raise UsageError(
                f"labels must be a list of class numbers for each bag, got {numbers!r} for bag {bag}"
            )
        for number in numbers:
            if isinstance(number, (bool, float, str)) or not 0 <= number < num_classes:
                expected = f"class numbers from 0 to {num_classes - 1}"
                raise UsageError(f"labels of bag {bag} must be {expected}, got {number!r}")
            if matrix[bag, number]:  # a list of zeros and ones would pass for the classes 0 and 1
                expected = "each class once, or a tensor of 0 and 1"
                raise UsageError(
                    f"labels of bag {bag} name class {number} twice: expected {expected}"
                )
            matrix[bag, number] = True
    return matrix


def checked_target(
    loss: Any,
    target: object,
    labels: Tensor,
    positions: tuple[int, ...],
    mask: Tensor | None,
    check_values: bool,
) -> Tensor:
    """Return the target of a loss as int64 on the device of the labels (B, C) bool, checked as they are.

    Its shape is that of `milbench.api.targets.make_target`; lists of order may differ in length. Masked positions
    become background.
    """
    kind, (batch, num_classes) = loss.supervision, labels.shape
    shape = {"count": (batch, num_classes), "position": (batch, *positions)}.get(kind, (batch, "M"))
    integers = _as_tensor(target, ragged=kind == "order")
    sizes = () if integers is None else integers.shape
    fits = len(sizes) == len(shape) and all(
        n in ("M", size) for n, size in zip(shape, sizes, strict=True)
    )
    if integers is None or not fits or (integers.numel() and "int" not in str(integers.dtype)):
        got = "nothing" if target is None else describe(target if integers is None else integers)
        expected = f"integers of shape {shape}".replace("'", "")
        raise UsageError(
            f"{loss.name} has {kind} supervision and needs a target, {expected}, got {got}"
        )
    integers = integers.to(labels.device, torch.int64)
    if kind == "position" and mask is not None:
        integers = integers.masked_fill(~mask, num_classes)
    if check_values:
        _check_target(loss, integers, labels)
    return integers


def _as_tensor(target: object, *, ragged: bool) -> Tensor | None:
    """Return lists or an array of numbers as a tensor, shorter lists padded with -1; None for anything else."""
    if target is None or isinstance(target, Tensor):
        return target

    def as_lists(value: Any) -> Any:
        if hasattr(value, "tolist") or hasattr(value, "__array__"):
            value = (value if hasattr(value, "tolist") else value.__array__()).tolist()
        return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value

    rows = as_lists(target)
    if not isinstance(rows, list):
        return None
    if ragged and all(isinstance(row, list) for row in rows):
        longest = max(map(len, rows), default=0)
        rows = [[*row, *[-1] * (longest - len(row))] for row in rows]
    try:
        tensor = torch.tensor(rows)
    except (TypeError, ValueError, RuntimeError):
        return None
    return tensor.reshape(0, 0) if ragged and not rows else tensor


def _check_target(loss: Any, target: Tensor, labels: Tensor) -> None:
    """Raise UsageError for a value out of its range, or that contradicts the label sets, with the bag and the value."""
    kind, num_classes = loss.supervision, labels.shape[1]
    lowest, highest, expected = {
        "count": (0, None, "0 or more"),
        "order": (-1, num_classes - 1, f"a class from 0 to {num_classes - 1}, or -1 for padding"),
        "position": (
            0,
            num_classes,
            f"a class from 0 to {num_classes - 1}, or {num_classes} for background",
        ),
    }[kind]
    invalid = target < lowest if highest is None else (target < lowest) | (target > highest)
    if bool(invalid.any()):
        value = int(target[invalid][0])
        raise UsageError(
            f"{loss.name}: the {kind} of bag {_first(invalid)} holds {value}, expected {expected}"
        )
    if kind == "count":
        occurs = target > 0
    else:
        classes = (
            target.unsqueeze(-1).flatten(1).remainder(num_classes + 1)
        )  # padding is background
        occurs = labels.new_zeros(len(target), num_classes + 1).scatter(1, classes, True)[:, :-1]
    # An instance that lies behind another one, or was cut away, is in the label set and shown at no position.
    contradicts = occurs & ~labels if kind == "position" else occurs != labels
    if bool(contradicts.any()):
        bag, number = contradicts.nonzero()[0].tolist()
        verbs = ("lacks", "has") if occurs[bag, number] else ("has", "lacks")
        raise UsageError(
            f"{loss.name}: the label set of bag {bag} {verbs[0]} class {number}, and its {kind} {verbs[1]} it"
        )


def _first(is_bad: Tensor) -> int:
    """Return the number of the first bag with True in (B, ...) bool."""
    return int(is_bad.nonzero()[0, 0])


def describe(value: object) -> str:
    """Return the type of a value, and of a tensor the shape, for an error."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


def checked_output(loss: Any, method: str, output: object, shape: tuple[int, ...]) -> Tensor:
    """Return the output of a method of a loss. Raises UsageError where its type or shape is wrong; no GPU waits."""
    kind = "" if isinstance(output, Tensor) and output.is_floating_point() else "floating point "
    if kind or not isinstance(output, Tensor) or output.shape != shape:
        raise fault(loss, method, f"{kind}{tuple(shape)}", describe(output))
    return output


def fault(loss: Any, method: str, expected: str, got: str) -> UsageError:
    """Return the error that a method of a loss returned something else than it must."""
    function = inspect.unwrap(getattr(type(loss), method))
    code = getattr(function, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return UsageError(f"loss {loss.name}{place} must return {expected} from {method}, got {got}")
