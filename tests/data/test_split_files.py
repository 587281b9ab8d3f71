"""Splits from elsewhere: files with the bags of each part, and columns of parts and groups."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.split_checks import checked_splits
from milbench.data.splits import count_folds, split_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

BAGS = 80
PARTS = ["train", "val", "test"]
NAMES = [f"b{number}" for number in range(BAGS)]


def write_bags(folder: Path, **columns: list[str]) -> Path:
    """Write a table of 80 bags of one instance; every other bag has the class a."""
    labels = ["" if number % 2 else "a" for number in range(BAGS)]
    frame = pd.DataFrame({"bag": NAMES, "labels": labels, "f": range(BAGS), **columns})
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    return path


def load_slides(folder: Path, **params: Any) -> tuple[OwnBags, FeatureOptions]:
    """Return bags in groups of four, P0, P1, ..., and the options with which they were read."""
    path = write_bags(folder, bag_of=[f"P{number // 4}" for number in range(BAGS)])
    options = FeatureOptions(table=str(path), group="bag_of", **params)
    return load_bags(path, options), options


def bags_of_fold(fold: int) -> list[list[int]]:
    """Return the training, validation and test bags of one of three folds."""
    first_test_bag = 60 + 4 * fold
    train = list(range(40))
    validation = list(range(40, 60))
    test = list(range(first_test_bag, first_test_bag + 4))
    return [train, validation, test]


@pytest.fixture
def folds(tmp_path: Path) -> tuple[OwnBags, FeatureOptions]:
    """Bags, and the options that read three folds: a file for each, with the names of its bags."""
    (tmp_path / "folds").mkdir()
    for fold in range(3):
        columns = [pd.Series([NAMES[bag] for bag in part]) for part in bags_of_fold(fold)]
        split = pd.concat(columns, axis=1, keys=PARTS)
        split.to_csv(tmp_path / f"folds/splits_{fold}.csv")
    # Tools that write such splits write this file as well. Its name does not end in a number, so
    # that it is no fold.
    pd.DataFrame({"train": [True]}).to_csv(tmp_path / "folds/splits_0_descriptor.csv")
    return load_slides(tmp_path, splits="folds/splits_*.csv")


def test_one_file_is_one_split_to_check(folds: tuple[OwnBags, FeatureOptions]) -> None:
    bags, options = folds
    one_file = options.splits.replace("splits_*", "splits_0")
    assert len(checked_splits(bags, replace(options, splits=one_file))) == 1


def test_each_file_of_a_split_is_a_fold(folds: tuple[OwnBags, FeatureOptions]) -> None:
    assert count_folds(*folds) == (3, 1)


@pytest.mark.parametrize("fold", [0, 1, 2])
def test_a_fold_has_the_bags_that_its_file_lists(
    folds: tuple[OwnBags, FeatureOptions], fold: int
) -> None:
    split = split_bags(*folds, fold)
    assert [part.tolist() for part in split] == bags_of_fold(fold)


def test_one_file_of_true_and_false_is_the_split_of_every_seed(tmp_path: Path) -> None:
    columns = {}
    for name, part in zip(PARTS, bags_of_fold(1), strict=True):
        columns[name] = [bag in part for bag in range(BAGS)]
    pd.DataFrame(columns, index=NAMES).to_csv(tmp_path / "one_bool.csv")
    bags, options = load_slides(tmp_path, splits="one_bool.csv")
    assert count_folds(bags, options) is None
    split = split_bags(bags, options, 7)
    assert [part.tolist() for part in split] == bags_of_fold(1)


def test_a_large_share_to_validate_on_leaves_the_bags_that_files_train_on(
    folds: tuple[OwnBags, FeatureOptions],
) -> None:
    # With the default share to test on, 0.2, no bag would be left. But the files say all parts.
    bags, options = folds
    split = split_bags(bags, replace(options, validation=0.85), 0)
    assert [part.tolist() for part in split] == bags_of_fold(0)


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
    bags, options = load_slides(tmp_path, splits="wrong.csv")
    with pytest.raises(UsageError, match=complaint):
        split_bags(bags, options, 0)


def test_files_of_splits_that_are_missing_are_named(tmp_path: Path) -> None:
    bags, options = load_slides(tmp_path, splits="gone_*.csv")
    complaint = r"there is no .*gone_\*.csv|no file .*gone_\*.csv with a number"
    with pytest.raises(UsageError, match=complaint):
        split_bags(bags, options, 0)


def test_a_column_of_any_name_may_say_the_groups(tmp_path: Path) -> None:
    bags, _ = load_slides(tmp_path)
    assert bags.groups is not None
    assert bags.groups[:5] == ["P0", "P0", "P0", "P0", "P1"]
    assert bags.shared_columns == {}


@pytest.fixture
def table_of_parts(tmp_path: Path) -> Path:
    """A table whose column `fold` has the three parts in turn."""
    return write_bags(tmp_path, fold=[PARTS[number % 3] for number in range(BAGS)])


def test_a_column_of_any_name_may_say_the_split(table_of_parts: Path) -> None:
    split = load_bags(table_of_parts, FeatureOptions(table="", split="fold")).split
    read_as = ["train", "validation", "test"]
    assert split == [read_as[number % 3] for number in range(BAGS)]


def test_a_column_of_a_split_that_is_misspelt_is_named(table_of_parts: Path) -> None:
    with pytest.raises(UsageError, match=r"no column 'flod' .*; did you mean 'fold'"):
        load_bags(table_of_parts, FeatureOptions(table="", split="flod"))
