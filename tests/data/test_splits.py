from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from milbench.data.own_bags import OwnBags
from milbench.data.splits import drawn_folds, drawn_split, fold_split, given_split, official_split, read_folds
from milbench.errors import UsageError
from tests._helpers.own_bags import own_bags


def table(bags: int = 120, positive: float = 0.25, groups: int = 0, split: list[str] | None = None) -> OwnBags:
    labels = (np.arange(bags) < positive * bags)[:, None]
    names = [f"b{i}" for i in range(bags)]
    of = [f"g{i % groups}" for i in range(bags)] if groups else None
    return own_bags([np.zeros((1, 1))] * bags, labels, ["yes"], bags=names, groups=of, split=split)


def parts_of(found: object) -> list[list[int]]:
    return [getattr(found, part).tolist() for part in ("train", "validation", "test")]


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_a_drawn_split_is_stratified_and_holds_every_bag_once(seed: int) -> None:
    found = drawn_split(table(), test=0.2, validation=0.1, seed=seed)
    parts = parts_of(found)
    assert sorted(itertools.chain(*parts)) == list(range(120))
    assert [len(part) for part in parts] == [84, 12, 24]
    assert [sum(i < 30 for i in part) for part in parts] == [21, 3, 6], "a quarter of each is positive"
    again = parts_of(drawn_split(table(), test=0.2, validation=0.1, seed=seed))
    assert parts == again
    assert parts != parts_of(drawn_split(table(), test=0.2, validation=0.1, seed=seed + 1))
    assert not drawn_split(table(), test=0.2, validation=0.0, seed=seed).validation.size


@pytest.mark.parametrize(
    ("bags", "test", "tested"),
    [(120, 0.4, 48), (120, 0.8, 96), (120, 0.3, 36), (120, 0.01, 1), (8, 0.01, 1), (8, 0.97, 7)],
)
def test_about_the_share_that_is_asked_for_is_tested_on(bags: int, test: float, tested: int) -> None:
    found = drawn_split(table(bags), test=test, validation=0, seed=0)
    assert abs(len(found.test) - tested) <= 1
    assert sorted([*found.train, *found.test]) == list(range(bags))


def test_groups_stay_together() -> None:
    found = drawn_split(table(groups=20), test=0.2, validation=0.1, seed=0)
    owners = [{i % 20 for i in part} for part in parts_of(found)]
    assert not owners[0] & owners[1]
    assert not owners[0] & owners[2]
    assert not owners[1] & owners[2]
    assert all(owners)


def test_a_given_split_is_taken_as_it_is() -> None:
    found = given_split(table(6, split=["train", "test", "validation", "train", "test", "train"]))
    assert parts_of(found) == [[0, 3, 5], [2], [1, 4]]


def test_folds_hold_every_bag_once_in_each_repetition_and_a_seed_is_a_fold() -> None:
    bags = table(50)
    folds = drawn_folds(bags, folds=5, repeats=2)
    assert [len(repetition) for repetition in folds] == [5, 5]
    for repetition in folds:
        assert sorted(np.concatenate(repetition).tolist()) == list(range(50))
    assert not all(np.array_equal(a, b) for a, b in zip(*folds, strict=True))
    found = fold_split(bags, folds, validation=0.0, seed=7)
    assert found.test.tolist() == sorted(folds[1][2].tolist())
    assert sorted([*found.train, *found.test]) == list(range(50))
    held = fold_split(bags, folds, validation=0.1, seed=7)
    assert len(held.validation) == 5
    assert held.test.tolist() == found.test.tolist()
    with pytest.raises(UsageError, match="seed 10: 2 x 5 folds are the seeds 0-9"):
        fold_split(bags, folds, 0.0, 10)


@pytest.mark.parametrize(("content", "complaint"), [
    ("[[", "cannot be read as folds"),
    ('[[["b0"], ["b1"], ["b2", "b3"]]]', "has 1 x 3 folds, expected 1 x 2"),
    ('[[["b0", "b4"], ["b1", "b2", "b3"]]]', "no bags of bags.csv: b4"),
    ('[[["b0", "b1"], ["b1", "b2", "b3"]]]', "bags in two folds: b1"),
    ('[[["b0"], ["b3"]]]', "2 bags are in no fold: b1, b2"),
])  # fmt: skip
def test_folds_that_do_not_fit_are_named(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "folds.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        read_folds(path, table(4), folds=2, repeats=1)
    with pytest.raises(UsageError, match=r"gone.json cannot be read as folds"):
        read_folds(tmp_path / "gone.json", table(4), folds=2, repeats=1)


def test_folds_of_a_file_that_put_a_group_apart_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "folds.json"
    path.write_text(json.dumps([[["b0", "b2"], ["b1", "b3"]]]))
    assert len(read_folds(path, table(4, groups=2), folds=2, repeats=1)) == 1
    path.write_text(json.dumps([[["b0", "b1"], ["b2", "b3"]]]))
    with pytest.raises(UsageError, match=r"repetition 0: groups of bags.csv in two folds: g0, g1"):
        read_folds(path, table(4, groups=2), folds=2, repeats=1)


def test_too_few_bags_are_named() -> None:
    with pytest.raises(UsageError, match="folds = 5 are more than its 4 bags"):
        drawn_folds(table(4), 5, 1)
    with pytest.raises(UsageError, match="1 group cannot be split into two parts, expected at least 2 groups"):
        drawn_split(table(8, groups=1), 0.2, 0.1, 0)
    with pytest.raises(UsageError, match=r"1 bag, which cannot be .* at least 3 bags in all, or validation = 0"):
        drawn_split(table(2), 0.2, 0.1, 0)
    assert len(drawn_split(table(2), 0.2, 0.0, 0).train) == 1


def test_official_folds_are_each_tested_on_by_one_seed_and_validated_on_by_the_one_before() -> None:
    folds = np.array([2, 0, 1, 3, 0, 2])
    assert parts_of(official_split(folds, 4, 0)) == [[0, 3, 5], [2], [1, 4]]
    assert parts_of(official_split(folds, 4, 3)) == [[0, 2, 5], [1, 4], [3]]
    assert parts_of(official_split(folds, 4, 7)) == parts_of(official_split(folds, 4, 3))
    with pytest.raises(UsageError, match="of 5 folds, those of the validation split of seed 3 are empty"):
        official_split(folds, 5, 3)
