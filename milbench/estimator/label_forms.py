"""Reading the labels of a classifier in any form, and writing predictions in the same form."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import LabelBinarizer, MultiLabelBinarizer
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from milbench._utils.words import counted
from milbench.errors import UsageError

Bools = NDArray[np.bool_]
SEPARATOR = ";"
"""What separates the classes of a bag in tables.

Where y has one label for each bag, no label may contain it.
"""
_COLLECTIONS = (list, tuple, set, frozenset, np.ndarray)
"""The types in which y may have the classes of a bag."""


class LabelForm:
    """The form of the training labels: which classes there are, and how label sets are written."""

    def __init__(
        self, encoder: LabelBinarizer | MultiLabelBinarizer, classes: Any, *, is_binary: bool
    ) -> None:
        self._encoder = encoder
        self.classes = classes
        self.is_binary = is_binary
        """Whether y (B,) has two values. Label sets (B, 1) then say whether y is the larger one."""

    @property
    def kind(self) -> str:
        """What the labels are, in words for messages."""
        if self.is_binary:
            return "one label a bag"
        if isinstance(self._encoder, MultiLabelBinarizer):
            return "collections of classes"
        return "zeros and ones"

    def agrees_with(self, other: "LabelForm") -> bool:
        """Return whether another form is the same, with the same classes in the same order."""
        return self.kind == other.kind and list(self.classes) == list(other.classes)

    def decode(self, label_sets: Bools) -> Any:
        """Return label sets (B, C) in this form."""
        return self._encoder.inverse_transform(label_sets.astype(int))

    def accuracy(self, y: Any, predicted: Any, sample_weight: Any) -> float:
        """Return the share of bags whose labels `y` are predicted; both are in this form."""
        # scikit-learn cannot compare collections, so they are turned into matrices first.
        if isinstance(self._encoder, MultiLabelBinarizer):
            _check_collections(y)
            every_class = _sorted_encoder([*y, *predicted])
            y = every_class.transform(y)
            predicted = every_class.transform(predicted)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))


def learn_labels(y: Any) -> tuple[LabelForm, Bools]:
    """Return the form of labels, and the label sets (B, C).

    Raises UsageError where y contains something that is not a label, or where y has one label for
    each bag but more or fewer than two different labels.
    """
    if y is None:
        raise UsageError("BagClassifier requires y to be passed, but the target y is None")
    if _are_collections(y):
        return _learn_collections(y)
    _check_no_collections(y)
    if type_of_target(y) == "multilabel-indicator":
        return _learn_matrix(y)
    return _learn_single_labels(y)


def _learn_collections(y: Any) -> tuple[LabelForm, Bools]:
    """Return the form and the label sets of a collection of classes for each bag."""
    _check_collections(y)
    encoder = _sorted_encoder(y)
    form = LabelForm(encoder, encoder.classes_, is_binary=False)
    return form, encoder.transform(y) > 0


def _learn_matrix(y: Any) -> tuple[LabelForm, Bools]:
    """Return the form and the label sets of zeros and ones (B, C)."""
    _check_zeros_and_ones(y)
    encoder = LabelBinarizer()
    label_sets = encoder.fit_transform(y)
    classes = y.columns if isinstance(y, pd.DataFrame) else encoder.classes_
    return LabelForm(encoder, classes, is_binary=False), label_sets > 0


def _learn_single_labels(y: Any) -> tuple[LabelForm, Bools]:
    """Return the form and the label sets (B, 1) of one label for each bag."""
    column = column_or_1d(y, warn=True)
    _check_single_labels(column)
    encoder = LabelBinarizer()
    label_sets = encoder.fit_transform(column)
    if len(encoder.classes_) != 2:
        found = counted(len(encoder.classes_), "class", "classes")
        raise UsageError(
            f"y has {found}, expected two. Only binary classification is supported. "
            "For more give label sets"
        )
    return LabelForm(encoder, encoder.classes_, is_binary=True), label_sets > 0


def _are_collections(y: Any) -> bool:
    """Return whether y is collections of classes.

    Nested lists of zeros and ones are a matrix, as in scikit-learn.
    """
    if getattr(y, "ndim", 1) != 1 or not isinstance(y, Iterable):
        return False
    if not all(isinstance(item, _COLLECTIONS) for item in y):
        return False
    try:
        return bool(type_of_target(y) != "multilabel-indicator")
    except (TypeError, ValueError):
        # `type_of_target` raises these for collections of different sizes, or of objects that
        # cannot be sorted.
        return True


def _check_collections(y: Iterable[Iterable[Any]]) -> None:
    """Raise UsageError where a bag or one of its classes is missing, such as None or NaN."""
    for number, classes in enumerate(y):
        if _is_missing(classes) or not isinstance(classes, Iterable):
            raise UsageError(
                f"y[{number}] is {classes!r}, expected a list of classes, empty for a bag without "
                "any"
            )
        for name in classes:
            if _is_missing(name):
                raise UsageError(
                    f"y[{number}] contains {name!r}, which is no class: leave it out; "
                    "an empty list is a bag without classes"
                )


def _sorted_encoder(y: Sequence[Any]) -> MultiLabelBinarizer:
    """Return the encoder of collections of classes.

    Raises UsageError where the classes cannot be sorted.
    """
    try:
        return MultiLabelBinarizer().fit(y)
    except TypeError:
        types = sorted({type(name).__name__ for classes in y for name in classes})
        raise UsageError(
            f"the classes in y are of the types {', '.join(types)}, expected numbers alone or "
            "strings alone"
        ) from None


def _check_no_collections(y: Any) -> None:
    """Raise UsageError where a value of y is missing, or only some bags have a collection."""
    if isinstance(y, pd.DataFrame):
        y = y.to_numpy()
    if isinstance(y, np.ndarray) and y.ndim == 2:
        _check_rows(y)
    if getattr(y, "ndim", 1) != 1 or not isinstance(y, Iterable):
        return
    values = list(y)
    are_collections = [isinstance(value, _COLLECTIONS) for value in values]
    some_are_collections = any(are_collections) and not all(are_collections)
    for number, value in enumerate(values):
        if _is_missing(value) or isinstance(value, dict):
            raise UsageError(
                f"y[{number}] is {value!r}, expected a label, or for every bag a list of classes, "
                "empty for a bag without any"
            )
        if some_are_collections and not are_collections[number]:
            raise UsageError(
                f"y[{number}] is {value!r}, and other bags have lists: give a list for every bag"
            )


def _check_rows(y: NDArray[Any]) -> None:
    """Raise UsageError where a row of (B, C) has a missing value."""
    has_missing = pd.isna(y).any(axis=1)
    if has_missing.any():
        number = int(has_missing.argmax())
        raise UsageError(f"y[{number}] is {y[number].tolist()}, expected no missing value")


def _check_zeros_and_ones(y: Any) -> None:
    """Raise UsageError where a matrix of label sets has a value other than 0 and 1.

    Nobody can know what a 2 means: how often a class occurs, or that it is not known.
    """
    if not isinstance(y, np.ndarray | pd.DataFrame | list | tuple):
        return
    matrix = np.asarray(y)
    is_other = (matrix != 0) & (matrix != 1)
    if is_other.any():
        value = matrix[is_other][0]
        raise UsageError(f"y contains {value}, expected zeros and ones, a column for each class")


def _check_single_labels(labels: NDArray[Any]) -> None:
    """Raise UsageError where one of the labels (B,) may be several classes in one string.

    A string with a semicolon may be a label set, as in tables, or the name of a class. Users avoid
    the ambiguity by a list of classes for every bag.
    """
    for number, label in enumerate(labels):
        if isinstance(label, str) and SEPARATOR in label:
            parts = [part.strip() for part in label.split(SEPARATOR)]
            raise UsageError(
                f"y[{number}] is {str(label)!r}, read as one label: give a list for every bag, "
                f"{parts!r} for several classes, {[str(label)]!r} for one class of that name"
            )


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or a missing value of pandas."""
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))
