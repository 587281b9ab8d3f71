"""Columns that say which bags belong together: the two predicates, and when a check names such a column."""

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
def test_several_bags_share_a_value_and_no_bag_has_two(values: list[int], expected: bool) -> None:
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
def test_a_value_stands_in_train_and_test(values: list[int], expected: bool) -> None:
    assert stands_in_train_and_test(np.array(values), [0, 1], [2, 3]) is expected


def warnings_of(folder: Path, columns: dict[str, list[Any]], **options: Any) -> list[str]:
    """Return what is said of groups in a table of bags, of which columns have a value each."""
    labels = ["wren" if n % 2 else "" for n in range(BAGS)]
    frame = pd.DataFrame({"bag": range(BAGS), "labels": labels, "f": range(BAGS), **columns})
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    chosen = FeatureOptions(table=str(path), **options)
    found = check_bags(load_bags(path, chosen), chosen)
    return [one.detail for one in found if one.what == "a column that reads like a group"]


def test_every_column_that_may_be_a_group_is_named(tmp_path: Path) -> None:
    columns = {
        "farm": [f"farm {n // 4}" for n in range(BAGS)],
        "patient": [f"P{n // 2}" for n in range(BAGS)],
        "sex": ["f" if n % 3 else "m" for n in range(BAGS)],
        "note": [f"note {n}" for n in range(BAGS)],
    }
    farm, patient = warnings_of(tmp_path, columns)
    assert "farm: 20 values" in farm
    assert "-p task.group=farm keeps them in one part" in farm
    assert "-p task.group=patient" in patient


def test_the_named_group_keeps_its_bags_together(tmp_path: Path) -> None:
    owners = [n // 4 for n in range(BAGS)]
    columns = {"patient": [f"P{owner}" for owner in owners]}
    assert len(warnings_of(tmp_path, columns)) == 1
    options = FeatureOptions(table="", group="patient")
    split = split_bags(load_bags(tmp_path / "t.csv", options), options, 0)
    parts = [{owners[bag] for bag in part} for part in split]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_group_apart_in_a_given_split_is_not_named(tmp_path: Path) -> None:
    columns = {
        "patient": [f"P{n // 4}" for n in range(BAGS)],
        "split": ["train" if n < BAGS // 2 else "test" for n in range(BAGS)],
    }
    assert warnings_of(tmp_path, columns) == []


def test_no_option_is_named_where_a_given_split_divides_groups(tmp_path: Path) -> None:
    columns = {
        "patient": [f"P{n // 4}" for n in range(BAGS)],
        "split": ["train" if n % 2 else "test" for n in range(BAGS)],
    }
    (text,) = warnings_of(tmp_path, columns)
    assert "trained and tested on" in text
    assert "-p" not in text


def test_a_group_not_known_of_all_bags_says_so(tmp_path: Path) -> None:
    columns = {"patient": [f"P{n // 4}" if n > 7 else "" for n in range(BAGS)]}
    (text,) = warnings_of(tmp_path, columns)
    assert "it is empty for 8 bags" in text


def test_large_numbers_of_patients_stay_apart(tmp_path: Path) -> None:
    """Single precision, in which features are kept, would make one patient of several."""
    columns = {"patient_id": [10**9 + n for n in range(BAGS)]}
    assert warnings_of(tmp_path, columns) == []
