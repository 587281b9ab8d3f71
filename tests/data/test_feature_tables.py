"""Tables of features: how they are read, and that a mistake is named in one line."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from milbench.data.load_bags import load_bags
from milbench.data.new_bags import new_bags
from milbench.data.own_bags import OwnBags
from milbench.data.table import Table, read_table
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

# The rows of a bag need not follow each other, and the name of a bag may be a number.
TEXT = """bag,labels,size,kind,weight
7,cat;dog,1,x,0.5
b,,2,y,1.5
7,dog; cat,3,x,2.5
c,eel,4,z,-1
b,,5,x,1e2
"""
USUAL = FeatureOptions(table="")


def load(folder: Path, text: str, options: FeatureOptions = USUAL) -> OwnBags:
    """Write bags.csv and return its bags."""
    (folder / "bags.csv").write_text(text, "utf-8")
    return load_bags(folder / "bags.csv", options)


def parts(table: OwnBags) -> list[list[list[float]]]:
    """Return the instances of each bag."""
    return [table.store.single(bag).tolist() for bag in range(len(table))]


def classes_of_instances(table: OwnBags) -> list[int]:
    """Return the number of the class of each instance; the background comes after all classes."""
    assert table.instance_classes is not None
    classes: list[int] = table.instance_classes.tolist()
    return classes


def test_rows_of_a_name_are_the_instances_of_a_bag(tmp_path: Path) -> None:
    table = load(tmp_path, TEXT)
    assert table.bags == ["7", "b", "c"]
    assert parts(table) == [[[1, 0.5], [3, 2.5]], [[2, 1.5], [5, 100]], [[4, -1]]]
    assert table.store.sizes.tolist() == [2, 2, 1]


def test_every_instance_knows_its_row(tmp_path: Path) -> None:
    rows = load(tmp_path, TEXT).rows
    assert rows is not None
    assert rows.tolist() == [0, 2, 1, 4, 3]


def test_each_bag_has_its_label_set(tmp_path: Path) -> None:
    table = load(tmp_path, TEXT)
    assert table.class_names == ["cat", "dog", "eel"]
    assert table.labels.tolist() == [[True, True, False], [False] * 3, [False, False, True]]


def test_columns_of_numbers_are_features_and_others_are_not(tmp_path: Path) -> None:
    table = load(tmp_path, TEXT)
    assert table.feature_names == ["size", "weight"]
    assert table.ignored == ["kind"]


def test_a_table_without_instance_labels_groups_and_split_has_none(tmp_path: Path) -> None:
    table = load(tmp_path, TEXT)
    assert table.instance_classes is None
    assert table.groups is None
    assert table.split is None


ONE_SIGN = "caf\u00e9"
TWO_SIGNS = "cafe\u0301"
"""One word in two forms of Unicode: é as one sign, and as e with a sign for the accent."""
BOTH_FORMS = (
    "bag,labels,instance_label,size\n"
    f"a,{ONE_SIGN},{TWO_SIGNS},1\n"
    f"b,{TWO_SIGNS},,2\n"
    f"b,{ONE_SIGN},{ONE_SIGN},3\n"
)


def test_two_forms_of_a_letter_are_one_class(tmp_path: Path) -> None:
    table = load(tmp_path, BOTH_FORMS)
    assert table.class_names == [ONE_SIGN]
    assert table.labels.tolist() == [[True], [True]]
    background = 1
    assert classes_of_instances(table) == [0, background, 0]


def test_a_class_may_be_named_in_another_form_of_its_letters(tmp_path: Path) -> None:
    options = FeatureOptions(table="", classes=TWO_SIGNS)
    assert load(tmp_path, BOTH_FORMS, options).class_names == [ONE_SIGN]


INDICATORS = "name,has_a,has_b,f1,f2,other\nx,1,0,1,2,9\nx,1,0,3,4,9\ny,0,0,5,6,9\n"


def test_patterns_name_columns_of_classes_and_features(tmp_path: Path) -> None:
    options = FeatureOptions(table="", bag="name", labels="has_*", features="f*")
    table = load(tmp_path, INDICATORS, options)
    assert table.class_names == ["has_a", "has_b"]
    assert table.labels.tolist() == [[True, False], [False, False]]
    assert table.feature_names == ["f1", "f2"]
    assert table.ignored == ["other"]


def test_lists_name_columns_of_classes_and_features_in_order(tmp_path: Path) -> None:
    options = FeatureOptions(table="", bag="name", labels="has_b;has_a", features="other;f2")
    table = load(tmp_path, INDICATORS, options)
    assert table.class_names == ["has_b", "has_a"]
    assert table.labels.tolist() == [[False, True], [False, False]]
    assert table.feature_names == ["other", "f2"]


def test_columns_of_the_usual_names_are_instance_labels_groups_and_split(tmp_path: Path) -> None:
    table = load(
        tmp_path,
        "bag,labels,instance_label,group,split,f\n"
        "1,a;b,b,g,train,1\n"
        "1,a;b,,g,train,2\n"
        "2,a,a,g,test,3\n",
    )
    background = 2
    assert classes_of_instances(table) == [1, background, 0]
    assert table.groups == ["g", "g"]
    assert table.split == ["train", "test"]


def test_the_label_na_is_not_a_missing_value(tmp_path: Path) -> None:
    assert load(tmp_path, TEXT.replace("eel", "NA")).class_names == ["NA", "cat", "dog"]


@pytest.mark.parametrize("name", ["bags.tsv", "bags.parquet"])
def test_the_digest_is_the_same_in_every_format(tmp_path: Path, name: str) -> None:
    text = TEXT.replace("eel", "NA")
    digest = load(tmp_path, text).digest
    (tmp_path / "bags.tsv").write_text(text.replace(",", "\t"), "utf-8")
    pd.read_csv(tmp_path / "bags.csv", keep_default_na=False).to_parquet(tmp_path / "bags.parquet")
    assert load_bags(tmp_path / name, USUAL).digest == digest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("-1", "-2", id="a feature"),
        pytest.param("eel", "cat", id="a label"),
        pytest.param("c,eel", "d,eel", id="the name of a bag"),
    ],
)
def test_other_content_has_another_digest(tmp_path: Path, before: str, after: str) -> None:
    digest = load(tmp_path, TEXT).digest
    assert load(tmp_path, TEXT.replace(before, after)).digest != digest


OF_FILES = FeatureOptions(table="", features="@path")
TEXT_OF_FILES = "bag,labels,path,note\nx,a;b,parts/x.npy,1\ny,,parts/y.npy,2\n"


@pytest.fixture
def with_files(tmp_path: Path) -> Path:
    """A folder with the files of two bags, of 3 and 1 instances."""
    (tmp_path / "parts").mkdir()
    np.save(tmp_path / "parts/x.npy", np.arange(6).reshape(3, 2))
    np.save(tmp_path / "parts/y.npy", np.ones((1, 2)))
    return tmp_path


def test_a_column_names_the_file_of_each_bag(with_files: Path) -> None:
    table = load(with_files, TEXT_OF_FILES, OF_FILES)
    assert table.store.offsets.tolist() == [0, 3, 4]
    assert parts(table) == [[[0, 1], [2, 3], [4, 5]], [[1, 1]]]
    assert table.labels.tolist() == [[True, True], [False, False]]
    assert table.ignored == ["note"]


def test_a_file_that_has_changed_is_read_again(with_files: Path) -> None:
    before = load(with_files, TEXT_OF_FILES, OF_FILES)
    np.save(with_files / "parts/y.npy", np.full((1, 2), 7.0))
    os.utime(with_files / "parts/y.npy", ns=(1, 1))
    after = load_bags(with_files / "bags.csv", OF_FILES)
    assert parts(after)[-1] == [[7, 7]]
    assert after.digest != before.digest


def test_a_bag_of_files_in_two_rows_is_refused(with_files: Path) -> None:
    with pytest.raises(
        UsageError, match=r"row 4: 'x' is the bag of row 2 too, expected a row for each"
    ):
        load(with_files, TEXT_OF_FILES + "x,a;b,parts/x.npy,3\n", OF_FILES)


def test_a_new_bag_of_files_in_two_rows_is_refused(with_files: Path) -> None:
    path = with_files / "bags.csv"
    path.write_text(TEXT_OF_FILES + "x,a;b,parts/x.npy,3\n")
    with pytest.raises(UsageError, match=r"row 4: 'x' is the bag of row 2 too"):
        new_bags([path], OF_FILES, ["f0", "f1"])


def complaint_about(folder: Path, text: str, **options: Any) -> str:
    """Return the line that refuses a table, from after the name of its file."""
    with pytest.raises(UsageError) as caught:
        load(folder, text, FeatureOptions(table="", **options))
    message = str(caught.value)
    assert "\n" not in message
    _, name, complaint = message.partition("bags.csv")
    assert name, message
    return complaint


def test_a_missing_column_is_named_with_the_closest(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, TEXT.replace("bag,", "bags,"))
    assert "no column 'bag'" in said
    assert "did you mean 'bags'" in said


def test_a_row_with_a_field_too_many_is_named(tmp_path: Path) -> None:
    # With this separator of fields, the label set dog; cat is two fields.
    said = complaint_about(tmp_path, TEXT.replace(",", ";"), field_separator=";")
    assert said.startswith(", row 2: got 6 fields, expected 5 as in the header, separated by semi")


def test_a_row_without_a_bag_is_named(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, TEXT.replace("b,,2", ",,2"))
    assert said.startswith(", row 3: the column 'bag' is empty")


def test_a_class_that_is_not_among_those_named_is_refused(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, TEXT, classes="cat;dogs;eel")
    assert said.startswith(", row 2: 'dog' is no class; did you mean 'dogs'")


def test_a_table_without_any_class_is_refused(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, "bag,labels,f\n1,,2\n2,,3\n")
    assert "names no class in any row" in said


def test_missing_features_are_counted_with_the_option_that_leaves_them_out(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, "bag,labels,f,g\na,x,1,\nb,,2,\nc,,3,1\n")
    assert said.startswith(
        ", row 2: column 'g' is '', expected a number (and so in 1 more rows);"
        " -p task.features='!g' leaves"
    )


def test_text_that_is_named_as_a_feature_is_refused(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, TEXT, features="kind")
    assert said.startswith(
        ", row 2: column 'kind' is 'x', expected a number (and so in 4 more rows)"
    )


def test_the_name_of_a_bag_is_refused_as_a_feature(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, TEXT, features="*t;bag")
    assert "the features '*t;bag' name the column 'bag', which holds names or labels" in said


def test_a_column_of_a_class_holds_0_or_1(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, TEXT, labels="size*")
    assert said.startswith(", row 3: column 'size' is '2', expected 0 or 1")


def test_rows_of_a_bag_with_other_labels_are_named(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, TEXT.replace("b,,5", "b,cat,5"))
    assert said.startswith(", row 6: bag 'b' has the labels {cat}, and {} in row 3")


@pytest.mark.parametrize(
    ("name", "first", "second"), [("split", "train", "test"), ("group", "p", "q")]
)
def test_rows_of_a_bag_in_two_parts_or_groups_are_named(
    tmp_path: Path, name: str, first: str, second: str
) -> None:
    text = f"bag,labels,{name},f\n1,a,{first},1\n1,a,{second},2\n"
    said = complaint_about(tmp_path, text)
    assert said.startswith(f", row 3: bag '1' has the {name} '{second}', and '{first}' in row 2")


def test_a_misspelt_part_of_a_split_is_named_with_the_closest(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, "bag,labels,split,f\n1,a,train,1\n2,a,tests,2\n")
    assert said.startswith(", row 3: split 'tests'; did you mean 'test'")


def test_an_instance_of_a_class_that_its_bag_lacks_is_named(tmp_path: Path) -> None:
    said = complaint_about(tmp_path, "bag,labels,instance_label,f\n1,a,b,1\n2,b,b,2\n")
    assert said.startswith(", row 2: an instance of 'b', which is not among its bag's")


FRAME = pd.DataFrame({"bag": ["a", "b"], "labels": ["x", ""], "f0": [1.0, 2.0]})


def test_an_index_without_a_name_is_no_feature(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv")
    table = load_bags(tmp_path / "t.csv", USUAL)
    assert table.feature_names == ["f0"]
    assert table.ignored == ["Unnamed: 0"]


def test_times_are_no_features_in_any_format(tmp_path: Path) -> None:
    when = pd.to_datetime(["2020-01-01", "2020-01-02"])
    times = FRAME.assign(when=when, remark=["", "1 egg"])
    times.to_parquet(tmp_path / "t.parquet")
    times.to_csv(tmp_path / "t.csv", index=False)
    of_parquet = load_bags(tmp_path / "t.parquet", USUAL)
    of_text = load_bags(tmp_path / "t.csv", USUAL)
    assert of_parquet.feature_names == ["f0"]
    assert of_text.feature_names == ["f0"]
    assert of_parquet.digest == of_text.digest


def test_names_of_bags_stay_text(tmp_path: Path) -> None:
    # Excel writes the byte order mark at the beginning. Names of columns have spaces around them.
    found = load(tmp_path, "\ufeffbag , labels,f\n007,1,3\n1e3,2,4\n")
    assert found.bags == ["007", "1e3"]
    assert found.class_names == ["1", "2"]
    assert found.feature_names == ["f"]


def complaint_about_file(path: Path) -> str:
    """Return the line that refuses a file."""
    with pytest.raises(UsageError) as caught:
        read_table(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_missing_table_is_named_with_a_file_of_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "missin.csv").write_text("bag\n1\n")
    said = complaint_about_file(tmp_path / "missing.csv")
    assert said.startswith("there is no table ")
    assert "missing.csv; did you mean 'missin.csv' beside it" in said


def test_a_folder_in_place_of_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "folder.csv"
    path.mkdir()
    expected = "is a folder, expected a table: a file .csv, .tsv or .parquet"
    assert expected in complaint_about_file(path)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        pytest.param("empty.csv", b"", "is empty, expected a header", id="empty"),
        pytest.param(
            "header.csv", b"bag,labels,f0\n", "has no rows below its header", id="only a header"
        ),
        pytest.param("t", b"a", "got a file without an ending", id="no ending"),
        pytest.param(
            "t.parquet", b"PAR1 and nothing", "cannot be read as a table", id="damaged Parquet"
        ),
        pytest.param("t.csv", b"\x80\x04\x95\x00\x93", "cannot be read as a table", id="a pickle"),
    ],
)
def test_a_file_that_is_no_table_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert complaint in complaint_about_file(path)


def test_a_file_of_another_format_is_named_with_the_formats_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"PK")
    said = complaint_about_file(path)
    assert "expected a table .csv" in said
    assert "got a file .xlsx" in said


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        pytest.param(
            "t.csv",
            "bag,labels,f0\na,b,1,2\n",
            "row 2: got 4 fields, expected 3 as in the header",
            id="a field too many",
        ),
        pytest.param(
            "t.tsv",
            "bag\tf0\tlabels\na\t1\tx\nb\t2\n",
            "row 3: got 2 fields, expected 3",
            id="a field too few",
        ),
        pytest.param(
            "t.csv",
            "bag,labels\na,b,c,d\ne,f\n1,2,3,4,5,6\n",
            "row 2: got 4 fields, expected 2",
            id="all kinds of rows",
        ),
    ],
)
def test_the_first_row_with_other_fields_is_named(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert f"{name}, {complaint}" in complaint_about_file(path)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            ["bag,labels,f0,note", 'a,x,1,"5 inch', "b,,2,plain", 'c,x,3,"6 inch', "d,,4,plain"],
            id="last field",
        ),
        pytest.param(
            ["bag,note,labels,f0", 'a,"foo,x,1', 'b,bar",y,2', "c,p,y,3"], id="middle field"
        ),
    ],
)
def test_a_quotation_mark_that_is_closed_rows_later_is_named(
    tmp_path: Path, rows: list[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(rows) + "\n")
    expected = "t.csv, row 2: a quotation mark is closed in a later row, expected in its own"
    assert expected in complaint_about_file(path)


def test_names_that_are_equal_but_for_spaces_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"bag": ["a"], "f0": [1], "f0 ": [2]}).to_parquet(path)
    assert "several columns are named 'f0', expected one" in complaint_about_file(path)


LINE_ENDS = pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["Unix", "Windows"])


def table_of(folder: Path, rows: list[str], end: str) -> Table:
    """Return the table of these rows, each of which ends with `end`."""
    path = folder / "t.csv"
    path.write_bytes("".join(row + end for row in rows).encode())
    return read_table(path)


@LINE_ENDS
def test_a_text_of_several_lines_is_no_mistake(tmp_path: Path, end: str) -> None:
    rows = [
        "image,labels,caption",
        'a.png,dog,"A dog',
        'on grass, under trees, at noon"',
        "b.png,cat,plain",
    ]
    assert table_of(tmp_path, rows, end).texts("labels").tolist() == ["dog", "cat"]


@LINE_ENDS
def test_spaces_behind_a_quotation_mark_are_no_mistake(tmp_path: Path, end: str) -> None:
    # Fields of two lines make the reader look for quotation marks that are not closed.
    rows = ["image,labels,caption", 'a.png,dog,"A dog', 'on grass"', 'b.png,"cat" ,plain']
    assert table_of(tmp_path, rows, end).texts("labels").tolist() == ["dog", "cat"]


@LINE_ENDS
def test_spaces_behind_a_separator_belong_to_no_field(tmp_path: Path, end: str) -> None:
    rows = ["a, labels", '1, "x;y"', '2, ""']
    assert table_of(tmp_path, rows, end).frame["labels"].tolist() == ["x;y", ""]


@LINE_ENDS
def test_a_quotation_mark_written_twice_is_part_of_a_text(tmp_path: Path, end: str) -> None:
    rows = ["bag,note,f0,f1", 'a,"so, said', 'he, 5",1,2', 'b,"5"" wide",3,4']
    assert table_of(tmp_path, rows, end).frame["f1"].tolist() == [2, 4]


@pytest.fixture
def long_frame() -> pd.DataFrame:
    """300 instances of 20 bags; the rows of a bag do not follow each other."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((300, 3)), columns=["f0", "f1", "f2"])
    frame["bag"] = rng.integers(0, 20, 300)
    frame["labels"] = np.where(frame["bag"] % 2, "odd", "")
    frame["instance_label"] = np.where(rng.random(300) < 0.2, frame["labels"], "")
    return frame


def read_in_chunks(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> OwnBags:
    """Read a table in chunks of 64 rows, the smallest possible, into another cache."""
    monkeypatch.setenv("MILBENCH_CACHE", str(cache))
    monkeypatch.setattr("milbench.data.table_files.CHUNK", 1)
    return load_bags(path, USUAL)


def test_a_table_read_in_chunks_is_the_same(
    tmp_path: Path, long_frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    long_frame.to_csv(path, index=False)
    whole = load_bags(path, USUAL)
    chunked = read_in_chunks(path, tmp_path / "elsewhere", monkeypatch)
    assert chunked.digest == whole.digest
    assert parts(chunked) == parts(whole)
    assert np.array_equal(chunked.store.means, whole.store.means)
    assert chunked.rows is not None
    numbers_of_bags, _ = pd.factorize(long_frame["bag"])
    assert np.array_equal(chunked.rows, np.argsort(numbers_of_bags, kind="stable"))
    of_chunks = {file.name for file in (tmp_path / "elsewhere").rglob("*.npy")}
    of_whole = {file.name for file in tmp_path.glob(".bags/*/*.npy")}
    assert of_chunks == of_whole


def test_a_mistake_in_a_later_chunk_is_named_with_its_row(
    tmp_path: Path, long_frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    long_frame["f1"] = long_frame["f1"].astype(object)
    long_frame.loc[250, "f1"] = "seven"
    long_frame.to_csv(path, index=False)
    # The header is row 1, so that row 250 of the frame, counted from 0, is row 252 of the table.
    with pytest.raises(
        UsageError, match=r"t.csv, row 252: column 'f1' is 'seven', expected a number"
    ):
        read_in_chunks(path, tmp_path / "elsewhere", monkeypatch)
