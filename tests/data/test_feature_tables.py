from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench.data.own_bags import Columns, OwnBags, load_bags
from milbench.errors import UsageError


def parts(table: OwnBags) -> list[list[list[float]]]:
    return [table.store.single(bag).tolist() for bag in range(len(table))]


# The rows of bag b lie apart, and its name is a number.
TEXT = """bag,labels,size,kind,weight
7,cat;dog,1,x,0.5
b,,2,y,1.5
7,dog; cat,3,x,2.5
c,eel,4,z,-1
b,,5,x,1e2
"""


def load(folder: Path, text: str, columns: Columns | None = None) -> Any:
    path = folder / "bags.csv"
    path.write_text(text, "utf-8")
    return load_bags(path, columns or Columns())


def test_a_row_an_instance(tmp_path: Path) -> None:
    table = load(tmp_path, TEXT)
    assert table.bags == ["7", "b", "c"]
    assert table.class_names == ["cat", "dog", "eel"]
    assert table.labels.tolist() == [[True, True, False], [False] * 3, [False, False, True]]
    assert table.feature_names == ["size", "weight"]
    assert table.ignored == ["kind"]
    assert parts(table) == [[[1, 0.5], [3, 2.5]], [[2, 1.5], [5, 100]], [[4, -1]]]
    assert table.rows.tolist() == [0, 2, 1, 4, 3]
    assert table.store.sizes.tolist() == [2, 2, 1]
    assert (table.instance_classes, table.groups, table.split) == (None, None, None)


def test_two_forms_of_a_letter_are_one_class(tmp_path: Path) -> None:
    one, two = "caf\u00e9", "cafe\u0301"
    text = f"bag,labels,instance_label,size\na,{one},{two},1\nb,{two},,2\nb,{one},{one},3\n"
    table = load(tmp_path, text)
    assert table.class_names == [one]
    assert table.labels.tolist() == [[True], [True]]
    assert table.instance_classes.tolist() == [0, 1, 0]
    assert load(tmp_path, text, Columns(classes=two)).class_names == [one]


def test_columns_of_zero_and_one_are_classes(tmp_path: Path) -> None:
    text = "name,has_a,has_b,f1,f2,other\nx,1,0,1,2,9\nx,1,0,3,4,9\ny,0,0,5,6,9\n"
    table = load(tmp_path, text, Columns(bag="name", labels="has_*", features="f*"))
    assert table.class_names == ["has_a", "has_b"]
    assert table.labels.tolist() == [[True, False], [False, False]]
    assert table.feature_names == ["f1", "f2"]
    assert table.ignored == ["other"]
    listed = load(tmp_path, text, Columns(bag="name", labels="has_b;has_a", features="other;f2"))
    assert (listed.class_names, listed.feature_names) == (["has_b", "has_a"], ["other", "f2"])


def test_instance_labels_groups_and_split(tmp_path: Path) -> None:
    text = "bag,labels,instance_label,group,split,f\n1,a;b,b,g,train,1\n1,a;b,,g,train,2\n2,a,a,g,test,3\n"
    table = load(tmp_path, text)
    assert table.instance_classes.tolist() == [1, 2, 0], "2 is background"
    assert (table.groups, table.split) == (["g", "g"], ["train", "test"])


def test_the_digest_follows_the_content_and_not_the_form(tmp_path: Path) -> None:
    text = TEXT.replace("eel", "NA")
    table = load(tmp_path, text)
    assert table.class_names == ["NA", "cat", "dog"], "which is no missing value"
    (tmp_path / "bags.tsv").write_text(text.replace(",", "\t"), "utf-8")
    pd.read_csv(tmp_path / "bags.csv", keep_default_na=False).to_parquet(tmp_path / "bags.parquet")
    for name in ("bags.tsv", "bags.parquet"):
        assert load_bags(tmp_path / name, Columns()).digest == table.digest
    for changed in (text.replace("-1", "-2"), text.replace("NA", "cat"), text.replace("c,NA", "d,NA")):
        assert load(tmp_path, changed).digest != table.digest


def test_a_row_a_bag_with_a_file_of_features(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    np.save(tmp_path / "parts/x.npy", np.arange(6).reshape(3, 2))
    np.save(tmp_path / "parts/y.npy", np.ones((1, 2)))
    text = "bag,labels,path,note\nx,a;b,parts/x.npy,1\ny,,parts/y.npy,2\n"
    table = load(tmp_path, text, Columns(features="@path"))
    assert table.store.offsets.tolist() == [0, 3, 4]
    assert parts(table) == [[[0, 1], [2, 3], [4, 5]], [[1, 1]]]
    assert table.labels.tolist() == [[True, True], [False, False]]
    assert table.ignored == ["note"]
    np.save(tmp_path / "parts/y.npy", np.full((1, 2), 7.0))
    os.utime(tmp_path / "parts/y.npy", ns=(1, 1))
    again = load_bags(tmp_path / "bags.csv", Columns(features="@path"))
    assert parts(again)[-1] == [[7, 7]], "a file that the table names has changed"
    assert again.digest != table.digest
    with pytest.raises(UsageError, match=r"row 4: 'x' is the bag of row 2 too, expected a row for each"):
        load(tmp_path, text + "x,a;b,parts/x.npy,3\n", Columns(features="@path"))


@pytest.mark.parametrize(("text", "columns", "complaint"), [
    (TEXT.replace("bag,", "bags,"), {}, r"no column 'bag' .*did you mean 'bags'"),
    (TEXT.replace(",", ";"), {}, r"no column 'bag' .*; its columns seem to be separated by semicolons, expected"),
    (TEXT.replace("b,,2", ",,2"), {}, r"row 3: the column 'bag' is empty"),
    (TEXT.replace("b,,5", "b,cat,5"), {}, r"row 6: bag 'b' has the labels \{cat\}, and \{\} in row 3"),
    (TEXT, {"classes": "cat;dogs;eel"}, r"row 2: 'dog' is no class; did you mean 'dogs'"),
    (TEXT.replace("1.5", "abc"), {}, r"row 3: column 'weight' is 'abc', expected a number"),
    (re.sub(r"(\d)\.(\d)", r'"\1,\2"', TEXT), {}, r"'\d,\d', expected a number with a decimal point"),
    ("bag,labels,f,g\na,x,1,\nb,,2,\nc,,3,1\n", {}, r"row 2: column 'g' is '', expected a number; task.features names"),
    (TEXT, {"features": "*t;bag"}, r"the features '\*t;bag' name the column 'bag', which holds names or labels"),
    (TEXT, {"features": "kind"}, r"row 2: column 'kind' is 'x', expected a number \(and so in 4 more rows\)"),
    (TEXT, {"labels": "size*"}, r"row 3: column 'size' is '2', expected 0 or 1"),
    ("bag,labels,f\n1,,2\n2,,3\n", {}, r"names no class in any row"),
    (
        "bag,labels,instance_label,f\n1,a,b,1\n2,b,b,2\n",
        {},
        r"row 2: an instance of 'b', which is not among its bag's labels",
    ),
    ("bag,labels,split,f\n1,a,train,1\n1,a,test,2\n", {}, r"row 3: bag '1' has the split 'test', and 'train' in row 2"),
    ("bag,labels,split,f\n1,a,train,1\n2,a,tests,2\n", {}, r"row 3: split 'tests'; did you mean 'test'"),
    ("bag,is_a;b,f\n1,1,2\n2,0,3\n", {"labels": "is_*"}, r"the column 'is_a;b' names a class with ';' in it"),
    ("bag,labels,group,f\n1,a,p,1\n1,a,q,2\n", {}, r"row 3: bag '1' has the group 'q', and 'p' in row 2"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_row(tmp_path: Path, text: str, columns: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load(tmp_path, text, Columns(**columns))
    assert "bags.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_index_without_a_name_and_times_are_no_features(tmp_path: Path) -> None:
    frame = pd.DataFrame({"bag": ["a", "b"], "labels": ["x", ""], "f0": [1.0, 2.0]})
    frame.to_csv(tmp_path / "t.csv")
    table = load_bags(tmp_path / "t.csv", Columns())
    assert (table.feature_names, table.ignored) == (["f0"], ["Unnamed: 0"])
    times = frame.assign(when=pd.to_datetime(["2020-01-01", "2020-01-02"]), remark=["", "1 egg"])
    times.to_parquet(tmp_path / "t.parquet")
    times.to_csv(tmp_path / "times.csv", index=False)
    tables = [load_bags(tmp_path / name, Columns()) for name in ("t.parquet", "times.csv")]
    assert [table.feature_names for table in tables] == [["f0"]] * 2
    assert tables[0].digest == tables[1].digest
