"""Tables as people have them: what is read, and that there is a warning where a human would give one, nowhere else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from milbench.data.bag_checks import check_bags
from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.split_checks import checked_splits
from milbench.data.splits import count_folds, split_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

BAGS = 80
SEVERAL = "classes that read like several"
NOTHING = "classes that read like nothing"
IDS = "classes that read like ids"
GROUP = "a column that reads like a group"
RARE = "classes missing from a part"
BLIND = "no threshold can be chosen"
SPLIT = "a column that reads like a split"
ODD = "features that read like ids"
BINARY = "the classes are"


def written(folder: Path, labels: Any, name: str = "t.csv", **columns: Any) -> Path:
    """Write a table of bags of two instances, in which columns are lists of a value a bag, or cycle through fewer."""
    rows = []
    for number in range(BAGS):
        of_bag = {"bag": f"b{number}"}
        for key, values in {"labels": labels, **columns}.items():
            of_bag[key] = values[number % len(values)]
        rows.append({**of_bag, "f0": number, "f1": 0})
        rows.append({**of_bag, "f0": number + 0.5, "f1": -1})
    path = folder / name
    separator = "\t" if path.suffix == ".tsv" else ","
    pd.DataFrame(rows).to_csv(path, index=False, sep=separator)
    return path


def warnings_of(path: Path, **params: Any) -> dict[str, str]:
    options = FeatureOptions(table=str(path), **params)
    bags = load_bags(path, options)
    findings = check_bags(bags, options, splits=checked_splits(bags, options))
    return {finding.what: finding.detail for finding in findings if finding.level != "fact"}


@pytest.mark.parametrize(("labels", "columns", "expected"), [
    *((["a", "b", text], {}, [SEVERAL]) for text in ("a,b", "a|b", "a/b", "a + b", "a b", "a-b", "a\nb", "{a, b}")),
    (["a,b", "b,c", "a,c"], {}, [SEVERAL]),
    (["['a', 'b']", "['a']", "[]"], {}, [SEVERAL]),
    *((["a", "b", name], {}, [NOTHING]) for name in ("nan", "N.A.", "Unknown", "#N/A")),
    *((["a", "b", name], {}, [NOTHING]) for name in ("Background", "noise", "No_Finding", "-a")),
    *((names, {}, [BINARY]) for names in (["0", "1"], ["0.0", "1.0"], ["True", "False"])),
    (["big cat", "big_cat", "Lynx", "lynx"], {}, ["classes that differ in case or spaces alone"]),
    ([f"P{n}" for n in range(BAGS)], {}, [IDS]),
    ([f"{n * 0.37:.2f}" for n in range(BAGS)], {}, [IDS]),  # months of survival
    ([str(20 + n % 40) for n in range(BAGS)], {}, [IDS]),  # ages
    ([""] * (BAGS - 4) + ["a"] * 4, {}, [RARE, BLIND]),
    (["a", ""], {"case_id": [f"P{n // 3}" for n in range(BAGS)]}, [GROUP]),
    (["a", ""], {"patient": [n // 2 for n in range(BAGS)]}, [GROUP]),  # numbers, which would be a feature
    (["a", ""], {"patient": [n // 2 for n in range(BAGS)], "split": ["train", "val", "test"]}, [GROUP]),
    (["a", ""], {"patient": [*[""] * 6, *[f"P{n // 2}" for n in range(6, BAGS)]]}, [GROUP]),  # not known of all
    (["a", ""], {"lesion_id": [n // 2 for n in range(BAGS)]}, [GROUP]),
    (["a", ""], {"subset": ["train", "train", "val", "test"]}, [SPLIT]),
    *((["a", ""], {name: [*range(BAGS)]}, [ODD]) for name in ("slide_id", "coord_x", "target", "label_code")),
    (["a", ""], {"origin": [f"farm {n // 4}" for n in range(BAGS)]}, [GROUP]),
])  # fmt: skip
def test_what_gives_wrong_numbers_is_warned_of(
    tmp_path: Path, labels: list[str], columns: dict[str, Any], expected: list[str]
) -> None:
    found = warnings_of(written(tmp_path, labels, **columns))
    assert len(found) == len(expected), found
    assert all(any(what.startswith(name) for what in found) for name in expected), found


@pytest.mark.parametrize(("labels", "columns"), [
    *((labels, {}) for labels in (
        ["a", "b;a", ""], ["New York", "New Jersey", ""], ["lung cancer", "skin cancer", "cancer-free"],
        ["Smith, John", "Doe, Jane"], ["carcinoma, NOS", "adenoma, NOS", ""], ["day/night", "twilight"],
        ["C++", "C", "Python"], ["CD4+ T cell", "B cell"], ["(other)", "wren"], ["Käuzchen", "Éclair", "日本"],
        ["1", "2", "3"], ["-1", "1"], ["0.5", "1.5", "3.0"], ["normal", "negative"], ["Na", "Cl"], ["1-2", "3-4"],
        ["wren;owl", "owl", "wren;robin", ""], ["2020-01-01", "2020-07-01"],
    )),
    ([str(n % 10) for n in range(BAGS)], {"split": [*["train"] * 10, *["val"] * 10, *["test"] * 10]}),
    (["a", ""], {"sex": ["f", "m", "m"]}),
    (["a", ""], {"diagnosis": [f"stage {n % 4}" for n in range(BAGS)]}),
    ([f"k{n % 20}" for n in range(BAGS)], {"latin": [f"Aves {n % 20}" for n in range(BAGS)],
                                           "split": [*["train"] * 20, *["val"] * 20, *["test"] * 20]}),
    (["a", ""], {"note": [f"note {n}" for n in range(BAGS)]}),
    (["a", ""], {"patient": [f"P{n}" for n in range(BAGS)]}),
    (["a", ""], {"case_id": [f"P{n // 4}" for n in range(BAGS)], "group": [f"P{n // 4}" for n in range(BAGS)]}),
    (["a", ""], {"split": ["train", "train", "val", "Dev", "test", "TEST"]}),
    (["a", ""], {"patient": [f"P{n // 4}" for n in range(BAGS)],
                 "split": [*["train"] * 4, *["val"] * 4, *["test"] * 4]}),
    (["a", ""], {"body_mass_index": [0.1 * n for n in range(BAGS)], "acc_y": [n**2 for n in range(BAGS)]}),
    (["a", ""], {"split": ["training", "training", "testing", "testing"]}),
    ([f"class {n % 20}" for n in range(BAGS)], {"split": [*["train"] * 20, *["valid"] * 20, *["test"] * 20] * 2}),
])  # fmt: skip
def test_odd_but_honest_tables_give_no_warning(
    tmp_path: Path, labels: list[str], columns: dict[str, Any]
) -> None:
    assert warnings_of(written(tmp_path, labels, **columns)) == {}


@pytest.mark.parametrize(("separator", "texts"), [
    (",", ["a,b", "b", ""]), ("|", ["a|b", "b", ""]), (" ", ["a b", "b", ""]), ("", ["a  b", " b", ""]),
    ("list", ["['a', 'b']", '["b"]', "[]"]), ("list", ["('a', 'b')", "{'b'}", ""]),
])  # fmt: skip
def test_a_separator_takes_classes_apart(tmp_path: Path, separator: str, texts: list[str]) -> None:
    bags = load_bags(written(tmp_path, texts), FeatureOptions(table="", separator=separator))
    assert bags.class_names == ["a", "b"]
    assert bags.labels[:3].tolist() == [[True, True], [False, True], [False, False]]


def write_h5(path: Path, arrays: dict[str, Any]) -> None:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def write_pt(path: Path, arrays: dict[str, Any]) -> None:
    """Write a dict of tensors, in a dict "patches" where a name has that folder."""
    is_nested = any("/" in key for key in arrays)
    tensors = {key.rpartition("/")[2]: torch.from_numpy(array) for key, array in arrays.items()}
    torch.save({"patches": tensors} if is_nested else tensors, path)


FORMATS = pytest.mark.parametrize(
    ("ending", "write"), [(".h5", write_h5), (".npz", write_npz), (".pt", write_pt)]
)
NO_FEATURES = pytest.mark.parametrize(
    "name", ["coords", "patches/coordinates", "positions", "bag_ids", "labels", "locs"]
)
VALUES = np.arange(6.0).reshape(3, 2)


def load_file(folder: Path, ending: str) -> OwnBags:
    """Read the bag s1 from its file."""
    (folder / "t.csv").write_text("bag,labels\ns1,x\n")
    return load_bags(folder / "t.csv", FeatureOptions(table="", features=f"*{ending}"))


Write = Callable[[Path, dict[str, Any]], None]


@FORMATS
@NO_FEATURES
def test_a_file_of_coordinates_and_their_kind_is_refused(
    tmp_path: Path, ending: str, write: Write, name: str
) -> None:
    write(tmp_path / f"s1{ending}", {name: VALUES})
    with pytest.raises(UsageError, match=rf"s1{ending}: it holds only {name}; expected features"):
        load_file(tmp_path, ending)


@FORMATS
@NO_FEATURES
def test_coordinates_and_their_kind_are_never_features(
    tmp_path: Path, ending: str, write: Write, name: str
) -> None:
    write(tmp_path / f"s1{ending}", {name: VALUES, "vit_features": VALUES + 1})
    assert load_file(tmp_path, ending).store.single(0).tolist() == (VALUES + 1).tolist()


def slides(folder: Path, **params: Any) -> tuple[OwnBags, FeatureOptions]:
    """Return bags of which four each are of a group."""
    path = written(folder, ["a", ""], bag_of=[f"P{n // 4}" for n in range(BAGS)])
    options = FeatureOptions(table=str(path), group="bag_of", **params)
    return load_bags(path, options), options


def parts_of_fold(fold: int) -> list[list[int]]:
    """Return the bags to train, validate and test on in one of three folds."""
    first = 60 + 4 * fold
    return [list(range(40)), list(range(40, 60)), list(range(first, first + 4))]


@pytest.fixture
def folds(tmp_path: Path) -> tuple[OwnBags, FeatureOptions]:
    """Return bags with a file of a split for each of three folds, with names in columns."""
    (tmp_path / "folds").mkdir()
    for fold in range(3):
        columns = [pd.Series([f"b{n}" for n in part]) for part in parts_of_fold(fold)]
        split = pd.concat(columns, axis=1, keys=["train", "val", "test"])
        split.to_csv(tmp_path / f"folds/splits_{fold}.csv")
    # A file that others write beside it, and which has no number at its end.
    pd.DataFrame({"train": [True]}).to_csv(tmp_path / "folds/splits_0_descriptor.csv")
    return slides(tmp_path, splits="folds/splits_*.csv")


def test_files_of_splits_are_folds(folds: tuple[OwnBags, FeatureOptions]) -> None:
    assert count_folds(*folds) == (3, 1)


@pytest.mark.parametrize("fold", [0, 1, 2])
def test_files_of_splits_are_taken_with_their_validation_bags(
    folds: tuple[OwnBags, FeatureOptions], fold: int
) -> None:
    split = split_bags(*folds, fold)
    assert [part.tolist() for part in split] == parts_of_fold(fold)


def test_one_file_of_true_and_false_splits_every_seed(tmp_path: Path) -> None:
    columns = {}
    for name, part in zip(("train", "val", "test"), parts_of_fold(1), strict=True):
        columns[name] = [n in part for n in range(BAGS)]
    split = pd.DataFrame(columns, index=[f"b{n}" for n in range(BAGS)])
    split.to_csv(tmp_path / "one_bool.csv")
    bags, options = slides(tmp_path, splits="one_bool.csv")
    assert count_folds(bags, options) is None
    assert split_bags(bags, options, 7).test.tolist() == list(range(64, 68))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            "train,val,test\nb0,b4,b8\nb12,,b1\n",
            r"groups of .*t.csv in two parts: P0",
            id="a group in two parts",
        ),
        pytest.param("train,val,test\nb0,b4,b8\nb99,,\n", r"no bags of .*t.csv: b99", id="no bag"),
        pytest.param("train,test\nb0,b0\n", "bags in two parts: b0", id="a bag in two parts"),
        pytest.param(
            "train,validation\nb0,b4\n",
            r"has no column 'test' \(expected the columns train, val and test\)",
            id="no test bags",
        ),
    ],
)
def test_a_split_file_that_does_not_fit_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(UsageError, match=complaint):
        split_bags(*slides(tmp_path, splits="wrong.csv"), 0)


def test_files_of_splits_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"there is no .*gone_\*.csv|no file .*gone_\*.csv with a number"
    ):
        split_bags(*slides(tmp_path, splits="gone_*.csv"), 0)


def test_a_column_of_any_name_may_say_the_groups(tmp_path: Path) -> None:
    bags, _ = slides(tmp_path)
    assert bags.groups is not None
    assert bags.groups[:5] == ["P0", "P0", "P0", "P0", "P1"]
    assert bags.shared_columns == {}


def test_a_column_of_any_name_may_say_the_split(tmp_path: Path) -> None:
    path = written(tmp_path, ["a", ""], fold=["train", "val", "test"])
    split = load_bags(path, FeatureOptions(table="", split="fold")).split
    parts = ["train", "validation", "test"]
    assert split == [parts[n % 3] for n in range(BAGS)]


def test_a_column_of_a_split_that_is_misspelt_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, ["a", ""], fold=["train", "val", "test"])
    with pytest.raises(UsageError, match=r"no column 'flod' .*; did you mean 'fold'"):
        load_bags(path, FeatureOptions(table="", split="flod"))
