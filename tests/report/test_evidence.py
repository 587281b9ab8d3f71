"""What test bags share, and what is said of it."""

import numpy as np

from milbench.contracts.predictions import SplitPredictions
from milbench.report.evidence import shared_by


def bags(items: list[list[int]] | None = None, group: list[int] | None = None) -> SplitPredictions:
    nothing = np.zeros((3, 1), np.float32)
    return SplitPredictions(
        labels=nothing > 0,
        presence=nothing,
        classes=nothing,
        bag=np.arange(3),
        digest="three bags",
        items=None if items is None else np.array(items),
        group=None if group is None else np.array(group),
    )


def test_an_item_in_two_bags_is_shared() -> None:
    assert shared_by(bags(items=[[0, 1], [2, 1], [3, -1]])) == "items"


def test_an_item_twice_in_one_bag_is_not_shared() -> None:
    assert shared_by(bags(items=[[0, 0], [1, -1], [2, -1]])) == "nothing"


def test_bags_of_one_group_share_it() -> None:
    assert shared_by(bags(group=[4, 5, 4])) == "group"


def test_bags_that_are_made_of_nothing_known_share_nothing() -> None:
    assert shared_by(bags()) == "nothing"
