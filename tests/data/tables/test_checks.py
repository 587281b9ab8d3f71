from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from milbench.data.tables.bag_table import BagTable
from milbench.data.tables.checks import check_bags


def table() -> BagTable:
    features = np.arange(12, dtype=np.float32).reshape(6, 2)
    labels = np.array([[True, False], [False, False], [True, True]])
    return BagTable(
        Path("bags.csv"), ["a", "b", "c"], labels, ["cat", "dog"], np.array([0, 2, 3, 6]), features, ["f", "g"],
        rows=np.arange(6),
    )  # fmt: skip


def found(bags: BagTable, level: str, limit: int = 16) -> dict[str, str]:
    return {finding.what: finding.found for finding in check_bags(bags, limit) if finding.level == level}


def test_facts_are_counted() -> None:
    facts = found(table(), "fact")
    assert facts["bags"] == "3, with 6 instances"
    assert facts["bag sizes"] == "1 to 3, median 2"
    assert facts["classes"] == "2, a bag has 0 to 2 of them"
    assert facts["empty label sets"] == "1 of 3 bags"
    assert (facts["class cat"], facts["class dog"]) == ("in 2 of 3 bags", "in 1 of 3 bags")
    assert found(table(), "warning") == found(table(), "fatal") == {}


def test_bags_of_equal_content_are_named_and_those_in_two_parts_of_a_split() -> None:
    features = table().features.copy()
    features[2] = features[0]
    twin = replace(table(), starts=np.array([0, 1, 2, 3]), bags=["a", "b", "c"], features=features[[0, 1, 2]])
    warnings = found(twin, "warning")
    assert warnings["bags of equal content"] == "1: a = c"
    assert warnings["equal bags, other labels"] == "1: a = c"
    assert "equal bags in two parts" not in warnings
    assert found(replace(twin, split=["train", "train", "test"]), "warning")["equal bags in two parts"] == "1: a = c"
    assert "equal bags in two parts" not in found(replace(twin, split=["test", "train", "test"]), "warning")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_feature_that_is_not_finite_is_fatal_and_placed(value: float) -> None:
    features = table().features.copy()
    features[4, 1] = value
    (text,) = found(replace(table(), features=features), "fatal").values()
    assert text == f"1, the first in bags.csv, row 6: g is {value}"


def test_constant_features_are_a_warning_and_fatal_where_all_are() -> None:
    features = table().features.copy()
    features[:, 1] = 3
    assert found(replace(table(), features=features), "warning") == {"constant features": "1: g"}
    features[:, 0] = 5
    assert "all are constant" in found(replace(table(), features=features), "fatal")["features"]


def test_large_label_sets_say_what_exact_does_and_too_large_ones_are_fatal() -> None:
    assert "certified lower bound" in found(table(), "warning", limit=1)["large label sets"]
    labels = np.array([[True, False], [True, True], [True, True]])
    assert (
        "1 have more classes than instances: b"
        in (found(replace(table(), labels=labels), "fatal")["bags with too few instances"])
    )


def test_classes_that_are_everywhere_or_missing_from_a_part_are_named() -> None:
    split = ["train", "test", "train"]
    assert found(replace(table(), split=split), "warning")["class dog"] == "is in no bag of test"
    everywhere = np.array([[True, False], [True, False], [True, True]])
    assert "is in every bag" in found(replace(table(), labels=everywhere), "warning")["class cat"]
