"""The checks around a loss: of its class, its arguments, and what its methods return.

The arguments are logits, mask, label sets and targets. Checks of shapes and types cost nothing.
Checks of values are separate functions, since on a GPU they wait for the device.
"""

import inspect
from collections.abc import Iterable, Sequence, Sized
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from milbench.contracts.supervision import SUPERVISIONS
from milbench.errors import UsageError, one_of

if TYPE_CHECKING:
    from milbench.contracts.loss import Loss

LabelSets = Tensor | Sequence[Iterable[int]]
"""The label sets of B bags.

Either zeros and ones of any type in a tensor or an array (B, C), or lists with the class numbers of
each bag, such as [[0, 2], []].
"""

Target = Tensor | Sequence[Any]
"""Integers of any type, as a tensor, an array or lists."""

HEADS = ("softmax", "sigmoid", "class")
"""The choices of `milbench.contracts.loss.Head`, written again: its module imports this module."""


def check_supervision(loss: "Loss") -> None:
    """Raise UsageError where `supervision` of a loss is not one of the known kinds.

    A loss with a `target_loss` must not have set supervision.
    """
    kinds = list(SUPERVISIONS)
    if loss.takes_target:
        # There are no targets for label sets alone.
        kinds.remove("set")
    one_of(f"supervision of {loss.name}", loss.supervision, kinds)


def check_methods(loss: "Loss") -> None:
    """Raise UsageError where a loss writes a method that training ignores, or lacks a needed one.

    Training and evaluation do not call `forward`, `score` and `label_log_prob`. They call the
    functions of `milbench.contracts.criterion`, since they decide themselves which values are
    checked.
    """
    # By the method that is ignored, the methods to write instead.
    hooks = {
        "forward": "bag_loss",
        "score": "scores, presence, posterior or evidence",
        "label_log_prob": "set_log_prob",
    }
    for method, hook in hooks.items():
        if loss.has_own(method):
            raise UsageError(
                f"{loss.name} writes {method}, which training does not call; write {hook}"
            )
    if loss.needs_class_counts and not loss.has_own("build"):
        raise UsageError(f"{loss.name} needs class counts, and has no build that takes them")


# Logits and masks.


def check_logits(loss: "Loss", logits: Tensor) -> None:
    """Raise UsageError unless logits are floating point (B, C+1, *positions).

    There must be at least one class and one position.
    """
    if logits.ndim < 2 or logits.shape[1] < 2 or not logits.is_floating_point():
        raise UsageError(
            f"{loss.name}: logits must be floating point of shape (B, C+1, *positions), "
            f"got {describe(logits)}"
        )
    if 0 in logits.shape[2:]:
        raise UsageError(f"{loss.name}: logits have no positions: {describe(logits)}")


def check_built(loss: "Loss", num_classes: int) -> None:
    """Raise UsageError where a loss has an unknown head, or no weights for this many classes."""
    # A constructor may set the head after it has called `Loss.__init__`, which therefore cannot
    # check it.
    one_of(f"head of {loss.name}", loss.head, HEADS)
    if not loss.has_own("make_weights") or loss.num_classes == num_classes:
        return
    state = "no weights yet"
    if loss.num_classes is not None:
        state = f"weights for {loss.num_classes} classes"
    raise UsageError(
        f"{loss.name} has {state}: call build(num_classes={num_classes}) before it gets logits of "
        f"{num_classes + 1} channels (the last is the background)"
    )


def check_mask(loss: "Loss", mask: object, logits: Tensor) -> None:
    """Raise UsageError unless a mask is bool, (B, *positions)."""
    expected = (len(logits), *logits.shape[2:])
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != expected:
        raise UsageError(
            f"{loss.name}: mask must be a bool tensor of shape {expected}, got {describe(mask)}"
        )


def check_finite(logits: Tensor) -> None:
    """Raise UsageError, naming a bag, where logits (B, C+1, K) are not finite.

    On a GPU this waits for the device.
    """
    is_bad = ~torch.isfinite(logits).flatten(1).all(dim=1)
    if bool(is_bad.any()):
        raise UsageError(
            f"logits are not finite in bag {first_bag(is_bad)} "
            f"({int(is_bad.sum())} of {len(logits)} bags)"
        )


# Label sets.


def as_label_matrix(labels: LabelSets, logits: Tensor) -> Tensor:
    """Return label sets as a tensor (B, C) of zeros and ones of any type, for logits (B, C+1, K).

    A tensor is returned as it is. An array or lists are moved to the device of the logits.
    """
    batch, channels, _ = logits.shape
    if not isinstance(labels, Tensor):
        labels = _from_array_or_lists(labels, batch, channels - 1).to(logits.device)
    if labels.shape != (batch, channels - 1):
        raise UsageError(
            f"labels must have shape {(batch, channels - 1)} beside logits of {channels} channels "
            f"(the last is the background), got {describe(labels)}"
        )
    return labels


def check_label_values(labels: Tensor) -> None:
    """Raise UsageError where labels (B, C) are other than 0 and 1.

    On a GPU this waits for the device.
    """
    if labels.dtype == torch.bool:
        return
    is_known = (labels == 0) | (labels == 1)
    if not bool(is_known.all()):
        raise UsageError(
            f"labels must be 0 and 1, got values from {labels.min():g} to {labels.max():g}"
        )


def check_set_sizes(label_sets: Tensor, logits: Tensor, mask: Tensor | None) -> None:
    """Raise UsageError where a bag has fewer positions than classes in its label set.

    Label sets are (B, C) bool, logits (B, C+1, K) and the mask (B, K). On a GPU this waits for the
    device.
    """
    positions = count_positions(logits, mask)
    is_too_large = label_sets.sum(dim=1) > positions
    if bool(is_too_large.any()):
        bag = first_bag(is_too_large)
        raise UsageError(
            f"bag {bag} has {int(label_sets[bag].sum())} classes in its label set and only "
            f"{int(positions[bag])} positions: no instance for every class"
        )


def count_positions(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (B,), the number of unmasked positions of every bag.

    Logits are (B, C+1, K) and the mask is (B, K) or None.
    """
    if mask is not None:
        return mask.sum(dim=1)
    return torch.full((len(logits),), logits.shape[2], device=logits.device)


def _from_array_or_lists(labels: Any, batch: int, num_classes: int) -> Tensor:
    """Return an array of zeros and ones as a tensor, and lists of class numbers as (B, C) bool."""
    array = labels.__array__() if hasattr(labels, "__array__") else labels
    is_array = hasattr(array, "dtype")
    # An array of objects, such as a column of a table, holds one list a bag.
    if is_array and str(array.dtype) != "object":
        return torch.tensor(array)
    return _from_lists(array, batch, num_classes)


def _from_lists(lists: Any, batch: int, num_classes: int) -> Tensor:
    """Return lists of class numbers, one for each bag, as (B, C) bool."""
    size = len(lists) if isinstance(lists, Sized) else repr(lists)
    if size != batch:
        raise UsageError(
            f"labels must be one list of class numbers for each of the {batch} bags, got {size}"
        )
    # A user may pass lists of zeros and ones by mistake. With three classes or more, such a list
    # names class 0 or class 1 twice, which is refused below. With fewer classes it may look like a
    # list of class numbers.
    has_few_classes = num_classes <= 2 and batch > 0
    if has_few_classes and all(_may_be_zeros_and_ones(row, num_classes) for row in lists):
        raise UsageError(
            f"labels {lists[0]}, ... may be class numbers, or zeros and ones: "
            "pass zeros and ones as a tensor"
        )
    matrix = torch.zeros(batch, num_classes, dtype=torch.bool)
    for bag, classes in enumerate(lists):
        for number in _class_numbers(bag, classes, num_classes):
            if matrix[bag, number]:
                # This is most likely a list of zeros and ones, hence the hint in the message.
                raise UsageError(
                    f"labels of bag {bag} name class {number} twice: expected each class once, "
                    "or a tensor of 0 and 1"
                )
            matrix[bag, number] = True
    return matrix


def _may_be_zeros_and_ones(row: object, num_classes: int) -> bool:
    """Return whether the labels of a bag are as many zeros and ones as there are classes.

    A Python set always holds class numbers.
    """
    numbers = row.tolist() if hasattr(row, "tolist") else row
    if not isinstance(numbers, list | tuple) or len(numbers) != num_classes:
        return False
    return all(isinstance(number, Integral) and number in (0, 1) for number in numbers)


def _class_numbers(bag: int, classes: Any, num_classes: int) -> list[int]:
    """Return the numbers of the classes of a bag, given as a list, a set or an array."""
    numbers = classes.tolist() if hasattr(classes, "tolist") else classes
    if not isinstance(numbers, Iterable) or isinstance(numbers, str):
        raise UsageError(
            f"labels must be a list of class numbers for each bag, got {numbers!r} for bag {bag}"
        )
    checked = []
    for number in numbers:
        if isinstance(number, (bool, float, str)) or not 0 <= number < num_classes:
            raise UsageError(
                f"labels of bag {bag} must be class numbers from 0 to {num_classes - 1}, "
                f"got {number!r}"
            )
        checked.append(number)
    return checked


# Targets.


def checked_target(
    loss: "Loss",
    target: object,
    labels: Tensor,
    positions: tuple[int, ...],
    mask: Tensor | None,
) -> Tensor:
    """Return the target of a loss as int64 on the device of the labels (B, C) bool.

    The target has the shape that `milbench.contracts.targets.make_target` describes. For order
    supervision it may also be lists of different lengths. Masked positions become background.
    Raises UsageError for any other shape or type.
    """
    kind = loss.supervision
    batch, num_classes = labels.shape
    expected: tuple[int | str, ...]
    if kind == "order":
        # M, the largest number of instances in a bag, may be any size.
        expected = (batch, "M")
    elif kind == "count":
        expected = (batch, num_classes)
    else:
        expected = (batch, *positions)
    tensor = _as_tensor(target, is_ragged=kind == "order")
    if tensor is None:
        got = "nothing" if target is None else describe(target)
        raise _wrong_target(loss, expected, got)
    if not _has_shape(tensor, expected) or not _holds_integers(tensor):
        raise _wrong_target(loss, expected, describe(tensor))
    integers = tensor.to(labels.device, torch.int64)
    if kind == "position" and mask is not None:
        integers = integers.masked_fill(~mask, num_classes)
    return integers


def _has_shape(tensor: Tensor, expected: tuple[int | str, ...]) -> bool:
    """Return whether a tensor has the expected shape, in which a letter stands for any size."""
    if tensor.ndim != len(expected):
        return False
    for size, expected_size in zip(tensor.shape, expected, strict=True):
        if isinstance(expected_size, int) and size != expected_size:
            return False
    return True


def _wrong_target(loss: "Loss", expected: tuple[int | str, ...], got: str) -> UsageError:
    sizes = ", ".join(str(size) for size in expected)
    # The comma with which Python writes a tuple of one.
    shape = f"({sizes},)" if len(expected) == 1 else f"({sizes})"
    return UsageError(
        f"{loss.name} has {loss.supervision} supervision and needs a target, "
        f"integers of shape {shape}, got {got}"
    )


def _holds_integers(target: Tensor) -> bool:
    """Return whether a target has an integer type.

    An empty target passes too, since torch gives empty lists a float type.
    """
    return target.numel() == 0 or "int" in str(target.dtype)


def _as_tensor(target: object, *, is_ragged: bool) -> Tensor | None:
    """Return lists or an array of numbers as a tensor, and anything else as None.

    With `is_ragged`, lists may differ in length: shorter ones are padded with -1.
    """
    if target is None or isinstance(target, Tensor):
        return target
    rows = _as_lists(target)
    if not isinstance(rows, list):
        return None
    if is_ragged and all(isinstance(row, list) for row in rows):
        rows = _padded(rows)
    try:
        tensor = torch.tensor(rows)
    except (TypeError, ValueError, RuntimeError):
        return None
    if is_ragged and not rows:
        # torch makes a tensor of one dimension from a batch without bags.
        return tensor.reshape(0, 0)
    return tensor


def _padded(rows: list[list[Any]]) -> list[list[Any]]:
    """Return the rows padded with -1 to the length of the longest."""
    longest = max((len(row) for row in rows), default=0)
    return [row + [-1] * (longest - len(row)) for row in rows]


def _as_lists(value: Any) -> Any:
    """Return arrays, tensors and tuples, also nested ones, as lists; leave the rest unchanged."""
    if not hasattr(value, "tolist") and hasattr(value, "__array__"):
        value = value.__array__()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_as_lists(item) for item in value]
    return value


def check_target_values(loss: "Loss", target: Tensor, labels: Tensor) -> None:
    """Raise UsageError where a target has a value out of range, or contradicts the label sets.

    The message names the bag, and the value or class. On a GPU this waits for the device.
    """
    kind = loss.supervision
    num_classes = labels.shape[1]
    if kind == "count":
        is_invalid = target < 0
        expected = "0 or more"
    elif kind == "order":
        is_invalid = (target < -1) | (target >= num_classes)
        expected = f"a class from 0 to {num_classes - 1}, or -1 for padding"
    else:
        is_invalid = (target < 0) | (target > num_classes)
        expected = f"a class from 0 to {num_classes - 1}, or {num_classes} for background"
    if bool(is_invalid.any()):
        value = int(target[is_invalid][0])
        raise UsageError(
            f"{loss.name}: the {kind} of bag {first_bag(is_invalid)} holds {value}, "
            f"expected {expected}"
        )
    _check_agrees_with_labels(loss, target, labels)


def _check_agrees_with_labels(loss: "Loss", target: Tensor, labels: Tensor) -> None:
    """Raise UsageError where targets and label sets (B, C) do not name the same classes."""
    kind = loss.supervision
    num_classes = labels.shape[1]
    occurs = target > 0 if kind == "count" else _classes_in(target, num_classes)
    contradicts = occurs != labels
    if kind == "position":
        # The label set may name a class that no position shows: its instance lies behind another
        # instance, or was cut away.
        contradicts = occurs & ~labels
    if not bool(contradicts.any()):
        return
    bag, number = contradicts.nonzero()[0].tolist()
    if occurs[bag, number]:
        problem = f"lacks class {number}, and its {kind} has it"
    else:
        problem = f"has class {number}, and its {kind} lacks it"
    raise UsageError(f"{loss.name}: the label set of bag {bag} {problem}")


def _classes_in(target: Tensor, num_classes: int) -> Tensor:
    """Return (B, C) bool, which classes a target (B, ...) of class numbers names."""
    # The last column is for the background, C, and also for the padding: -1 % (C + 1) is C.
    numbers = target.unsqueeze(-1).flatten(1).remainder(num_classes + 1)
    no_class = torch.zeros(len(target), num_classes + 1, dtype=torch.bool, device=target.device)
    return no_class.scatter(1, numbers, True)[:, :-1]


# What a loss returns.


def checked_output(loss: "Loss", method: str, output: object, shape: tuple[int, ...]) -> Tensor:
    """Return the output of a method of a loss. Raises UsageError where its type or shape is wrong.

    No value is looked at, so that the host does not wait for a GPU.
    """
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise fault(loss, method, f"floating point {tuple(shape)}", describe(output))
    if output.shape != shape:
        raise fault(loss, method, str(tuple(shape)), describe(output))
    return output


def fault(loss: "Loss", method: str, expected: str, got: str) -> UsageError:
    """Return the error that a method of a loss must not return what it did."""
    function = inspect.unwrap(getattr(type(loss), method))
    # A method that is no Python function has no `__code__`.
    code = getattr(function, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return UsageError(f"loss {loss.name}{where} must return {expected} from {method}, got {got}")


def describe(value: object) -> str:
    """Return the type of a value for an error message; for a tensor, the data type and shape."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


def first_bag(is_bad: Tensor) -> int:
    """Return the index of the first bag that has a True in (B, ...) bool."""
    return int(is_bad.nonzero()[0, 0])
