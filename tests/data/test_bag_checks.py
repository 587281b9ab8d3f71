"""The checks of somebody's bags before training: facts, warnings and fatal faults."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.data import bag_checks
from milbench.data.annotations import Annotation
from milbench.data.bag_checks import check_bags
from milbench.data.own_bags import OwnBags
from milbench.data.split_checks import checked_splits
from milbench.data.table_options import FeatureOptions, SequenceOptions, TableOptions
from milbench.likelihood import EXACT_LABEL_LIMIT
from tests._helpers.own_bags import own_bags, store_of

LABELS = [[True, False], [False, False], [True, True]]
CLASSES = ["cat", "dog"]


def six_instances() -> NDArray[np.float32]:
    """Return six instances with two features; all values differ."""
    return np.arange(12, dtype=np.float32).reshape(6, 2)


def table(
    features: NDArray[np.float32] | None = None,
    labels: list[list[bool]] = LABELS,
    **columns: Any,
) -> OwnBags:
    """Return three bags of 2, 1 and 3 instances of two features."""
    if features is None:
        features = six_instances()
    return own_bags(np.split(features, [2, 3]), labels, CLASSES, **columns)


FEATURES = FeatureOptions(table="")
SEQUENCES = SequenceOptions(table="")


def found(bags: OwnBags, level: str, options: TableOptions = FEATURES) -> dict[str, str]:
    """Return what a finding is about -> its detail, for all findings of a level."""
    findings = check_bags(bags, options)
    return {finding.what: finding.detail for finding in findings if finding.level == level}


@pytest.mark.parametrize(
    ("what", "detail"),
    [
        ("bags", "3, with 6 instances"),
        ("bag sizes", "1 to 3, median 2"),
        ("classes", "2, a bag has 0 to 2 of them"),
        ("empty label sets", "1 of 3 bags"),
        ("class cat", "in 2 of 3 bags"),
        ("class dog", "in 1 of 3 bags"),
    ],
)
def test_facts_are_counted(what: str, detail: str) -> None:
    assert found(table(), "fact")[what] == detail


@pytest.mark.parametrize("level", ["warning", "fatal"])
def test_nothing_is_wrong_with_a_plain_table(level: str) -> None:
    assert found(table(), level) == {}


def table_with_twins(**columns: Any) -> OwnBags:
    """Return bags a, b and c; a and c have the same instances but different labels."""
    one = np.arange(2.0).reshape(1, 2)
    other = np.full((1, 2), 9.0)
    return replace(table(), store=store_of([one, other, one]), **columns)


@pytest.mark.parametrize("what", ["bags of equal content", "equal bags, other labels"])
def test_bags_of_equal_content_are_named(what: str) -> None:
    assert found(table_with_twins(), "warning")[what] == "1: a = c"


def test_equal_bags_in_two_parts_of_a_split_are_named() -> None:
    apart = table_with_twins(split=["train", "train", "test"])
    assert found(apart, "warning")["equal bags in two parts"] == "1: a = c"


@pytest.mark.parametrize(
    "split",
    [
        pytest.param(None, id="no split is given"),
        pytest.param(["test", "train", "test"], id="both in one part"),
    ],
)
def test_equal_bags_that_are_not_apart_are_no_leak(split: list[str] | None) -> None:
    columns = {} if split is None else {"split": split}
    assert "equal bags in two parts" not in found(table_with_twins(**columns), "warning")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_feature_that_is_not_finite_is_fatal_and_named_with_its_row(value: float) -> None:
    features = six_instances()
    features[4, 1] = value
    (text,) = found(table(features), "fatal").values()
    assert text == f"1, the first in bags.csv, row 6: g is {value} in single precision"


def test_a_constant_feature_is_a_warning() -> None:
    features = six_instances()
    features[:, 1] = 3
    assert found(table(features), "warning") == {"constant features": "1: g"}


def test_features_that_are_all_constant_are_fatal() -> None:
    features = np.full((6, 2), 3, np.float32)
    assert "all are constant" in found(table(features), "fatal")["features"]


def features_of(*columns: NDArray[Any]) -> OwnBags:
    """Return a table with these features, in bags of two instances.

    In turn, a bag has a cat and a dog, a dog, and no class.
    """
    bags = len(columns[0]) // 2
    labels = np.arange(bags)[:, None] % 3 < [1, 2]
    return own_bags(np.split(np.stack(columns, axis=1), bags), labels, ["cat", "dog"])


@pytest.mark.parametrize(
    ("value", "largest", "missing", "count"),
    [
        pytest.param(-9999, 100, 3, 300, id="few, far away"),
        pytest.param(-1, 0.01, 6, 30, id="many, near 0"),
    ],
)
def test_values_that_may_stand_for_missing_ones_are_named_with_a_row(
    value: float, largest: float, missing: int, count: int
) -> None:
    rng = np.random.default_rng(0)
    column = rng.uniform(0, largest, size=count)
    column[5 : 5 + missing] = value
    warnings = found(features_of(rng.normal(size=count), column), "warning")
    assert warnings["values far from all others"] == (
        f"g is {value:g} in {missing} instances, the first in row 7; are they missing values?"
    )


def mostly_zero() -> NDArray[Any]:
    """Return 300 values, of which two are 5 and all others 0."""
    column = np.zeros(300)
    column[[7, 90]] = 5
    return column


def with_one_spike() -> NDArray[Any]:
    """Return values that are mostly one number; one value is far away, as in real data."""
    column = np.full(300, -0.03)
    column[:40] = np.linspace(-0.05, 0.03, 40)
    column[41] = 36.8
    return column


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(np.random.default_rng(0).lognormal(0, 3, size=300), id="skewed"),
        pytest.param(np.random.default_rng(1).standard_t(2, size=300), id="heavy tails"),
        pytest.param(np.random.default_rng(2).poisson(0.1, size=300), id="rare counts"),
        pytest.param(mostly_zero(), id="mostly zero"),
        pytest.param(with_one_spike(), id="one spike"),
    ],
)
def test_values_merely_rare_or_large_are_not_called_missing(column: NDArray[Any]) -> None:
    normal = np.random.default_rng(3).normal(size=300)
    warnings = found(features_of(normal, column), "warning")
    assert "values far from all others" not in warnings


def test_of_four_instances_no_value_is_called_missing() -> None:
    column = np.array([1.0, 2, -9999, -9999])
    warnings = found(features_of(column, np.arange(4.0)), "warning")
    assert "values far from all others" not in warnings


def test_the_limit_of_large_label_sets_is_the_limit_of_exact() -> None:
    assert bag_checks.EXACT_LABEL_LIMIT == EXACT_LABEL_LIMIT


def test_large_label_sets_say_what_exact_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bag_checks, "EXACT_LABEL_LIMIT", 1)
    assert "certified lower bound" in found(table(), "warning")["large label sets"]


def test_label_sets_larger_than_their_bags_are_fatal() -> None:
    fatal = found(table(labels=[[True, False], [True, True], [True, True]]), "fatal")
    assert "1 have more classes than instances: b" in fatal["bags with too few instances"]


def test_classes_are_named_that_a_part_of_a_split_lacks() -> None:
    warnings = found(table(split=["train", "test", "train"]), "warning")
    assert warnings == {
        "classes missing from a part of the split": "2: cat from test, dog from test",
        "classes in every bag of a part of the split": "1: cat in train",
    }


def test_a_class_in_every_bag_is_named() -> None:
    everywhere = table(labels=[[True, False], [True, False], [True, True]])
    assert "is in every bag" in found(everywhere, "warning")["class cat"]


def frames(length: int) -> NDArray[Any]:
    """Return a sequence of frames with two features; all values differ."""
    return np.arange(2.0 * length).reshape(2, length).T


FOUR = frames(4)
SIX = frames(6)
TEN = frames(10)


def sequences(some: list[NDArray[Any]], **columns: Any) -> OwnBags:
    """Return a table of three sequences with LABELS, two frames a second."""
    return own_bags(
        some,
        LABELS,
        CLASSES,
        bags=["a.wav", "b.wav", "c.wav"],
        path=Path("t.csv"),
        frames_per_second=2.0,
        rows=None,
        **columns,
    )


def found_of_length(length: int, level: str) -> list[str]:
    """Return findings about too few frames, where the third sequence has `length` frames.

    The third sequence has two classes.
    """
    findings = found(sequences([FOUR, SIX, frames(length)]), level, SEQUENCES)
    return [detail for what, detail in findings.items() if "too few" in what]


def test_a_sequence_of_fewer_frames_than_classes_is_fatal() -> None:
    expected = "1: c.wav (row 4) has 2 classes and 1 frames"
    assert found_of_length(1, "fatal") == [expected]
    assert found_of_length(1, "warning") == []


def test_a_sequence_of_fewer_blocks_of_four_than_classes_is_warned_of() -> None:
    expected = "1: c.wav (row 4) has 2 classes and 4 frames"
    assert found_of_length(4, "warning") == [expected]
    assert found_of_length(4, "fatal") == []


@pytest.mark.parametrize("level", ["warning", "fatal"])
def test_a_sequence_of_enough_frames_is_not_named(level: str) -> None:
    assert found_of_length(5, level) == []


def test_an_event_that_begins_after_the_end_is_named_with_its_row() -> None:
    bags = sequences([FOUR, SIX, TEN], marks=[[Annotation(0, (2, 3))], [], []])
    (detail,) = found(bags, "fatal", SEQUENCES).values()
    assert detail == "1: a.wav (row 2) lasts 2 seconds and has 'cat' from 2"


def test_an_event_may_last_beyond_the_end() -> None:
    bags = sequences([FOUR, SIX, TEN], marks=[[Annotation(0, (1.9, 3))], [], []])
    assert found(bags, "fatal", SEQUENCES) == {}


def test_a_sequence_that_is_not_finite_is_named_with_its_row() -> None:
    bags = sequences([FOUR, np.full((6, 2), np.nan), TEN])
    assert found(bags, "fatal", SEQUENCES) == {
        "sequences with values that are not finite": "1: b.wav (row 3)"
    }


TWINS = [FOUR, SIX, FOUR.copy()]
DETAIL_OF_TWINS = "1: a.wav (row 2) = c.wav (row 4)"

IN_TWO_PARTS = [
    pytest.param({}, id="nothing keeps them together"),
    pytest.param({"groups": ["x", "x", "y"]}, id="other groups"),
    pytest.param({"split": ["train", "test", "test"]}, id="other parts"),
]
IN_ONE_PART = [
    pytest.param({"groups": ["x", "y", "x"]}, id="one group"),
    pytest.param({"split": ["test", "train", "test"]}, id="one part"),
]


@pytest.mark.parametrize("columns", IN_TWO_PARTS)
def test_equal_sequences_that_may_be_apart_are_fatal(columns: dict[str, list[str]]) -> None:
    # A test recording might then be one that the network was trained on.
    fatal = found(sequences(TWINS, **columns), "fatal", SEQUENCES)
    assert list(fatal.values()) == [DETAIL_OF_TWINS]


@pytest.mark.parametrize("columns", IN_ONE_PART)
def test_equal_sequences_that_stay_together_are_not_fatal(columns: dict[str, list[str]]) -> None:
    assert found(sequences(TWINS, **columns), "fatal", SEQUENCES) == {}


@pytest.mark.parametrize("columns", IN_TWO_PARTS + IN_ONE_PART)
def test_equal_sequences_are_always_warned_of(columns: dict[str, list[str]]) -> None:
    warnings = found(sequences(TWINS, **columns), "warning", SEQUENCES)
    assert warnings["sequences of equal content"] == DETAIL_OF_TWINS


FEW = ("only one bag", "only one group", "two bags", "two groups")
"""What findings about too few bags or groups are about."""


@pytest.mark.parametrize(
    ("count", "columns", "levels"),
    [
        pytest.param(1, {}, ["fatal"], id="one bag"),
        pytest.param(2, {}, ["warning"], id="two bags"),
        pytest.param(3, {}, [], id="three bags"),
        pytest.param(3, {"groups": ["x", "x", "x"]}, ["fatal"], id="one group"),
        pytest.param(3, {"groups": ["x", "y", "y"]}, ["warning"], id="two groups"),
        pytest.param(2, {"split": ["train", "test"]}, [], id="two bags that are split already"),
    ],
)
def test_too_few_bags_or_groups_for_a_split_are_found(
    count: int, columns: dict[str, list[str]], levels: list[str]
) -> None:
    instances = [np.array([[number, number + 0.5]]) for number in range(count)]
    labels = np.array([[True, False]] * count)
    bags = own_bags(instances, labels, CLASSES, bags=list("abc"[:count]), **columns)
    findings = check_bags(bags, FEATURES)
    assert [finding.level for finding in findings if finding.what in FEW] == levels


@pytest.mark.parametrize(
    ("validation", "count"),
    [
        pytest.param(0.1, 0, id="a third bag is needed to validate on"),
        pytest.param(0, 10, id="one bag to train on and one to test on"),
    ],
)
def test_two_bags_are_split_without_validation_bags(validation: float, count: int) -> None:
    instances = [np.array([[number, number + 0.5]]) for number in range(2)]
    bags = own_bags(instances, np.array([[True, False], [False, True]]), CLASSES, bags=["a", "b"])
    options = FeatureOptions(table="t.csv", validation=validation)
    assert len(checked_splits(bags, options)) == count


# Importing torch takes seconds, which a check of a table need not wait for.
CHECK_AND_LOOK = """
import sys
from milbench.cli.main import main

sys.argv = ["milbench", "data", "check", sys.argv[1]]
try:
    main()
finally:
    print("torch" in sys.modules)
"""


def test_a_table_is_checked_without_torch(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("bag,labels,f\na,x,1\nb,,2\nc,x,3\n")
    ran = subprocess.run(
        [sys.executable, "-c", CHECK_AND_LOOK, str(table)], capture_output=True, text=True
    )
    assert ran.stdout.splitlines()[-1] == "False", ran.stderr


GROUPS = ["x", "y", "x"]


def test_a_group_in_one_part_of_a_split_is_fine() -> None:
    assert found(table(groups=GROUPS, split=["train", "test", "train"]), "fatal") == {}


def test_a_group_in_two_parts_of_a_split_is_fatal() -> None:
    apart = found(table(groups=GROUPS, split=["train", "train", "test"]), "fatal")
    assert apart == {"groups in two parts of the split": "1: x"}
