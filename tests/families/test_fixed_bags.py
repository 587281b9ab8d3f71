"""Fixed bags: those made from labelled images, against values computed by hand, and the order of numbered ones."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

from milbench import generator
from milbench.data.labelled_images import LabelledImages
from milbench.families.fixed_bags import Lazy, in_rounds
from milbench.families.image_bags import single_instance_bags


def images(count: int) -> LabelledImages:
    """Return images of 2x3 pixels in one channel; pixel k of image n has the value 6 n + k."""
    return LabelledImages(torch.arange(6 * count).byte().view(count, 1, 2, 3), torch.arange(count) % 3, white=255)


def test_an_image_is_a_bag_of_one_instance_that_fills_it() -> None:
    bags = single_instance_bags(images(4), num_classes=3)
    assert bags.mask is None
    assert bags.instances.shape == (4, 1, 2, 3)
    # The quotients as floats of 32 bits, by numpy.
    assert bags.instances.flatten().tolist() == (np.arange(24, dtype=np.float32) / np.float32(255)).tolist()
    assert bags.labels.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert bags.truth is not None
    assert bags.truth.boxes is not None
    assert bags.truth.classes.tolist() == [[0], [1], [2], [0]]
    assert bags.truth.boxes.tolist() == [[[0, 0, 3, 2]]] * 4  # left, top, right, bottom: 3 wide and 2 high


def test_batches_cover_the_images_in_their_order() -> None:
    batches = Lazy.of(images(7), 3, partial(single_instance_bags, num_classes=3))
    assert [len(bags) for bags in batches] == [3, 3, 1]
    assert len(batches) == 3
    first_pixels = torch.cat([bags.instances[:, 0, 0, 0] for bags in batches]) * 255
    assert first_pixels.round().tolist() == [6 * n for n in range(7)]
    with pytest.raises(IndexError):
        batches[3]


@pytest.mark.parametrize(("count", "least", "most"), [(3, 0, 1), (5, 1, 1), (12, 2, 3)])
def test_every_bag_is_used_as_often_as_any_other_or_once_more(count: int, least: int, most: int) -> None:
    used = Counter(in_rounds(5, count, generator(0)).tolist())
    assert all(least <= used[number] <= most for number in range(5))
    assert sum(used.values()) == count


def test_every_pass_has_another_order() -> None:
    order = in_rounds(5, 50, generator(0)).tolist()
    assert len({tuple(order[start : start + 5]) for start in range(0, 50, 5)}) > 5
