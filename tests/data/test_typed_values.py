"""Tables in Parquet files: every value is read by its type, with no guess from its text."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table_files import column_names
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
BAGS = 4


def load(folder: Path, options: FeatureOptions | None = None, **columns: Any) -> OwnBags:
    """Return the bags of a Parquet file with a row for each of four bags.

    `columns` are lists or Arrow arrays of four values.
    """
    values = {"bag": list("abcd"), "labels": ["x", "", "x", ""], **columns}
    values.setdefault("f", [0.5, 1.5, 2.5, 3.5])
    pq.write_table(pa.table(values), folder / "t.parquet")
    return load_bags(folder / "t.parquet", options or FeatureOptions(table=""))


def complaint_of(folder: Path, **columns: Any) -> str:
    """Return the line that refuses a file with these columns."""
    with pytest.raises(UsageError) as caught:
        load(folder, **columns)
    line = str(caught.value)
    assert "t.parquet" in line
    assert "\n" not in line
    return line


def label_sets(bags: OwnBags) -> list[list[str]]:
    """Return the names of the classes of each bag."""
    names = np.array(bags.class_names)
    return [names[has_class].tolist() for has_class in bags.labels]


# Integers from 2^53 on are not all exact in double precision: LARGE + 1 would become LARGE.
LARGE = 2**53


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(pa.array([1, None, 2, 1]), [["1"], [], ["2"], ["1"]], id="nullable-integers"),
        pytest.param([LARGE, LARGE + 1, LARGE, None],
                     [[str(LARGE)], [str(LARGE + 1)], [str(LARGE)], []], id="large"),
        pytest.param([b"c1", b"c2;c1", None, b""], [["c1"], ["c1", "c2"], [], []], id="bytes"),
        pytest.param([[23, 45], [1], [], None],
                     [["23", "45"], ["1"], [], []], id="lists-of-integers"),
        pytest.param([["Cooper's Hawk"], ["a;b", "(c)"], [], ["a;b"]],
                     [["Cooper's Hawk"], ["(c)", "a;b"], [], ["a;b"]], id="lists-of-text"),
        pytest.param([[b"a"], [b"b", b"a"], [], []],
                     [["a"], ["a", "b"], [], []], id="lists-of-bytes"),
        pytest.param([[LARGE], [LARGE + 1], [None, 3], []],
                     [[str(LARGE)], [str(LARGE + 1)], ["3"], []], id="lists-of-large-integers"),
        pytest.param(pa.array([[LARGE + 1], [None, 3], [], None], pa.list_view(pa.int64())),
                     [[str(LARGE + 1)], ["3"], [], []], id="views-of-lists"),
        pytest.param(pa.array(["a", "b", None, "a"]).dictionary_encode(),
                     [["a"], ["b"], [], ["a"]], id="categories"),
    ],
)  # fmt: skip
def test_labels_are_what_their_type_says(
    tmp_path: Path, labels: Any, expected: list[list[str]]
) -> None:
    assert label_sets(load(tmp_path, labels=labels)) == expected


@pytest.mark.parametrize("separator", [";", ",", "list"])
def test_lists_are_lists_whatever_the_separator(tmp_path: Path, separator: str) -> None:
    labels = [["a,b"], ["c"], [], []]
    bags = load(tmp_path, FeatureOptions(table="", separator=separator), labels=labels)
    assert bags.class_names == ["a,b", "c"]


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        pytest.param(
            [b"a", b"\xff\xfe", b"", b""],
            r"row 2: column 'labels' .* no text in UTF-8",
            id="other bytes than text",
        ),
        pytest.param(
            [{"a": 1}] * BAGS,
            r"row 1: column 'labels' is \{'a': 1\}: .* not an object",
            id="an object",
        ),
        pytest.param(
            [[["a"]], [], [], []], r"row 1: column 'labels' .* not a list", id="a list in a list"
        ),
    ],
)
def test_labels_that_cannot_be_read_are_one_line(
    tmp_path: Path, labels: list[Any], complaint: str
) -> None:
    assert re.search(complaint, complaint_of(tmp_path, labels=labels))


def test_a_list_as_the_name_of_a_bag_is_refused(tmp_path: Path) -> None:
    line = complaint_of(tmp_path, bag=[["a"], ["b"], ["c"], ["d"]])
    assert re.search(r"row 1: column 'bag' is \['a'\]: .* not a list", line)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        pytest.param([True, None, False, True], "is '<NA>', expected a number", id="truth"),
        pytest.param([1, None, 3, 4], "is '<NA>', expected a number", id="integer"),
        pytest.param([[1.0], None, [1.0], [1.0]], "is None, expected a list of numbers", id="list"),
        pytest.param(
            [[1.0], [None], [1.0], [1.0]], "is [nan], expected a list of numbers", id="in-a-list"
        ),
    ],
)
def test_a_missing_feature_is_one_line(tmp_path: Path, values: list[Any], complaint: str) -> None:
    assert f"row 2: column 'e' {complaint}" in complaint_of(tmp_path, e=values)


def test_an_empty_list_of_features_is_one_line(tmp_path: Path) -> None:
    line = complaint_of(tmp_path, e=[[], [1.0], [1.0], [1.0]])
    assert "row 1: column 'e' is [], expected a list of numbers" in line


def test_a_list_of_another_length_is_one_line(tmp_path: Path) -> None:
    line = complaint_of(tmp_path, e=[[1.0, 2], [1.0], [1.0, 2], [1.0, 2]])
    assert "row 2: the list in column 'e' has 1 numbers, expected 2" in line


def test_a_column_named_like_an_entry_of_a_list_is_refused(tmp_path: Path) -> None:
    # The entries of the lists in the column e are features named e[0], e[1], ...
    columns = {"e": [[1.0]] * BAGS, "e[0]": [1.0] * BAGS}
    assert "the columns 'e[0]' and 'e'" in complaint_of(tmp_path, **columns)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = [pa.array(["a"]), pa.array([1.0]), pa.array([2.0])]
    pq.write_table(pa.table(columns, names=["bag", "f", "f"]), path)
    with pytest.raises(UsageError, match="several columns are named 'f', expected one"):
        load_bags(path, FeatureOptions(table=""))


def test_an_index_with_a_name_is_a_column(tmp_path: Path) -> None:
    index = pd.Index(["a", "b"], name="bag")
    frame = pd.DataFrame({"labels": ["x", ""], "f": [1.0, 2.0]}, index=index)
    frame.to_parquet(tmp_path / "t.parquet")
    bags = load_bags(tmp_path / "t.parquet", FeatureOptions(table=""))
    assert bags.bags == ["a", "b"]
    assert bags.feature_names == ["f"]


def test_an_index_without_a_name_is_no_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"bag": ["a", "b"], "labels": ["x", ""], "f": [1.0, 2.0]}, index=[7, 9])
    frame.to_parquet(tmp_path / "t.parquet")
    assert column_names(tmp_path / "t.parquet") == ["bag", "labels", "f"]


TEXTS_OF_NUMBERS = ["1", "2", "3", "4"]


def test_text_is_no_feature_by_itself(tmp_path: Path) -> None:
    assert load(tmp_path, site=TEXTS_OF_NUMBERS).feature_names == ["f"]


def test_text_is_a_feature_where_it_is_named(tmp_path: Path) -> None:
    bags = load(tmp_path, FeatureOptions(table="", features="site"), site=TEXTS_OF_NUMBERS)
    assert [bags.store.single(bag).item() for bag in range(BAGS)] == [1, 2, 3, 4]


EMBEDDINGS = [[1.0, 2, 3], [4.0, 5, 6], [7.0, 8, 9], [0.0, 1, 2]]

LISTS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(pa.list_(pa.float32()), id="single precision"),
        pytest.param(pa.list_(pa.float64(), 3), id="of a fixed length"),
        pytest.param(pa.list_(pa.int8()), id="integers"),
    ],
)
NAMES = pytest.mark.parametrize("name", ["embedding", "features"])


@NAMES
@LISTS
def test_lists_of_numbers_are_features(tmp_path: Path, name: str, kind: Any) -> None:
    bags = load(tmp_path, **{name: pa.array(EMBEDDINGS, kind)})
    assert set(bags.feature_names) == {"f", f"{name}[0]", f"{name}[1]", f"{name}[2]"}


@NAMES
@LISTS
def test_a_column_of_lists_can_be_named(tmp_path: Path, name: str, kind: Any) -> None:
    options = FeatureOptions(table="", features=name)
    bags = load(tmp_path, options, **{name: pa.array(EMBEDDINGS, kind)})
    assert [bags.store.single(bag)[0].tolist() for bag in range(BAGS)] == EMBEDDINGS


@pytest.mark.parametrize("features", ["!near", "f"], ids=["left out", "not named"])
def test_lists_of_other_lengths_need_not_be_features(tmp_path: Path, features: str) -> None:
    near = [[1], [1, 2], [3], []]
    bags = load(tmp_path, FeatureOptions(table="", features=features), near=near)
    assert bags.feature_names == ["f"]


def test_lists_in_a_text_file_are_features(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('bag,labels,e\na,x,"[1, 2.5]"\nb,,"[3, 4]"\n')
    bags = load_bags(path, FeatureOptions(table=""))
    assert [bags.store.single(bag)[0].tolist() for bag in range(2)] == [[1, 2.5], [3, 4]]


def test_pictures_in_an_unused_column_are_no_mistake(tmp_path: Path) -> None:
    bags = load(tmp_path, picture=[b"\x89PNG\xff", b"\xff\xd8", None, b""])
    assert bags.feature_names == ["f"]
    assert list(bags.ignored) == ["picture"]
