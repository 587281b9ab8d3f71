"""Odd tables: checks warn of what would make results wrong, and of nothing that is merely odd."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from milbench.data.bag_checks import check_bags
from milbench.data.load_bags import load_bags
from milbench.data.split_checks import checked_splits
from milbench.data.table_options import FeatureOptions

BAGS = 80


def write_bags(folder: Path, labels: list[str], **columns: list[Any]) -> Path:
    """Write a table of 80 bags of two instances.

    Labels and further columns have a value for each bag; fewer values are repeated in turn.
    """
    rows = []
    for number in range(BAGS):
        of_bag = {"bag": f"b{number}"}
        for name, values in {"labels": labels, **columns}.items():
            of_bag[name] = values[number % len(values)]
        rows.append({**of_bag, "f0": number, "f1": 0})
        rows.append({**of_bag, "f0": number + 0.5, "f1": -1})
    path = folder / "t.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def found_in(path: Path) -> list[str]:
    """Return what the warnings and fatal findings about a table are about."""
    options = FeatureOptions(table=str(path))
    bags = load_bags(path, options)
    findings = check_bags(bags, options, splits=checked_splits(bags, options))
    # Several findings about the same thing are listed once.
    return sorted({finding.what for finding in findings if finding.level != "fact"})


def shared_by(count: int, prefix: str = "") -> list[str]:
    """Return a value for each bag; every `count` bags in a row share one value."""
    return [f"{prefix}{number // count}" for number in range(BAGS)]


def split_in_blocks(size: int, validation: str = "val") -> list[str]:
    """Return parts of a split in blocks of `size` bags: training, validation and test."""
    return ["train"] * size + [validation] * size + ["test"] * size


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(["a", "b", "a,b"], id="comma"),
        pytest.param(["a", "b", "a|b"], id="bar"),
        pytest.param(["a", "b", "a/b"], id="slash"),
        pytest.param(["a", "b", "a + b"], id="plus"),
        pytest.param(["a", "b", "a b"], id="space"),
        pytest.param(["a", "b", "a-b"], id="hyphen"),
        pytest.param(["a", "b", "a\nb"], id="line break"),
        pytest.param(["a", "b", "{a, b}"], id="braces"),
        pytest.param(["a,b", "b,c", "a,c"], id="no class alone"),
        pytest.param(["['a', 'b']", "['a']", "[]"], id="lists"),
    ],
)
def test_labels_that_read_like_several_are_warned_of(tmp_path: Path, labels: list[str]) -> None:
    assert found_in(write_bags(tmp_path, labels)) == ["classes that read like several"]


@pytest.mark.parametrize(
    "name",
    ["nan", "N.A.", "Unknown", "#N/A", "Background", "noise", "No_Finding", "-a"],
)
def test_labels_that_read_like_nothing_are_warned_of(tmp_path: Path, name: str) -> None:
    assert found_in(write_bags(tmp_path, ["a", "b", name])) == ["classes that read like nothing"]


@pytest.mark.parametrize(("no", "yes"), [("0", "1"), ("0.0", "1.0"), ("False", "True")])
def test_a_column_of_no_and_yes_is_warned_of(tmp_path: Path, no: str, yes: str) -> None:
    assert found_in(write_bags(tmp_path, [no, yes])) == [f"the classes are {no} and {yes}"]


def test_two_spellings_of_a_class_are_warned_of(tmp_path: Path) -> None:
    path = write_bags(tmp_path, ["big cat", "big_cat", "Lynx", "lynx"])
    assert found_in(path) == ["classes that differ in case or spaces alone"]


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(shared_by(1, "P"), id="patients"),
        pytest.param([f"{n * 0.37:.2f}" for n in range(BAGS)], id="months of survival"),
        pytest.param([str(20 + n % 40) for n in range(BAGS)], id="ages"),
    ],
)
def test_a_label_for_almost_every_bag_is_warned_of(tmp_path: Path, labels: list[str]) -> None:
    (what,) = found_in(write_bags(tmp_path, labels))
    assert what.startswith("classes that read like ids")


def test_a_class_too_rare_for_every_part_is_warned_of(tmp_path: Path) -> None:
    labels = [""] * (BAGS - 4) + ["a"] * 4
    missing, blind = found_in(write_bags(tmp_path, labels))
    assert missing.startswith("classes missing from a part")
    assert blind == "no threshold can be chosen"


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"case_id": shared_by(3, "P")}, id="cases"),
        pytest.param({"patient": shared_by(2)}, id="numbers, which would be a feature"),
        pytest.param(
            {"patient": shared_by(2), "split": ["train", "val", "test"]}, id="torn by a split"
        ),
        pytest.param({"patient": [""] * 6 + shared_by(2, "P")[6:]}, id="unknown for some bags"),
        pytest.param({"lesion_id": shared_by(2)}, id="lesions"),
        pytest.param({"origin": shared_by(4, "farm ")}, id="a name that says nothing of groups"),
    ],
)
def test_a_column_that_reads_like_a_group_is_warned_of(
    tmp_path: Path, columns: dict[str, list[Any]]
) -> None:
    path = write_bags(tmp_path, ["a", ""], **columns)
    assert found_in(path) == ["a column that reads like a group"]


def test_a_column_that_reads_like_a_split_is_warned_of(tmp_path: Path) -> None:
    path = write_bags(tmp_path, ["a", ""], subset=["train", "train", "val", "test"])
    assert found_in(path) == ["a column that reads like a split"]


@pytest.mark.parametrize("name", ["slide_id", "coord_x", "target", "label_code"])
def test_a_feature_with_the_name_of_an_id_or_label_is_warned_of(tmp_path: Path, name: str) -> None:
    (what,) = found_in(write_bags(tmp_path, ["a", ""], **{name: list(range(BAGS))}))
    assert what.startswith("features that read like ids, labels or coordinates")


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(["a", "b;a", ""], id="the usual separator"),
        pytest.param(["wren;owl", "owl", "wren;robin", ""], id="birds"),
        pytest.param(["New York", "New Jersey", ""], id="names of two words"),
        pytest.param(["lung cancer", "skin cancer", "cancer-free"], id="words in common"),
        pytest.param(["Smith, John", "Doe, Jane"], id="persons"),
        pytest.param(["carcinoma, NOS", "adenoma, NOS", ""], id="a code after a comma"),
        pytest.param(["day/night", "twilight"], id="a slash in one name"),
        pytest.param(["C++", "C", "Python"], id="plus signs"),
        pytest.param(["CD4+ T cell", "B cell"], id="a plus sign and spaces"),
        pytest.param(["(other)", "wren"], id="brackets"),
        pytest.param(["Käuzchen", "Éclair", "日本"], id="other letters than ASCII"),
        pytest.param(["1", "2", "3"], id="grades"),
        pytest.param(["-1", "1"], id="signs"),
        pytest.param(["0.5", "1.5", "3.0"], id="doses"),
        pytest.param(["normal", "negative"], id="diagnoses"),
        pytest.param(["Na", "Cl"], id="sodium"),
        pytest.param(["1-2", "3-4"], id="ranges"),
        pytest.param(["2020-01-01", "2020-07-01"], id="dates"),
    ],
)
def test_odd_but_honest_labels_give_no_warning(tmp_path: Path, labels: list[str]) -> None:
    assert found_in(write_bags(tmp_path, labels)) == []


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"sex": ["f", "m", "m"]}, id="too few values to split by"),
        pytest.param({"diagnosis": [f"stage {n % 4}" for n in range(BAGS)]}, id="four stages"),
        pytest.param({"note": shared_by(1, "note ")}, id="a note for each bag"),
        pytest.param({"patient": shared_by(1, "P")}, id="a patient for each bag"),
        pytest.param(
            {"case_id": shared_by(4, "P"), "group": shared_by(4, "P")}, id="grouped already"
        ),
        pytest.param(
            {"split": ["train", "train", "val", "Dev", "test", "TEST"]}, id="spellings of a split"
        ),
        pytest.param(
            {"split": ["training", "training", "testing", "testing"]}, id="no validation bags"
        ),
        pytest.param(
            {"patient": shared_by(4, "P"), "split": split_in_blocks(4)}, id="whole in a split"
        ),
        pytest.param(
            {
                "body_mass_index": [0.1 * n for n in range(BAGS)],
                "acc_y": [n**2 for n in range(BAGS)],
            },
            id="measurements whose names end like ids and coordinates",
        ),
    ],
)
def test_odd_but_honest_columns_give_no_warning(
    tmp_path: Path, columns: dict[str, list[Any]]
) -> None:
    assert found_in(write_bags(tmp_path, ["a", ""], **columns)) == []


def in_turn(prefix: str, count: int) -> list[str]:
    """Return `count` values, which the bags take in turn."""
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        pytest.param(in_turn("", 10), {"split": split_in_blocks(10)}, id="numbers"),
        pytest.param(
            in_turn("class ", 20), {"split": split_in_blocks(20, "valid")}, id="twenty classes"
        ),
        pytest.param(
            in_turn("k", 20),
            {"latin": in_turn("Aves ", 20), "split": split_in_blocks(20)},
            id="classes with a second name",
        ),
    ],
)
def test_many_classes_in_every_part_give_no_warning(
    tmp_path: Path, labels: list[str], columns: dict[str, list[str]]
) -> None:
    assert found_in(write_bags(tmp_path, labels, **columns)) == []


@pytest.mark.parametrize(
    ("separator", "texts"),
    [
        pytest.param(",", ["a,b", "b", ""], id="commas"),
        pytest.param("|", ["a|b", "b", ""], id="bars"),
        pytest.param(" ", ["a b", "b", ""], id="a space"),
        pytest.param("", ["a  b", " b", ""], id="any spaces"),
        pytest.param("list", ["['a', 'b']", '["b"]', "[]"], id="lists"),
        pytest.param("list", ["('a', 'b')", "{'b'}", ""], id="tuples and sets"),
    ],
)
def test_a_separator_takes_classes_apart(tmp_path: Path, separator: str, texts: list[str]) -> None:
    path = write_bags(tmp_path, texts)
    bags = load_bags(path, FeatureOptions(table="", separator=separator))
    assert bags.class_names == ["a", "b"]
    assert bags.labels[:3].tolist() == [[True, True], [False, True], [False, False]]
