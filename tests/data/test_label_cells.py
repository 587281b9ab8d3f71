"""The field of labels in a table: lists are parsed, and other texts are refused with their row."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from milbench.data.bag_checks import check_bags
from milbench.data.label_cells import classes_in
from milbench.data.load_bags import load_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

LISTS = FeatureOptions(table="", separator="list")


def write_table(folder: Path, *labels: str) -> Path:
    """Write a table with a bag for each field of labels."""
    path = folder / "t.csv"
    bags = [f"b{n}" for n in range(len(labels))]
    frame = pd.DataFrame({"bag": bags, "labels": labels, "f": range(len(labels))})
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("field", "classes"),
    [
        pytest.param('["Cooper\'s Hawk", "Wren"]', {"Cooper's Hawk", "Wren"}, id="json"),
        pytest.param("[\"Cooper's Hawk\", 'Wren']", {"Cooper's Hawk", "Wren"}, id="python"),
        pytest.param("['Turdus merula (song)']", {"Turdus merula (song)"}, id="brackets"),
        pytest.param("['a, b', 'c;d']", {"a, b", "c;d"}, id="separators-in-names"),
        pytest.param("('a', 'b')", {"a", "b"}, id="tuple"),
        pytest.param("{'a', 'b'}", {"a", "b"}, id="set"),
        pytest.param("['a',\n 'b']", {"a", "b"}, id="two-lines"),
        pytest.param("[1, 23]", {"1", "23"}, id="integers"),
        pytest.param('[null, "a"]', {"a"}, id="null"),
        pytest.param("[]", set(), id="empty-list"),
        pytest.param("", set(), id="empty-field"),
    ],
)  # fmt: skip
def test_a_list_is_parsed(field: str, classes: set[str]) -> None:
    assert classes_in(field, "list") == classes


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        pytest.param("['a' 'b']", "no comma between them", id="numpy"),
        pytest.param("[1 23 45]", "expected a list in JSON or Python", id="numpy-integers"),
        pytest.param("[Cooper's Hawk, wren]", "expected a list in JSON or Python", id="no-quotes"),
        pytest.param("wren", "expected a list in JSON or Python", id="text"),
        pytest.param("'wren'", "expected a list in JSON or Python", id="quoted-text"),
        pytest.param('{"choices": ["a"]}', "it is an object, expected the list alone", id="object"),
        pytest.param("[['a'], ['b']]", "expected a list of text or numbers", id="list-in-list"),
        pytest.param("[...]", "expected a list of text or numbers", id="ellipsis"),
        pytest.param("[1e400]", "expected a list of text or numbers", id="infinite"),
        pytest.param("[" * 100_000, "expected a list in JSON or Python", id="deep"),
        pytest.param("print('x')", "expected a list in JSON or Python", id="call"),
    ],
)  # fmt: skip
def test_a_field_without_a_list_is_named_with_its_row(
    tmp_path: Path, field: str, reason: str
) -> None:
    path = write_table(tmp_path, "['wren']", field)
    with pytest.raises(UsageError, match=reason) as caught:
        load_bags(path, LISTS)
    assert f"{path}, row 3: column 'labels' is " in str(caught.value)
    assert len(str(caught.value)) < 300


def suggestion(path: Path, options: FeatureOptions) -> tuple[str, str]:
    """Return what a check says of names that read like several classes, and its suggestion."""
    findings = check_bags(load_bags(path, options), options)
    what = "classes that read like several"
    (finding,) = [finding for finding in findings if finding.what == what]
    return finding.detail, finding.setting


def test_lists_are_suggested_where_all_fields_are_lists(tmp_path: Path) -> None:
    path = write_table(tmp_path, '["Cooper\'s Hawk"]', "[]", "['wren', 'owl']")
    _, setting = suggestion(path, FeatureOptions(table=""))
    assert setting == "task.separator=list"
    assert load_bags(path, LISTS).class_names == ["Cooper's Hawk", "owl", "wren"]


@pytest.mark.parametrize("labels", [
    pytest.param(["['wren']", "owl"], id="a-list-beside-text"),
    pytest.param(["{a, b}", "a", "b"], id="no-literal"),
    pytest.param(["wren,owl", "wren;robin", "wren", "owl"], id="two-separators"),
])  # fmt: skip
def test_no_separator_is_suggested_that_would_not_read_all(
    tmp_path: Path, labels: list[str]
) -> None:
    detail, setting = suggestion(write_table(tmp_path, *labels), FeatureOptions(table=""))
    assert setting == ""
    assert "-p" not in detail


def test_labels_that_mean_nothing_are_no_classes(tmp_path: Path) -> None:
    path = write_table(tmp_path, "Background", "wren", "No Finding", "wren;noise")
    options = FeatureOptions(table="", nothing="Background; No Finding;noise")
    bags = load_bags(path, options)
    assert bags.class_names == ["wren"]
    assert bags.labels.ravel().tolist() == [False, True, False, True]
    assert bags.nothing == {"Background": 1, "No Finding": 1, "noise": 1}


def test_a_column_of_no_finding_is_no_class(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("bag,No Finding,Edema,f\na,1,0,1\nb,0,1,2\n")
    options = FeatureOptions(table="", labels="No Finding;Edema", nothing="No Finding")
    bags = load_bags(path, options)
    assert bags.class_names == ["Edema"]
    assert bags.labels.tolist() == [[False], [True]]


def test_instances_of_no_class_are_background(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("bag,labels,instance_label,f\na,wren,wren,1\na,wren,noise,2\nb,noise,noise,3\n")
    bags = load_bags(path, FeatureOptions(table="", nothing="noise"))
    assert bags.instance_classes is not None
    assert bags.instance_classes.tolist() == [0, 1, 1]


@pytest.mark.parametrize("names", [["Background"], ["noise", "No Finding"], ["-wren"], ["None"]])
def test_classes_like_nothing_come_with_the_option_that_removes_them(
    tmp_path: Path, names: list[str]
) -> None:
    path = write_table(tmp_path, "wren", "owl", *names)
    options = FeatureOptions(table="")
    findings = check_bags(load_bags(path, options), options)
    what = "classes that read like nothing"
    (finding,) = [finding for finding in findings if finding.what == what]
    # The value of the option that the finding names.
    given = finding.detail.partition("-p task.nothing=")[2].split(" reads")[0].strip("'")
    removed = load_bags(path, FeatureOptions(table="", nothing=given))
    assert removed.class_names == ["owl", "wren"]
    without = np.flatnonzero(~removed.labels.any(axis=1)).size
    assert f"{without} of {len(removed)} bags have no class then" in finding.detail
