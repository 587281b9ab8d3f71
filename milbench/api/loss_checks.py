"""What a loss is given and returns, checked: label sets, and what its methods compute."""

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
        classes, places = f"{int(labels[bag].sum())} classes in its label set", f"{int(sizes[bag])} positions"
        raise UsageError(f"bag {bag} has {classes} and only {places}: no instance for every class")
    return labels


def _from_lists(labels: Sequence[Iterable[int]], batch: int, num_classes: int) -> Tensor:
    size = len(labels) if isinstance(labels, Sized) else repr(labels)
    if size != batch:
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
                expected = "each class once, or a tensor of 0 and 1"
                raise UsageError(f"labels of bag {bag} name class {number} twice: expected {expected}")
            matrix[bag, number] = True
    return matrix


def integers(
    loss: Any, target: object, labels: Tensor, positions: tuple[int, ...], mask: Tensor | None, values: bool
) -> Tensor:
    """Return the target of a loss as int64 on the device of the labels (B, C) bool, checked as they are.

    Its shape is that of `milbench.api.targets.make_target`; lists of order may differ in length. Masked positions
    become background.
    """
    kind, (batch, num_classes) = loss.supervision, labels.shape
    shapes = {"count": (batch, num_classes), "position": (batch, *positions)}
    found = _as_tensor(target, ragged=kind == "order")
    shape = shapes.get(kind) or (None if found is None or found.ndim != 2 else (batch, found.shape[1]))
    not_whole = found is not None and (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    if found is None or found.shape != shape or (found.numel() and not_whole):
        got = "nothing" if target is None else kind_of(target if found is None else found)
        expected = f"integers of shape {shapes.get(kind, f'(B, M) = ({batch}, M)')}"
        raise UsageError(f"{loss.name} has {kind} supervision and needs a target, {expected}, got {got}")
    found = found.to(labels.device, torch.int64)
    if kind == "position" and mask is not None:
        found = found.masked_fill(~mask, num_classes)
    if values:
        _check_target(loss, found, labels)
    return found


def _as_tensor(target: object, *, ragged: bool) -> Tensor | None:
    """Return lists or an array of numbers as a tensor, shorter lists padded with -1; None for anything else."""
    if target is None or isinstance(target, Tensor):
        return target

    def lists(value: Any) -> Any:
        if hasattr(value, "tolist") or hasattr(value, "__array__"):
            value = (value if hasattr(value, "tolist") else value.__array__()).tolist()
        return [lists(one) for one in value] if isinstance(value, list | tuple) else value

    rows = lists(target)
    if not isinstance(rows, list):
        return None
    if ragged and all(isinstance(row, list) for row in rows):
        longest = max(map(len, rows), default=0)
        rows = [[*row, *[-1] * (longest - len(row))] for row in rows]
    try:
        found = torch.tensor(rows)
    except (TypeError, ValueError, RuntimeError):
        return None
    return found.reshape(0, 0) if ragged and not rows else found


def _check_target(loss: Any, target: Tensor, labels: Tensor) -> None:
    """Raise UsageError for a value out of its range, or that contradicts the label sets, with the bag and the value."""
    kind, num_classes = loss.supervision, labels.shape[1]
    lowest, highest, expected = {
        "count": (0, None, "0 or more"),
        "order": (-1, num_classes - 1, f"a class from 0 to {num_classes - 1}, or -1 for padding"),
        "position": (0, num_classes, f"a class from 0 to {num_classes - 1}, or {num_classes} for background"),
    }[kind]
    wrong = target < lowest if highest is None else (target < lowest) | (target > highest)
    if bool(wrong.any()):
        bag, *_ = wrong.nonzero()[0].tolist()
        raise UsageError(f"{loss.name}: the {kind} of bag {bag} holds {int(target[wrong][0])}, expected {expected}")
    if kind == "count":
        shown = target > 0
    else:
        classes = target.unsqueeze(-1).flatten(1).remainder(num_classes + 1)  # padding is background
        shown = labels.new_zeros(len(target), num_classes + 1).scatter(1, classes, True)[:, :-1]
    # An instance that lies behind another one, or was cut away, is in the label set and shown at no position.
    contradicts = shown & ~labels if kind == "position" else shown != labels
    if bool(contradicts.any()):
        bag, number = contradicts.nonzero()[0].tolist()
        has = ("lacks", "has") if shown[bag, number] else ("has", "lacks")
        raise UsageError(f"{loss.name}: the label set of bag {bag} {has[0]} class {number}, and its {kind} {has[1]} it")


def kind_of(tensor: object) -> str:
    """Return the type and shape of a tensor, or its type, if it is not a tensor, for an error."""
    if not isinstance(tensor, Tensor):
        return type(tensor).__name__
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def checked(loss: Any, method: str, result: object, shape: tuple[int, ...]) -> Tensor:
    """Return what a method of a loss returned. Raises UsageError where its type or shape is wrong; no GPU waits."""
    kind = "" if isinstance(result, Tensor) and result.is_floating_point() else "floating point "
    if kind or not isinstance(result, Tensor) or result.shape != shape:
        raise fault(loss, method, f"{kind}{tuple(shape)}", kind_of(result))
    return result


def fault(loss: Any, method: str, expected: str, got: str) -> UsageError:
    """Return the error that a method of a loss returned something else than it must."""
    function = inspect.unwrap(getattr(type(loss), method))
    code = getattr(function, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return UsageError(f"loss {loss.name}{place} must return {expected} from {method}, got {got}")
