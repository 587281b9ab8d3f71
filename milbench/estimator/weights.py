"""The weights of bags: the weights that a user gives, times the weights of the classes in a bag."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench.errors import UsageError, unknown
from milbench.estimator.label_forms import Bools, LabelForm

Floats = NDArray[np.float64]


def read_sample_weight(sample_weight: Any, bags: int) -> Floats | None:
    """Return the weights (B,) that a user gives as a new array; None where none are given.

    Raises UsageError unless there is one weight for each bag, all weights are finite and 0 or more,
    and at least one is above 0.
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
    """Return the weight (B,) of each bag: the weight by its classes, times its sample weight.

    The result is None where all bags count the same.

    Args:
        sample_weight: (B,), the weights that the user gives; None: every bag weighs 1.
        class_weight: the parameter of `BagClassifier`, which describes it.
        labels: (B, C) bool, the label sets.
        form: the form in which the labels are given.

    Raises:
        UsageError: `class_weight` is wrong, or the weights are too large, too small or all 0.
    """
    by_classes = _class_weights_of_bags(class_weight, sample_weight, labels, form)
    if by_classes is None:
        return sample_weight
    weights = by_classes
    # An infinite weight or total is the error below, and needs no warning of NumPy.
    with np.errstate(over="ignore"):
        if sample_weight is not None:
            # A bag without weight stays at 0, even if its weight by classes is infinite.
            has_weight = sample_weight > 0
            weights = np.zeros(len(sample_weight))
            np.multiply(by_classes, sample_weight, where=has_weight, out=weights)
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
    """Return the weight (B,) of each bag by its classes; None where `class_weight` is None."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        bag_counts = np.ones(len(labels)) if sample_weight is None else sample_weight
        return _balanced(labels, bag_counts)
    if isinstance(class_weight, Mapping):
        return _by_class(class_weight, labels, form)
    raise UsageError(
        "class_weight must be None, 'balanced' or a dict from classes to weights, got "
        f"{class_weight!r}"
    )


def _balanced(labels: Bools, bag_counts: Floats) -> Floats:
    """Return (B,), the product over all classes of a weight that balances the class.

    For a class, the bags have two sides: those with the class, and those without it. The weight
    gives both sides the same total. For the bags of a side it is N / (2 n), where N is the total
    count of all bags, and n that of the bags of the side. Where one side is empty, the weight is 1.

    Args:
        labels: (B, C) bool, the label sets.
        bag_counts: (B,), as how many bags each bag counts in the totals: its sample weight, or 1.
    """
    weights = np.ones(len(labels))
    for has_class in labels.T:
        sides = (has_class, ~has_class)
        totals = [bag_counts[side].sum() for side in sides]
        if min(totals) == 0:
            # One side is empty.
            continue
        for side, total in zip(sides, totals, strict=True):
            weights[side] *= bag_counts.sum() / (2 * total)
    return weights


def _by_class(class_weight: Mapping[Any, Any], labels: Bools, form: LabelForm) -> Floats:
    """Return (B,), the product of the weights of the classes in each bag.

    It is 1 for a bag without classes.
    """
    classes = [_plain(name) for name in form.classes]
    named = {_plain(name): weight for name, weight in class_weight.items()}
    for name, weight in named.items():
        if name not in classes:
            raise unknown("class in class_weight", str(name), map(str, classes))
        _check_weight(f"class_weight[{name!r}]", weight)
    if form.is_binary:
        # Label sets are (B, 1), for the second value alone, but both values may have weights.
        has_second = labels
        labels = np.concatenate([~has_second, has_second], axis=1)
    weights = np.ones(len(labels))
    # If a product becomes infinite, the caller raises an error.
    with np.errstate(over="ignore"):
        for name, has_class in zip(classes, labels.T, strict=True):
            weights[has_class] *= named.get(name, 1.0)
    return weights


def _check_single_precision(subject: str, weights: Floats) -> None:
    """Raise UsageError where the weights are too large or too small for single precision.

    Training computes in single precision, and adds up the weights of bags.
    """
    limits = np.finfo(np.float32)
    if weights.sum() > limits.max:
        raise UsageError(f"{subject} is too large: all together must be at most {limits.max:.1e}")
    if weights.max() < limits.tiny:
        raise UsageError(f"{subject} is too small: the largest must be at least {limits.tiny:.1e}")


def _plain(name: Any) -> Any:
    """Return a class as Python's own type, so that messages show `3` and not `np.int64(3)`."""
    return name.item() if isinstance(name, np.generic) else name


def _check_weight(subject: str, weight: Any) -> None:
    """Raise UsageError unless a weight is a finite number, 0 or more."""
    is_number = isinstance(weight, Real) and not isinstance(weight, bool)
    if not is_number or not 0 <= weight < np.inf:
        raise UsageError(f"{subject} is {weight!r}, expected a finite number, 0 or more")
