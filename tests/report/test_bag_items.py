"""The items and groups of test bags: which bags share some, and the file that keeps them.

An item is a recording, image or word that bags are made of. A group is what several bags come from,
such as a patient. Errors of bags that share an item or a group depend on each other.
"""

from pathlib import Path

import numpy as np
import pytest

from milbench.report.bag_items import BagItems, load_bag_items, save_bag_items


def of_items(*items: list[int]) -> BagItems:
    """Return bags with these items, a list for each bag; -1 stands for no item."""
    return BagItems(group=None, items=np.array(items))


def test_an_item_in_two_bags_is_shared() -> None:
    assert of_items([0, 1], [2, 1], [3, -1]).shared == "items"


def test_an_item_twice_in_one_bag_is_not_shared() -> None:
    assert of_items([0, 0], [1, -1], [2, -1]).shared == "nothing"


def test_bags_of_one_group_share_the_group() -> None:
    assert BagItems(group=np.array([4, 5, 4]), items=None).shared == "group"


@pytest.mark.parametrize(
    "made_of",
    [
        pytest.param(BagItems(group=None, items=None), id="nothing known"),
        pytest.param(BagItems(group=np.arange(3), items=None), id="groups of one"),
        pytest.param(of_items([0, 1], [2, 3]), id="items of their own"),
    ],
)
def test_bags_that_share_nothing_have_no_clusters(made_of: BagItems) -> None:
    assert made_of.shared == "nothing"
    assert made_of.clusters() is None


def test_clusters_name_the_bags_that_share_an_item() -> None:
    clusters = of_items([0, 1], [1, 2], [3, -1]).clusters()
    assert clusters is not None
    # Row i is 1 in the columns of the bags that share an item with bag i, and of itself.
    assert clusters.neighbours.toarray().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_a_file_keeps_groups_and_items(tmp_path: Path) -> None:
    path = tmp_path / "test_items.npz"
    # The keys are digests of sets of bags. Here letters stand for them.
    kept = {
        "b": of_items([0, 1], [1, -1]),
        "a": BagItems(group=np.array([4, 5, 4]), items=None),
        "c": BagItems(group=None, items=None),
    }
    save_bag_items(path, kept)
    found = load_bag_items(path)
    assert {digest: items.shared for digest, items in found.items()} == {
        "a": "group",
        "b": "items",
        "c": "nothing",
    }
    np.testing.assert_array_equal(found["b"].items, kept["b"].items)
    np.testing.assert_array_equal(found["a"].group, kept["a"].group)
