"""Parquet files: every value is what its type says."""

from pathlib import Path
from typing import Any

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
    """Return the bags of a file with a row a bag; columns are lists or Arrow arrays of four values."""
    values = {"bag": list("abcd"), "labels": ["x", "", "x", ""], **columns}
    values.setdefault("f", [0.5, 1.5, 2.5, 3.5])
    pq.write_table(pa.table(values), folder / "t.parquet")
    return load_bags(folder / "t.parquet", options or FeatureOptions(table=""))


def label_sets(bags: OwnBags) -> list[list[str]]:
    return [[bags.class_names[c] for c in has.nonzero()[0]] for has in bags.labels]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(pa.array([1, None, 2, 1]), [["1"], [], ["2"], ["1"]], id="nullable-integers"),
        pytest.param([2**53, 2**53 + 1, 2**53, None], [[str(2**53)], [str(2**53 + 1)], [str(2**53)], []], id="large"),
        pytest.param([b"c1", b"c2;c1", None, b""], [["c1"], ["c1", "c2"], [], []], id="bytes"),
        pytest.param([[23, 45], [1], [], None], [["23", "45"], ["1"], [], []], id="lists-of-integers"),
        pytest.param([["Cooper's Hawk"], ["a;b", "(c)"], [], ["a;b"]],
                     [["Cooper's Hawk"], ["(c)", "a;b"], [], ["a;b"]], id="lists-of-text"),
        pytest.param([[b"a"], [b"b", b"a"], [], []], [["a"], ["a", "b"], [], []], id="lists-of-bytes"),
        pytest.param([[2**53], [2**53 + 1], [None, 3], []], [[str(2**53)], [str(2**53 + 1)], ["3"], []],
                     id="lists-of-large-integers"),
        pytest.param(pa.array([[2**53 + 1], [None, 3], [], None], pa.list_view(pa.int64())),
                     [[str(2**53 + 1)], ["3"], [], []], id="views-of-lists"),
        pytest.param(pa.array(["a", "b", None, "a"]).dictionary_encode(), [["a"], ["b"], [], ["a"]], id="categories"),
    ],
)  # fmt: skip
def test_labels_are_what_their_type_says(
    tmp_path: Path, labels: Any, expected: list[list[str]]
) -> None:
    assert label_sets(load(tmp_path, labels=labels)) == expected


def test_lists_are_lists_whatever_the_separator(tmp_path: Path) -> None:
    labels = [["a,b"], ["c"], [], []]
    for separator in (";", ",", "list"):
        bags = load(tmp_path, FeatureOptions(table="", separator=separator), labels=labels)
        assert bags.class_names == ["a,b", "c"]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"labels": [b"a", b"\xff\xfe", b"", b""]}, r"row 2: column 'labels' .* no text in UTF-8"),
        ({"e": [True, None, False, True]}, r"row 2: column 'e' is '<NA>', expected a number"),
        ({"e": [[], [1.0], [1.0], [1.0]]}, r"row 1: column 'e' is \[\], expected a list of numbers"),
        ({"e": [[1.0]] * BAGS, "e[0]": [1.0] * BAGS}, r"the columns 'e\[0\]' and 'e'"),
        ({"labels": [{"a": 1}] * BAGS}, r"row 1: column 'labels' is \{'a': 1\}: .* not an object"),
        ({"labels": [[["a"]], [], [], []]}, r"row 1: column 'labels' .* not a list"),
        ({"bag": [["a"], ["b"], ["c"], ["d"]]}, r"row 1: column 'bag' is \['a'\]: .* not a list"),
        ({"f": [1, None, 3, 4]}, r"row 2: column 'f' is '<NA>', expected a number"),
        ({"e": [[1.0, 2], [1.0], [1.0, 2], [1.0, 2]]}, r"row 2: the list in column 'e' has 1 numbers, expected 2"),
        ({"e": [[1.0], None, [1.0], [1.0]]}, r"row 2: column 'e' is None, expected a list of numbers"),
        ({"e": [[1.0], [None], [1.0], [1.0]]}, r"row 2: column 'e' is \[nan\], expected a list of numbers"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_one_line(
    tmp_path: Path, columns: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load(tmp_path, **columns)
    assert "t.parquet" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_equal_names_are_one_line(tmp_path: Path) -> None:
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


def test_text_is_a_feature_only_where_it_is_named(tmp_path: Path) -> None:
    texts = ["1", "2", "3", "4"]
    assert load(tmp_path, site=texts).feature_names == ["f"]
    named = load(tmp_path, FeatureOptions(table="", features="site"), site=texts)
    assert [named.store.single(bag).item() for bag in range(BAGS)] == [1, 2, 3, 4]


EMBEDDINGS = [[1.0, 2, 3], [4.0, 5, 6], [7.0, 8, 9], [0.0, 1, 2]]


@pytest.mark.parametrize("name", ["embedding", "features"])
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 3), pa.list_(pa.int8())]
)
def test_lists_of_numbers_are_features(tmp_path: Path, name: str, kind: Any) -> None:
    bags = load(tmp_path, **{name: pa.array(EMBEDDINGS, kind)})
    assert set(bags.feature_names) == {"f", f"{name}[0]", f"{name}[1]", f"{name}[2]"}
    chosen = load(
        tmp_path, FeatureOptions(table="", features=name), **{name: pa.array(EMBEDDINGS, kind)}
    )
    assert [chosen.store.single(bag)[0].tolist() for bag in range(BAGS)] == EMBEDDINGS


def test_lists_of_other_lengths_can_be_left_out(tmp_path: Path) -> None:
    near = [[1], [1, 2], [3], []]
    options = FeatureOptions(table="", features="!near")
    assert load(tmp_path, options, near=near).feature_names == ["f"]
    assert load(tmp_path, FeatureOptions(table="", features="f"), near=near).feature_names == ["f"]


def test_lists_in_a_text_file_are_features(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('bag,labels,e\na,x,"[1, 2.5]"\nb,,"[3, 4]"\n')
    bags = load_bags(path, FeatureOptions(table=""))
    assert [bags.store.single(bag)[0].tolist() for bag in range(2)] == [[1, 2.5], [3, 4]]


def test_pictures_in_an_unused_column_are_no_mistake(tmp_path: Path) -> None:
    bags = load(tmp_path, picture=[b"\x89PNG\xff", b"\xff\xd8", None, b""])
    assert bags.feature_names == ["f"]
    assert list(bags.ignored) == ["picture"]
