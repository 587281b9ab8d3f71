import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milbench.data.own_bags import OwnBags
from milbench.data.splits import BagSplit, official_split, split_bags
from milbench.data.table_options import TableOptions
from milbench.errors import UsageError
from tests._helpers.own_bags import own_bags


def table(bags: int = 120, groups: int = 0, **columns: Any) -> OwnBags:
    """Return bags b0, b1, ... of which the first quarter is positive."""
    labels = (np.arange(bags) < bags / 4)[:, None]
    names = [f"b{i}" for i in range(bags)]
    of = [f"g{i % groups}" for i in range(bags)] if groups else None
    return own_bags([np.zeros((1, 1))] * bags, labels, ["yes"], bags=names, groups=of, **columns)


def drawn(bags: OwnBags, test: float = 0.2, validation: float = 0.1, seed: int = 0) -> BagSplit:
    return split_bags(bags, TableOptions(table="", test=test, validation=validation), seed)


def parts_of(split: BagSplit) -> list[list[int]]:
    return [part.tolist() for part in split]


@pytest.mark.parametrize("seed", [0, 2**40])
def test_a_drawn_split_is_stratified_and_holds_every_bag_once(seed: int) -> None:
    parts = parts_of(drawn(table(), seed=seed))
    assert sorted(itertools.chain(*parts)) == list(range(120))
    assert [len(part) for part in parts] == [84, 12, 24]
    assert [sum(i < 30 for i in part) for part in parts] == [21, 3, 6], (
        "a quarter of each is positive"
    )
    assert parts == parts_of(drawn(table(), seed=seed))
    assert parts != parts_of(drawn(table(), seed=seed + 1))
    assert not drawn(table(), validation=0.0, seed=seed).validation.size


@pytest.mark.parametrize(("bags", "test", "tested"), [
    (120, 0.4, 48), (120, 0.8, 96), (120, 0.3, 36), (120, 0.01, 1), (8, 0.01, 1), (8, 0.97, 7),
])  # fmt: skip
def test_about_the_share_that_is_asked_for_is_tested_on(
    bags: int, test: float, tested: int
) -> None:
    split = drawn(table(bags), test=test, validation=0)
    assert abs(len(split.test) - tested) <= 1
    assert sorted([*split.train, *split.test]) == list(range(bags))


def test_groups_stay_together() -> None:
    owners = [{i % 20 for i in part} for part in parts_of(drawn(table(groups=20)))]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 20
    assert all(owners)


def test_a_given_split_is_taken_as_it_is() -> None:
    bags = table(6, split=["train", "test", "validation", "train", "test", "train"])
    assert parts_of(split_bags(bags, TableOptions(table=""), 1)) == [[0, 3, 5], [2], [1, 4]]


def test_of_a_given_split_without_validation_bags_some_to_train_on_are_held_out_the_same_for_every_seed() -> (
    None
):
    bags = table(split=["test" if i % 4 == 0 else "train" for i in range(120)])
    split = drawn(bags)
    assert split.test.tolist() == [*range(0, 120, 4)]
    assert len(split.validation) == 12
    assert sorted([*split.train, *split.validation]) == [i for i in range(120) if i % 4]
    assert parts_of(split) == parts_of(drawn(bags, seed=7))
    assert not drawn(bags, validation=0).validation.size


def test_folds_hold_every_bag_once_in_each_repetition_and_a_seed_is_a_fold() -> None:
    bags, options = table(50), TableOptions(table="", folds=5, repeats=2, validation=0.0)
    splits = [split_bags(bags, options, seed) for seed in range(10)]
    for repetition in (splits[:5], splits[5:]):
        assert sorted(np.concatenate([split.test for split in repetition]).tolist()) == list(
            range(50)
        )
    assert not all(
        np.array_equal(a.test, b.test) for a, b in zip(splits[:5], splits[5:], strict=True)
    )
    assert sorted([*splits[7].train, *splits[7].test]) == list(range(50))
    held = split_bags(bags, TableOptions(table="", folds=5, repeats=2, validation=0.1), 7)
    assert len(held.validation) == 5
    assert held.test.tolist() == splits[7].test.tolist()
    with pytest.raises(UsageError, match="seed 10: 2 x 5 folds are the seeds 0-9"):
        split_bags(bags, options, 10)


@pytest.mark.parametrize(("content", "groups", "complaint"), [
    ("", 0, r"folds.json cannot be read as folds"),
    ("[[", 0, "cannot be read as folds"),
    ('[[["b0"], ["b1", "b2"]], [["b3"]]]', 0, "expected repetitions of equally many folds"),
    ('[[{"train": ["b0"], "val": ["b1"], "test": ["b1"]}]]', 0, "repetition 0, fold 0: bags in two parts: b1"),
    ('[[["b0", "b4"], ["b1", "b2", "b3"]]]', 0, "no bags of .*bags.csv: b4"),
    ('[[["b0", "b1"], ["b1", "b2", "b3"]]]', 0, "bags in two folds: b1"),
    ('[[["b0"], ["b3"]]]', 0, "2 bags are in no fold: b1, b2"),
    ('[[["b0", "b1"], ["b2", "b3"]]]', 2, r"repetition 0: groups of .*bags.csv in two folds: g0, g1"),
    ('[[{"train": [], "test": ["b0"]}]]', 0, "no bag is left to train on, with task.validation=0"),
    ('[[["b0", "b2"], ["b1", "b3"]]]', 2, ""),
])  # fmt: skip
def test_folds_of_a_file_that_do_not_fit_are_named(
    tmp_path: Path, content: str, groups: int, complaint: str
) -> None:
    bags = table(4, groups, path=tmp_path / "bags.csv")
    options = TableOptions(table="", splits="folds.json", validation=0.0)
    if content:
        (tmp_path / "folds.json").write_text(content)
    with pytest.raises(UsageError, match=complaint) if complaint else nullcontext():
        assert split_bags(bags, options, 1).test.tolist() == [1, 3]


def test_too_few_bags_are_named() -> None:
    with pytest.raises(UsageError, match=r"task\.folds=5 are more than its 4 bags"):
        split_bags(table(4), TableOptions(table="", folds=5), 0)
    with pytest.raises(
        UsageError, match="1 group cannot be split into two parts, expected at least 2 groups"
    ):
        drawn(table(8, groups=1))
    with pytest.raises(
        UsageError, match=r"1 bag, which cannot be .* at least 3 bags in all, or validation = 0"
    ):
        drawn(table(2))
    assert len(drawn(table(2), validation=0.0).train) == 1


def test_official_folds_are_each_tested_on_by_one_seed_and_validated_on_by_the_one_before() -> None:
    folds = np.array([2, 0, 1, 3, 0, 2])
    assert parts_of(official_split(folds, 4, 0)) == [[0, 3, 5], [2], [1, 4]]
    assert parts_of(official_split(folds, 4, 3)) == [[0, 2, 5], [1, 4], [3]]
    assert parts_of(official_split(folds, 4, 7)) == parts_of(official_split(folds, 4, 3))
    with pytest.raises(
        UsageError, match="of 5 folds, those of the validation split of seed 3 are empty"
    ):
        official_split(folds, 5, 3)
