"""Weights of bags: those that are given, times those of the classes in a bag."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.errors import UsageError, unknown
from milbench.estimator.label_forms import Bools, LabelForm

Floats = NDArray[np.float64]


def read_sample_weight(sample_weight: Any, bags: int) -> Floats | None:
    """Return the weights (B,) of bags as a new array; None where none are given.

    Raises UsageError unless there is one weight a bag, each of them finite and 0 or more, and one
    above 0.
    """
    if sample_weight is None:
        return None
    try:
        weights = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise UsageError("sample_weight must have a number for each bag") from None
    if weights.shape != (bags,):
        raise UsageError(f"sample_weight has the shape {weights.shape}, expected ({bags},)")
    for number, weight in enumerate(weights.tolist()):
        _check_weight(f"sample_weight[{number}]", weight)
    if not weights.any():
        raise UsageError("sample_weight is zero for every bag: no bag is left to train on")
    _check_single_precision("sample_weight", weights)
    return weights


def weigh_bags(
    sample_weight: Floats | None, class_weight: Any, labels: Bools, form: LabelForm
) -> Floats | None:
    """Return the weight (B,) of each bag, that of its classes times its own; None: all count alike.

    Args:
        sample_weight: (B,), the weights that were given.
        class_weight: the parameter of `BagClassifier`, which describes it.
        labels: the label sets (B, C).
        form: the form in which the labels were given.
    """
    by_classes = _class_weights_of_bags(class_weight, sample_weight, labels, form)
    if by_classes is None:
        return sample_weight
    weights = by_classes if sample_weight is None else by_classes * sample_weight
    total = weights.sum()
    if not np.isfinite(total):
        raise UsageError("class_weight: the product over the classes of a bag is too large")
    if total == 0:
        raise UsageError("class_weight: no bag has a weight above zero, nothing can be learnt")
    _check_single_precision("class_weight: the weight of a bag", weights)
    return weights


def _class_weights_of_bags(
    class_weight: Any, sample_weight: Floats | None, labels: Bools, form: LabelForm
) -> Floats | None:
    """Return the weight (B,) of each bag by its classes; None where class_weight is."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.ones(len(labels)) if sample_weight is None else sample_weight
        return _balanced(labels, counts)
    if isinstance(class_weight, Mapping):
        return _by_class(class_weight, labels, form)
    raise UsageError(
        "class_weight must be None, 'balanced' or a dict from classes to weights, got "
        f"{class_weight!r}"
    )


def _balanced(labels: Bools, counts: Floats) -> Floats:
    """Return (B,), the product over the classes of a weight that balances each of them.

    By this weight the bags with the class have the same total as those without it: the weight is N
    / (2 n), where N is the total of all counts, and n that of the bags on the same side. Where one
    side is empty, the weight is 1.

    Args:
        labels: the label sets (B, C).
        counts: (B,), how often each bag counts in the totals.
    """
    weights = np.ones(len(labels))
    for has_class in labels.T:
        sides = (has_class, ~has_class)
        totals = [counts[side].sum() for side in sides]
        # Of a class in all bags or in none, one side is empty. The other has the whole total, n =
        # N, and with one side the weight is N / (1 n) = 1.
        number_of_sides = len([total for total in totals if total > 0])
        for side, total in zip(sides, totals, strict=True):
            if total > 0:
                weights[side] *= counts.sum() / (number_of_sides * total)
    return weights


def _by_class(class_weight: Mapping[Any, Any], labels: Bools, form: LabelForm) -> Floats:
    """Return (B,), the product of the weights of the classes in each bag, 1 for a bag without classes."""
    classes = [_plain(name) for name in form.classes]
    named = {_plain(name): weight for name, weight in class_weight.items()}
    for name, weight in named.items():
        if name not in classes:
            raise unknown("class in class_weight", str(name), map(str, classes))
        _check_weight(f"class_weight[{name!r}]", weight)
    if form.is_binary:
        # The label sets are (B, 1): a bag without the second value has the first one.
        has_second = labels
        labels = np.concatenate([~has_second, has_second], axis=1)
    weights = np.ones(len(labels))
    # A product may become infinite, which the caller refuses.
    with np.errstate(over="ignore"):
        for name, has_class in zip(classes, labels.T, strict=True):
            weights[has_class] *= named.get(name, 1.0)
    return weights


def _check_single_precision(subject: str, weights: Floats) -> None:
    """Raise UsageError where training, which computes in single precision, cannot add up the weights."""
    limits = np.finfo(np.float32)
    if weights.sum() > limits.max:
        raise UsageError(f"{subject} is too large: all together must be at most {limits.max:.1e}")
    if weights.max() < limits.tiny:
        raise UsageError(f"{subject} is too small: the largest must be at least {limits.tiny:.1e}")


def _plain(name: Any) -> Any:
    """Return a class as Python's own type, which a message shows as it is written."""
    return name.item() if isinstance(name, np.generic) else name


def _check_weight(subject: str, weight: Any) -> None:
    """Raise UsageError unless a weight is a finite number, 0 or more."""
    is_number = isinstance(weight, Real) and not isinstance(weight, bool)
    if not is_number or not 0 <= weight < np.inf:
        raise UsageError(f"{subject} is {weight!r}, expected a finite number, 0 or more")
