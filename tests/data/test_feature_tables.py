import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench.data.load_bags import load_bags
from milbench.data.new_bags import new_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table import read_table
from milbench.data.table_options import FeatureOptions
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


def load(folder: Path, text: str, columns: FeatureOptions | None = None) -> Any:
    (folder / "bags.csv").write_text(text, "utf-8")
    return load_bags(folder / "bags.csv", columns or FeatureOptions(table=""))


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
    assert load(tmp_path, text, FeatureOptions(table="", classes=two)).class_names == [one]


def test_columns_of_zero_and_one_are_classes(tmp_path: Path) -> None:
    text = "name,has_a,has_b,f1,f2,other\nx,1,0,1,2,9\nx,1,0,3,4,9\ny,0,0,5,6,9\n"
    table = load(
        tmp_path, text, FeatureOptions(table="", bag="name", labels="has_*", features="f*")
    )
    assert table.class_names == ["has_a", "has_b"]
    assert table.labels.tolist() == [[True, False], [False, False]]
    assert table.feature_names == ["f1", "f2"]
    assert table.ignored == ["other"]
    listed = load(
        tmp_path,
        text,
        FeatureOptions(table="", bag="name", labels="has_b;has_a", features="other;f2"),
    )
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
        assert load_bags(tmp_path / name, FeatureOptions(table="")).digest == table.digest
    for changed in (
        text.replace("-1", "-2"),
        text.replace("NA", "cat"),
        text.replace("c,NA", "d,NA"),
    ):
        assert load(tmp_path, changed).digest != table.digest


def test_a_row_a_bag_with_a_file_of_features(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    np.save(tmp_path / "parts/x.npy", np.arange(6).reshape(3, 2))
    np.save(tmp_path / "parts/y.npy", np.ones((1, 2)))
    text = "bag,labels,path,note\nx,a;b,parts/x.npy,1\ny,,parts/y.npy,2\n"
    table = load(tmp_path, text, FeatureOptions(table="", features="@path"))
    assert table.store.offsets.tolist() == [0, 3, 4]
    assert parts(table) == [[[0, 1], [2, 3], [4, 5]], [[1, 1]]]
    assert table.labels.tolist() == [[True, True], [False, False]]
    assert table.ignored == ["note"]
    np.save(tmp_path / "parts/y.npy", np.full((1, 2), 7.0))
    os.utime(tmp_path / "parts/y.npy", ns=(1, 1))
    again = load_bags(tmp_path / "bags.csv", FeatureOptions(table="", features="@path"))
    assert parts(again)[-1] == [[7, 7]], "a file that the table names has changed"
    assert again.digest != table.digest
    with pytest.raises(
        UsageError, match=r"row 4: 'x' is the bag of row 2 too, expected a row for each"
    ):
        load(tmp_path, text + "x,a;b,parts/x.npy,3\n", FeatureOptions(table="", features="@path"))
    with pytest.raises(UsageError, match=r"row 4: 'x' is the bag of row 2 too"):
        new_bags([tmp_path / "bags.csv"], FeatureOptions(table="", features="@path"), ["f0", "f1"])


@pytest.mark.parametrize(("text", "columns", "complaint"), [
    (TEXT.replace("bag,", "bags,"), {}, r"no column 'bag' .*did you mean 'bags'"),
    (TEXT.replace(",", ";"), {"field_separator": ";"},
     r"row 2: got 6 fields, expected 5 as in the header, separated by semicolons"),
    (TEXT.replace("b,,2", ",,2"), {}, r"row 3: the column 'bag' is empty"),
    (TEXT.replace("b,,5", "b,cat,5"), {}, r"row 6: bag 'b' has the labels \{cat\}, and \{\} in row 3"),
    (TEXT, {"classes": "cat;dogs;eel"}, r"row 2: 'dog' is no class; did you mean 'dogs'"),
    ("bag,labels,f,g\na,x,1,\nb,,2,\nc,,3,1\n", {},
     r"row 2: column 'g' is '', expected a number \(and so in 1 more rows\); -p task.features='!g' leaves"),
    (TEXT, {"features": "*t;bag"}, r"the features '\*t;bag' name the column 'bag', which holds names or labels"),
    (TEXT, {"features": "kind"}, r"row 2: column 'kind' is 'x', expected a number \(and so in 4 more rows\)"),
    (TEXT, {"labels": "size*"}, r"row 3: column 'size' is '2', expected 0 or 1"),
    ("bag,labels,f\n1,,2\n2,,3\n", {}, r"names no class in any row"),
    ("bag,labels,instance_label,f\n1,a,b,1\n2,b,b,2\n", {}, r"row 2: an instance of 'b', which is not among its bag's"),
    ("bag,labels,split,f\n1,a,train,1\n1,a,test,2\n", {}, r"row 3: bag '1' has the split 'test', and 'train' in row 2"),
    ("bag,labels,split,f\n1,a,train,1\n2,a,tests,2\n", {}, r"row 3: split 'tests'; did you mean 'test'"),
    ("bag,labels,group,f\n1,a,p,1\n1,a,q,2\n", {}, r"row 3: bag '1' has the group 'q', and 'p' in row 2"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_row(
    tmp_path: Path, text: str, columns: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        load(tmp_path, text, FeatureOptions(table="", **columns))
    assert "bags.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_index_without_a_name_and_times_are_no_features(tmp_path: Path) -> None:
    frame = pd.DataFrame({"bag": ["a", "b"], "labels": ["x", ""], "f0": [1.0, 2.0]})
    frame.to_csv(tmp_path / "t.csv")
    table = load_bags(tmp_path / "t.csv", FeatureOptions(table=""))
    assert (table.feature_names, table.ignored) == (["f0"], ["Unnamed: 0"])
    times = frame.assign(when=pd.to_datetime(["2020-01-01", "2020-01-02"]), remark=["", "1 egg"])
    times.to_parquet(tmp_path / "t.parquet")
    times.to_csv(tmp_path / "times.csv", index=False)
    tables = [
        load_bags(tmp_path / name, FeatureOptions(table="")) for name in ("t.parquet", "times.csv")
    ]
    assert [table.feature_names for table in tables] == [["f0"]] * 2
    assert tables[0].digest == tables[1].digest


def test_names_of_bags_stay_text(tmp_path: Path) -> None:
    found = load(tmp_path, "\ufeffbag , labels,f\n007,1,3\n1e3,2,4\n")
    assert (found.bags, found.class_names, found.feature_names) == (
        ["007", "1e3"],
        ["1", "2"],
        ["f"],
    )


@pytest.mark.parametrize(("name", "content", "complaint"), [
    ("missing.csv", None, "there is no table .*missing.csv; did you mean 'missin.csv' beside it"),
    ("folder.csv", "", "is a folder, expected a table: a file .csv, .tsv or .parquet"),
    ("empty.csv", b"", "is empty, expected a header"),
    ("header.csv", b"bag,labels,f0\n", "has no rows below its header"),
    ("t.xlsx", b"PK", "expected a table .csv.*got a file .xlsx"),
    ("t", b"a", "got a file without an ending"),
    ("damaged.parquet", b"PAR1 and nothing", "cannot be read as a table"),
    ("pickle.csv", b"\x80\x04\x95\x00\x93", "cannot be read as a table"),
    ("long.csv", b"bag,labels,f0\na,b,1,2\n", "long.csv, row 2: got 4 fields, expected 3 as in the header"),
    ("short.tsv", b"bag\tf0\tlabels\na\t1\tx\nb\t2\n", "short.tsv, row 3: got 2 fields, expected 3"),
    ("twice.parquet", {"bag": ["a"], "f0": [1], "f0 ": [2]}, "several columns are named 'f0', expected one"),
    ("quote.csv", b'bag,labels,f0,note\na,x,1,"5 inch\nb,,2,plain\nc,x,3,"6 inch\nd,,4,plain\n',
     "quote.csv, row 2: a quotation mark is closed in a later row, expected in its own"),
    ("middle.csv", b'bag,note,labels,f0\na,"foo,x,1\nb,bar",y,2\nc,p,y,3\n',
     "middle.csv, row 2: a quotation mark is closed in a later row"),
    ("ragged.csv", b"bag,labels\na,b,c,d\ne,f\n1,2,3,4,5,6\n", "ragged.csv, row 2: got 4 fields, expected 2"),
])  # fmt: skip
def test_what_is_no_table_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes | str | dict[str, list[Any]] | None, complaint: str
) -> None:
    path = tmp_path / name
    (tmp_path / "missin.csv").write_text("bag\n1\n")
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        pd.DataFrame(content).to_parquet(path)
    elif content is not None:
        path.mkdir()
    with pytest.raises(UsageError, match=complaint) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_text_of_several_lines_is_no_mistake(tmp_path: Path, end: str) -> None:
    path = tmp_path / "t.csv"
    rows = [
        "image,labels,caption",
        'a.png,dog,"A dog',
        'on grass, under trees, at noon"',
        'b.png,"cat" ,plain',
        "",
    ]
    path.write_bytes(end.join(rows).encode())
    assert read_table(path).texts("labels").tolist() == ["dog", "cat"]
    path.write_bytes(end.join(["a, labels", '1, "x;y"', '2, ""', ""]).encode())
    assert read_table(path).frame["labels"].tolist() == ["x;y", ""], (
        "spaces behind a separator belong to no field"
    )
    rows = ["bag,note,f0,f1", 'a,"so, said', 'he, 5",1,2', 'b,"5"" wide",3,4', ""]
    path.write_bytes(end.join(rows).encode())
    assert read_table(path).frame["f1"].tolist() == [2, 4]


def test_a_table_read_in_chunks_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((300, 3)), columns=["f0", "f1", "f2"])
    frame["bag"] = rng.integers(0, 20, 300)
    frame["labels"] = np.where(frame["bag"] % 2, "odd", "")
    frame["instance_label"] = np.where(rng.random(300) < 0.2, frame["labels"], "")
    frame.to_csv(path := tmp_path / "t.csv", index=False)
    whole = load_bags(path, FeatureOptions(table=""))
    monkeypatch.setenv("MILBENCH_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setattr("milbench.data.table_files.CHUNK", 1)  # 64 rows
    parts = load_bags(path, FeatureOptions(table=""))
    assert parts.digest == whole.digest
    assert parts.rows is not None
    assert all(np.array_equal(parts.store[b], whole.store[b]) for b in range(20))
    assert np.array_equal(parts.rows, np.argsort(pd.factorize(frame["bag"])[0], kind="stable"))
    assert np.array_equal(parts.store.means, whole.store.means)
    assert {p.name for p in (tmp_path / "elsewhere").rglob("*.npy")} == {
        p.name for p in tmp_path.glob(".bags/*/*.npy")
    }
    frame["f1"] = frame["f1"].astype(object)
    frame.loc[250, "f1"] = "seven"
    frame.to_csv(path, index=False)
    with pytest.raises(
        UsageError, match=r"t.csv, row 252: column 'f1' is 'seven', expected a number"
    ):
        load_bags(path, FeatureOptions(table=""))
