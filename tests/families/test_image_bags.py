"""Bags made from labelled images, against values computed by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from milbench.data.labelled_images import LabelledImages
from milbench.families.fixed_bags import Lazy
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


def test_batches_cover_the_chosen_images_in_their_order() -> None:
    as_bags = partial(single_instance_bags, num_classes=3)
    for which in (None, torch.tensor([6, 0, 2, 2, 5])):
        numbers = list(range(7)) if which is None else which.tolist()
        batches = Lazy.of(images(7), 3, as_bags, which)
        assert [len(bags) for bags in batches] == [3] * (len(numbers) // 3) + [len(numbers) % 3]
        assert len(batches) == len(list(batches))
        first_pixels = torch.cat([bags.instances[:, 0, 0, 0] for bags in batches]) * 255
        assert first_pixels.round().tolist() == [6 * n for n in numbers]
        assert torch.equal(batches[1:][0].instances, batches[1].instances)
        with pytest.raises(IndexError):
            batches[len(batches)]
