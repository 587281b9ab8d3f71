"""Fixed bags: those made from labelled images, against values computed by hand, and the order of numbered ones."""

from collections import Counter

import numpy as np
import pytest
import torch

from milbench import generator
from milbench.data.labelled_images import LabelledImages
from milbench.families.fixed_bags import draw_in_rounds
from milbench.families.image_bags import single_instance_bags


def test_an_image_is_a_bag_of_one_instance_that_fills_it() -> None:
    images = LabelledImages(
        torch.arange(24).byte().view(4, 1, 2, 3), torch.arange(4) % 3, white=255
    )
    bags = single_instance_bags(images, num_classes=3)
    assert bags.mask is None
    assert bags.instances.shape == (4, 1, 2, 3)
    # The quotients as floats of 32 bits, by numpy.
    assert (
        bags.instances.flatten().tolist()
        == (np.arange(24, dtype=np.float32) / np.float32(255)).tolist()
    )
    assert bags.labels.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert bags.truth is not None
    assert bags.truth.boxes is not None
    assert bags.truth.classes.tolist() == [[0], [1], [2], [0]]
    assert (
        bags.truth.boxes.tolist() == [[[0, 0, 3, 2]]] * 4
    )  # left, top, right, bottom: 3 wide and 2 high


@pytest.mark.parametrize(
    ("count", "least", "most"), [(3, 0, 1), (5, 1, 1), (12, 2, 3), (50, 10, 10)]
)
def test_every_bag_is_used_as_often_as_any_other_or_once_more_in_new_orders(
    count: int, least: int, most: int
) -> None:
    order = draw_in_rounds(5, count, generator(0)).tolist()
    used = Counter(order)
    assert all(least <= used[number] <= most for number in range(5))
    assert sum(used.values()) == count
    assert len({tuple(order[start : start + 5]) for start in range(0, count, 5)}) > count // 10
