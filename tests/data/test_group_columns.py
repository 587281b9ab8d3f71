"""Columns that say which bags belong together, such as patients.

Two predicates find them, and a check of the data names them: bags of a patient should not be in two
parts of a split.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench.data.bag_checks import check_bags
from milbench.data.group_columns import is_shared_and_unsplit, stands_in_train_and_test
from milbench.data.load_bags import load_bags
from milbench.data.splits import split_bags
from milbench.data.table_options import FeatureOptions

BAGS = 80


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0, 0, 0, 0, 1, 1], True, id="two-bags-share-a-value"),
        pytest.param([0, 0, 1, 1, 2, 2], False, id="no-bag-shares-a-value"),
        pytest.param([0, 0, 0, 0, 0, 0], False, id="one-value"),
        pytest.param([0, 1, 0, 1, 1, 1], False, id="a-bag-is-split"),
        pytest.param([0, 0, 0, 0, -1, -1], False, id="one-value-and-empty-fields"),
        pytest.param([-1, -1, -1, -1, 0, 0], False, id="empty-fields-are-not-shared"),
    ],
)  # fmt: skip
def test_a_group_is_a_value_that_bags_share_and_no_bag_has_two_of(
    values: list[int], expected: bool
) -> None:
    # An empty field is -1.
    bags = np.array([0, 0, 1, 1, 2, 2])
    assert is_shared_and_unsplit(np.array(values), bags) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0, 0, 1, 1], False, id="apart"),
        pytest.param([0, 1, 1, 2], True, id="one-value-in-both"),
        pytest.param([0, -1, -1, 2], False, id="empty-fields-in-both"),
    ],
)
def test_a_value_in_training_and_test_bags_is_found(values: list[int], expected: bool) -> None:
    assert stands_in_train_and_test(np.array(values), [0, 1], [2, 3]) is expected


def in_fours(prefix: str) -> list[str]:
    """Return a value for each bag; every four bags in a row share one value."""
    return [f"{prefix}{number // 4}" for number in range(BAGS)]


def alternating(first: str, second: str) -> list[str]:
    """Return two values in turn for the bags."""
    return [second if number % 2 else first for number in range(BAGS)]


def halves(first: str, second: str) -> list[str]:
    """Return one value for the first half of the bags, another for the others."""
    return [first] * (BAGS // 2) + [second] * (BAGS // 2)


def warnings_of(folder: Path, **columns: list[Any]) -> list[str]:
    """Return the warnings about groups in a table of bags of one instance.

    Each column has a value for each bag.
    """
    usual = {"bag": range(BAGS), "labels": alternating("", "wren"), "f": range(BAGS)}
    path = folder / "t.csv"
    pd.DataFrame(usual | columns).to_csv(path, index=False)
    options = FeatureOptions(table=str(path))
    findings = check_bags(load_bags(path, options), options)
    what = "a column that reads like a group"
    return [finding.detail for finding in findings if finding.what == what]


def test_every_column_that_may_be_a_group_is_named(tmp_path: Path) -> None:
    farm, patient = warnings_of(
        tmp_path,
        farm=in_fours("farm "),
        patient=[f"P{number // 2}" for number in range(BAGS)],
        # These two are no groups: sex has too few values to split by, and each bag has its note.
        sex=alternating("f", "m"),
        note=[f"note {number}" for number in range(BAGS)],
    )
    assert "farm: 20 values" in farm
    assert "-p task.group=farm keeps them in one part" in farm
    assert "-p task.group=patient" in patient


def test_the_named_group_keeps_its_bags_together(tmp_path: Path) -> None:
    patients = in_fours("P")
    (text,) = warnings_of(tmp_path, patient=patients)
    assert "-p task.group=patient" in text
    options = FeatureOptions(table="", group="patient")
    split = split_bags(load_bags(tmp_path / "t.csv", options), options, 0)
    train, validation, test = ({patients[bag] for bag in part} for part in split)
    assert train.isdisjoint(validation)
    assert train.isdisjoint(test)
    assert validation.isdisjoint(test)


def test_a_group_apart_in_a_given_split_is_not_named(tmp_path: Path) -> None:
    split = halves("train", "test")
    assert warnings_of(tmp_path, patient=in_fours("P"), split=split) == []


def test_no_option_is_named_where_a_given_split_divides_groups(tmp_path: Path) -> None:
    split = alternating("test", "train")
    (text,) = warnings_of(tmp_path, patient=in_fours("P"), split=split)
    assert "trained and tested on" in text
    assert "-p" not in text


def test_a_group_not_known_of_all_bags_says_so(tmp_path: Path) -> None:
    patients = [""] * 8 + in_fours("P")[8:]
    (text,) = warnings_of(tmp_path, patient=patients)
    assert "it is empty for 8 bags" in text


def test_large_numbers_of_patients_stay_apart(tmp_path: Path) -> None:
    """In single precision, in which features are kept, several of these numbers are equal."""
    ids = [10**9 + number for number in range(BAGS)]
    assert warnings_of(tmp_path, patient_id=ids) == []
