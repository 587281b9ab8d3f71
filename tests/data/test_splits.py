"""Splits and folds of bags: each bag is in one part, groups stay together, shares are as wanted."""

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
    """Return bags b0, b1, ..., of which the first quarter has the class "yes".

    The bags are in turn in `groups` groups; by default there are no groups.
    """
    labels = (np.arange(bags) < bags / 4)[:, None]
    names = [f"b{number}" for number in range(bags)]
    owners = [f"g{number % groups}" for number in range(bags)] if groups else None
    instances = [np.zeros((1, 1))] * bags
    return own_bags(instances, labels, ["yes"], bags=names, groups=owners, **columns)


def split_by_seed(
    bags: OwnBags, test: float = 0.2, validation: float = 0.1, seed: int = 0
) -> BagSplit:
    """Return the split of a seed, with these shares of test and validation bags."""
    return split_bags(bags, TableOptions(table="", test=test, validation=validation), seed)


def parts_of(split: BagSplit) -> list[list[int]]:
    """Return the training, validation and test bags of a split."""
    return [part.tolist() for part in split]


# A seed may have more than 32 bits.
SEEDS = pytest.mark.parametrize("seed", [0, 2**40])


@SEEDS
def test_a_split_by_seed_holds_every_bag_once(seed: int) -> None:
    train, validation, test = parts_of(split_by_seed(table(), seed=seed))
    assert sorted(train + validation + test) == list(range(120))


@SEEDS
def test_a_split_by_seed_has_the_wanted_shares(seed: int) -> None:
    parts = parts_of(split_by_seed(table(), test=0.2, validation=0.1, seed=seed))
    # Of 120 bags 20 % are tested on, and 10 % are for validation.
    assert [len(part) for part in parts] == [84, 12, 24]


@SEEDS
def test_a_split_by_seed_is_stratified(seed: int) -> None:
    # The first 30 of 120 bags are positive: a quarter of each part.
    positive = [
        [bag for bag in part if bag < 30] for part in parts_of(split_by_seed(table(), seed=seed))
    ]
    assert [len(part) for part in positive] == [21, 3, 6]


@SEEDS
def test_a_seed_gives_the_same_split_twice(seed: int) -> None:
    assert parts_of(split_by_seed(table(), seed=seed)) == parts_of(
        split_by_seed(table(), seed=seed)
    )


@SEEDS
def test_another_seed_gives_another_split(seed: int) -> None:
    assert parts_of(split_by_seed(table(), seed=seed)) != parts_of(
        split_by_seed(table(), seed=seed + 1)
    )


def test_there_may_be_no_validation_bags() -> None:
    assert len(split_by_seed(table(), validation=0.0).validation) == 0


@pytest.mark.parametrize(
    ("bags", "test", "tested"),
    [
        pytest.param(120, 0.3, 36, id="less than half"),
        pytest.param(120, 0.4, 48, id="almost half"),
        pytest.param(120, 0.8, 96, id="more than half"),
        pytest.param(120, 0.01, 1, id="almost none"),
        pytest.param(8, 0.01, 1, id="almost none of few"),
        pytest.param(8, 0.97, 7, id="almost all of few"),
    ],
)
def test_about_the_wanted_share_of_bags_is_tested_on(bags: int, test: float, tested: int) -> None:
    split = split_by_seed(table(bags), test=test, validation=0)
    assert abs(len(split.test) - tested) <= 1
    assert sorted([*split.train, *split.test]) == list(range(bags))


def test_groups_stay_together() -> None:
    parts = parts_of(split_by_seed(table(groups=20)))
    # Bag i is of group i % 20.
    train, validation, test = ({bag % 20 for bag in part} for part in parts)
    assert train | validation | test == set(range(20))
    assert len(train) + len(validation) + len(test) == 20
    assert train
    assert validation
    assert test


def test_a_given_split_is_taken_as_it_is() -> None:
    bags = table(6, split=["train", "test", "validation", "train", "test", "train"])
    assert parts_of(split_bags(bags, TableOptions(table=""), 1)) == [[0, 3, 5], [2], [1, 4]]


@pytest.fixture
def without_validation() -> OwnBags:
    """120 bags with a given split without validation bags; every fourth bag is a test bag."""
    parts = ["test", "train", "train", "train"] * 30
    return table(split=parts)


def test_a_given_split_keeps_its_test_bags(without_validation: OwnBags) -> None:
    assert split_by_seed(without_validation).test.tolist() == list(range(0, 120, 4))


def test_some_given_training_bags_are_held_out_for_validation(
    without_validation: OwnBags,
) -> None:
    split = split_by_seed(without_validation)
    assert len(split.validation) == 12
    to_train_on = [bag for bag in range(120) if bag % 4 != 0]
    assert sorted([*split.train, *split.validation]) == to_train_on


def test_every_seed_holds_out_the_same_given_bags(
    without_validation: OwnBags,
) -> None:
    assert parts_of(split_by_seed(without_validation)) == parts_of(
        split_by_seed(without_validation, seed=7)
    )


def test_a_given_split_may_stay_without_validation_bags(without_validation: OwnBags) -> None:
    assert len(split_by_seed(without_validation, validation=0).validation) == 0


FOLDS = TableOptions(table="", folds=5, repeats=2, validation=0.0)


def fold(seed: int) -> BagSplit:
    """Return the split of a seed: seeds 0 to 4 are the folds, and 5 to 9 the second repetition."""
    return split_bags(table(50), FOLDS, seed)


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(5), id="first"), pytest.param(range(5, 10), id="second")]
)
def test_folds_test_every_bag_once_in_each_repetition(seeds: range) -> None:
    tested = [bag for seed in seeds for bag in fold(seed).test.tolist()]
    assert sorted(tested) == list(range(50))


def test_a_second_repetition_has_other_folds() -> None:
    first = [fold(seed).test.tolist() for seed in range(5)]
    second = [fold(seed).test.tolist() for seed in range(5, 10)]
    assert first != second


def test_a_fold_trains_on_all_bags_that_it_does_not_test() -> None:
    split = fold(7)
    assert sorted([*split.train, *split.test]) == list(range(50))


def test_validation_bags_do_not_change_the_test_bags_of_a_fold() -> None:
    options = TableOptions(table="", folds=5, repeats=2, validation=0.1)
    split = split_bags(table(50), options, 7)
    assert len(split.validation) == 5
    assert split.test.tolist() == fold(7).test.tolist()


def test_a_seed_beyond_all_folds_is_refused() -> None:
    with pytest.raises(UsageError, match="seed 10: 2 x 5 folds are the seeds 0-9"):
        fold(10)


def write_folds(folder: Path, content: str) -> TableOptions:
    """Write a file of folds, and return the options that read it."""
    (folder / "folds.json").write_text(content)
    return TableOptions(table="", splits="folds.json", validation=0.0)


def test_folds_of_a_file_are_taken(tmp_path: Path) -> None:
    bags = table(4, groups=2, path=tmp_path / "bags.csv")
    # One repetition of two folds, each a list of its test bags.
    options = write_folds(tmp_path, '[[["b0", "b2"], ["b1", "b3"]]]')
    assert split_bags(bags, options, 1).test.tolist() == [1, 3]


def test_a_file_of_folds_that_is_missing_is_named(tmp_path: Path) -> None:
    bags = table(4, path=tmp_path / "bags.csv")
    with pytest.raises(UsageError, match=r"folds.json cannot be read as folds"):
        split_bags(bags, TableOptions(table="", splits="folds.json", validation=0.0), 1)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param("[[", "cannot be read as folds", id="no JSON"),
        pytest.param(
            '[[["b0"], ["b1", "b2"]], [["b3"]]]',
            "expected repetitions of equally many folds",
            id="a fold too few",
        ),
        pytest.param(
            '[[{"train": ["b0"], "val": ["b1"], "test": ["b1"]}]]',
            "repetition 0, fold 0: bags in two parts: b1",
            id="two parts",
        ),
        pytest.param(
            '[[["b0", "b4"], ["b1", "b2", "b3"]]]', "no bags of .*bags.csv: b4", id="no bag"
        ),
        pytest.param(
            '[[["b0", "b1"], ["b1", "b2", "b3"]]]', "bags in two folds: b1", id="two folds"
        ),
        pytest.param('[[["b0"], ["b3"]]]', "2 bags are in no fold: b1, b2", id="no fold"),
        pytest.param(
            '[[{"train": [], "test": ["b0"]}]]',
            "no bag is left to train on, with task.validation=0",
            id="nothing to train on",
        ),
    ],
)
def test_folds_of_a_file_that_do_not_fit_are_named(
    tmp_path: Path, content: str, complaint: str
) -> None:
    bags = table(4, path=tmp_path / "bags.csv")
    with pytest.raises(UsageError, match=complaint):
        split_bags(bags, write_folds(tmp_path, content), 1)


def test_groups_in_two_folds_of_a_file_are_named(tmp_path: Path) -> None:
    bags = table(4, groups=2, path=tmp_path / "bags.csv")
    options = write_folds(tmp_path, '[[["b0", "b1"], ["b2", "b3"]]]')
    with pytest.raises(
        UsageError, match=r"repetition 0: groups of .*bags.csv in two folds: g0, g1"
    ):
        split_bags(bags, options, 1)


def test_more_folds_than_bags_are_refused() -> None:
    with pytest.raises(UsageError, match=r"task\.folds=5 are more than its 4 bags"):
        split_bags(table(4), TableOptions(table="", folds=5), 0)


def test_one_group_cannot_be_split() -> None:
    with pytest.raises(
        UsageError, match="1 group cannot be split into two parts, expected at least 2 groups"
    ):
        split_by_seed(table(8, groups=1))


def test_two_bags_cannot_be_split_into_three_parts() -> None:
    # One of the two bags is for testing. The message is about the bag that is left, which cannot be
    # for training and for validation.
    with pytest.raises(
        UsageError, match=r"1 bag, which cannot be .* at least 3 bags in all, or validation = 0"
    ):
        split_by_seed(table(2))


def test_two_bags_can_be_split_into_two_parts() -> None:
    split = split_by_seed(table(2), validation=0.0)
    assert len(split.train) == 1
    assert len(split.test) == 1


OFFICIAL = np.array([2, 0, 1, 3, 0, 2])
"""The fold of each of six bags."""


@pytest.mark.parametrize(
    ("seed", "parts"),
    [
        pytest.param(0, [[0, 3, 5], [2], [1, 4]], id="validated on 1, tested on 0"),
        pytest.param(3, [[0, 2, 5], [1, 4], [3]], id="validated on 0, tested on 3"),
        pytest.param(7, [[0, 2, 5], [1, 4], [3]], id="a seed beyond begins anew"),
    ],
)
def test_a_seed_is_tested_on_one_official_fold(seed: int, parts: list[list[int]]) -> None:
    assert parts_of(official_split(OFFICIAL, 4, seed)) == parts


def test_an_official_fold_without_bags_is_named() -> None:
    with pytest.raises(
        UsageError, match="of 5 folds, those of the validation split of seed 3 are empty"
    ):
        official_split(OFFICIAL, 5, 3)
