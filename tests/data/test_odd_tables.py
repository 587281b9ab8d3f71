"""Tables as people have them: what is read, and that there is a warning where a human would give one, nowhere else."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from milbench.data.bag_checks import check_bags, checked_splits
from milbench.data.own_bags import OwnBags, load_bags
from milbench.data.splits import count_folds, split_bags
from milbench.data.table_options import FeatureOptions
from milbench.errors import UsageError

BAGS = 80
SEVERAL, NOTHING, IDS = (
    "classes that read like several",
    "classes that read like nothing",
    "classes that read like ids",
)
GROUP, RARE, BLIND = (
    "a column that reads like a group",
    "classes missing from a part",
    "no threshold can be chosen",
)
SPLIT, ODD, BINARY = (
    "a column that reads like a split",
    "features that read like ids",
    "the classes are",
)


def written(folder: Path, labels: Any, name: str = "t.csv", **columns: Any) -> Path:
    """Write a table of bags of two instances, in which columns are lists of a value a bag, or cycle through fewer."""
    values = {"labels": labels, **columns}
    rows = [
        {
            "bag": f"b{n}",
            **{key: value[n % len(value)] for key, value in values.items()},
            "f0": n + 0.5 * k,
            "f1": -k,
        }
        for n in range(BAGS)
        for k in range(2)
    ]
    path = folder / name
    pd.DataFrame(rows).to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
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
    (["a", ""], {"patient": [f"P{n // 2}" * (n > 5) for n in range(BAGS)]}, [GROUP]),  # not known of all
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


@pytest.mark.parametrize("ending", [".h5", ".npz", ".pt"])
@pytest.mark.parametrize(
    "name", ["coords", "patches/coordinates", "positions", "bag_ids", "labels", "locs"]
)
def test_coordinates_and_their_kind_are_never_features(
    tmp_path: Path, ending: str, name: str
) -> None:
    path, values = tmp_path / f"s1{ending}", np.arange(6.0).reshape(3, 2)
    options = FeatureOptions(table="", features=f"*{ending}")

    def write(**arrays: Any) -> None:
        if ending == ".h5":
            with h5py.File(path, "w") as file:
                for key, array in arrays.items():
                    file[key] = array
        elif ending == ".npz":
            np.savez(path, **arrays)
        else:
            nested = {
                key.rpartition("/")[2]: torch.from_numpy(array) for key, array in arrays.items()
            }
            torch.save({"patches": nested} if "/" in name else nested, path)

    (tmp_path / "t.csv").write_text("bag,labels\ns1,x\n")
    write(**{name: values})
    with pytest.raises(UsageError, match=rf"s1{ending}: it holds only {name}; expected features"):
        load_bags(tmp_path / "t.csv", options)
    write(**{name: values, "vit_features": values + 1})
    bags = load_bags(tmp_path / "t.csv", options)
    assert bags.store.single(0).tolist() == (values + 1).tolist()


def slides(folder: Path, **params: Any) -> tuple[OwnBags, FeatureOptions]:
    path = written(folder, ["a", ""], bag_of=[f"P{n // 4}" for n in range(BAGS)])
    options = FeatureOptions(table=str(path), group="bag_of", **params)
    return load_bags(path, options), options


def test_splits_of_others_are_taken_with_their_validation_bags_a_file_a_fold(
    tmp_path: Path,
) -> None:
    parts = {k: (range(40), range(40, 60), range(60 + 4 * k, 64 + 4 * k)) for k in range(3)}
    (tmp_path / "folds").mkdir()
    for k, split in parts.items():
        columns = [pd.Series([f"b{n}" for n in ns]) for ns in split]
        pd.concat(columns, axis=1, keys=["train", "val", "test"]).to_csv(
            tmp_path / f"folds/splits_{k}.csv"
        )
    pd.DataFrame({"train": [True]}).to_csv(tmp_path / "folds/splits_0_descriptor.csv")
    bags, options = slides(tmp_path, splits="folds/splits_*.csv")
    assert count_folds(bags, options) == (3, 1)
    for k, split in parts.items():
        assert [part.tolist() for part in split_bags(bags, options, k)] == [
            list(part) for part in split
        ]
    is_in = {
        part: [n in ns for n in range(BAGS)]
        for part, ns in zip(("train", "val", "test"), parts[1], strict=True)
    }
    pd.DataFrame(is_in, index=[f"b{n}" for n in range(BAGS)]).to_csv(tmp_path / "one_bool.csv")
    bags, options = slides(tmp_path, splits="one_bool.csv")
    assert (count_folds(bags, options), split_bags(bags, options, 7).test.tolist()) == (
        None,
        list(range(64, 68)),
    )
    for text, complaint in {
        "train,val,test\nb0,b4,b8\nb12,,b1\n": r"groups of .*t.csv in two parts: P0",
        "train,val,test\nb0,b4,b8\nb99,,\n": r"no bags of .*t.csv: b99",
        "train,test\nb0,b0\n": "bags in two parts: b0",
        "train,validation\nb0,b4\n": r"has no column 'test' \(expected the columns train, val and test\)",
    }.items():
        (tmp_path / "wrong.csv").write_text(text)
        with pytest.raises(UsageError, match=complaint):
            split_bags(*slides(tmp_path, splits="wrong.csv"), 0)
    with pytest.raises(
        UsageError, match=r"there is no .*gone_\*.csv|no file .*gone_\*.csv with a number"
    ):
        split_bags(*slides(tmp_path, splits="gone_*.csv"), 0)


def test_columns_of_any_name_say_groups_and_parts(tmp_path: Path) -> None:
    bags, _ = slides(tmp_path)
    assert bags.groups is not None
    assert bags.groups[:5] == ["P0"] * 4 + ["P1"]
    assert bags.shared_columns == {}
    path = written(tmp_path, ["a", ""], fold=["train", "val", "test"])
    split = load_bags(path, FeatureOptions(table="", split="fold")).split
    assert split == [("train", "validation", "test")[n % 3] for n in range(BAGS)]
    with pytest.raises(UsageError, match=r"no column 'flod' .*; did you mean 'fold'"):
        load_bags(path, FeatureOptions(table="", split="flod"))
