"""The forms of labels that `BagClassifier` takes, and messages about labels that it refuses."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench import UsageError
from milbench.estimator.label_forms import learn_labels


def test_a_semicolon_separates_no_classes_in_one_label() -> None:
    with pytest.raises(UsageError) as error:
        learn_labels(["owl;wren", "owl"])
    assert str(error.value) == (
        "y[0] is 'owl;wren', read as one label: give a list for every bag, ['owl', 'wren'] for "
        "several classes, ['owl;wren'] for one class of that name"
    )


@pytest.mark.filterwarnings("ignore:A column-vector y")
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(np.array, id="array"),
        pytest.param(pd.Series, id="series"),
        pytest.param(lambda y: np.array(y)[:, None], id="column"),
    ],
)
def test_a_semicolon_is_seen_in_every_form(form: Any) -> None:
    with pytest.raises(UsageError, match=r"y\[1\] is 'owl;wren', read as one label"):
        learn_labels(form(["owl", "owl;wren"]))


def test_a_class_in_a_list_may_have_a_semicolon() -> None:
    form, labels = learn_labels([["owl;wren"], ["owl"], []])
    assert [*form.classes] == ["owl", "owl;wren"]
    assert labels.tolist() == [[False, True], [True, False], [False, False]]


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT])
def test_a_missing_class_in_a_list_is_reported_in_one_line(missing: Any) -> None:
    with pytest.raises(UsageError, match=r"^y\[1\] contains \S+, which is no class: leave it out"):
        learn_labels([["owl"], ["owl", missing], []])


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
@pytest.mark.parametrize(
    "others",
    [
        pytest.param(["owl", "wren"], id="names"),
        pytest.param([["owl"], ["owl", "wren"]], id="lists"),
        pytest.param([0, 1], id="numbers"),
    ],
)
def test_a_missing_label_is_reported_in_one_line(others: list[Any], missing: Any) -> None:
    with pytest.raises(UsageError, match=r"^y\[2\] is \S+, expected a label"):
        learn_labels([*others, missing])


def test_lists_and_labels_are_not_mixed() -> None:
    with pytest.raises(UsageError, match=r"y\[1\] is 'wren', and other bags have lists"):
        learn_labels([["owl"], "wren"])


def test_classes_of_several_types_are_reported_in_one_line() -> None:
    with pytest.raises(UsageError, match="the classes in y are of the types int, str, expected"):
        learn_labels([["owl"], [3]])


@pytest.mark.parametrize("form", [np.array, pd.DataFrame])
def test_a_matrix_with_nan_is_reported_in_one_line(form: Any) -> None:
    y = form([[1.0, 0.0], [np.nan, 1.0]])
    with pytest.raises(UsageError, match=r"y\[1\] is \[nan, 1.0\], expected no missing value"):
        learn_labels(y)


@pytest.mark.parametrize("form", [np.array, pd.DataFrame, list])
def test_a_matrix_of_counts_is_reported_in_one_line(form: Any) -> None:
    with pytest.raises(UsageError, match="y contains 2, expected zeros and ones"):
        learn_labels(form([[2, 0], [0, 2]]))


def test_a_dict_is_no_label() -> None:
    with pytest.raises(UsageError, match=r"y\[1\] is \{'owl': 1\}, expected a label"):
        learn_labels(["owl", {"owl": 1}])
