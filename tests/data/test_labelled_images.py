from __future__ import annotations

import numpy as np
import pytest
import torch

from milbench.data.labelled_images import ImageSplits, LabelledImages


def numbered(count: int, boxed: bool = True) -> LabelledImages:
    """Return images of 2x3 pixels in two channels; every pixel of image n is n, and so is the left side of its box."""
    numbers = torch.arange(count)
    boxes = torch.tensor([0.0, 1, 2, 2]) + torch.tensor([1.0, 0, 0, 0]) * numbers.view(-1, 1, 1)
    pixels = numbers.byte().view(-1, 1, 1, 1).expand(count, 2, 2, 3)
    return LabelledImages(pixels, numbers % 4, white=255, boxes=boxes if boxed else None)


@pytest.mark.parametrize("white", [16, 255, 256])
def test_pixels_are_scaled_as_numpy_divides_every_value_of_a_byte(white: int) -> None:
    values = np.arange(256, dtype=np.float32)
    images = LabelledImages(torch.arange(256).byte().view(1, 1, 16, 16), torch.zeros(1).long(), white)
    scaled = images.scaled()
    assert scaled.dtype == torch.float32
    assert np.array_equal(scaled.numpy().ravel(), values / np.float32(white))  # bit for bit


def test_the_last_training_images_are_held_out() -> None:
    train, test = numbered(8), numbered(2)
    splits = ImageSplits.with_last_for_validation(train, test, count=3, task_name="toy")
    assert splits.validation is not None
    assert splits.train.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert splits.validation.pixels[:, 0, 0, 0].tolist() == [5, 6, 7]
    assert splits.test is test
    whole = ImageSplits.with_last_for_validation(train, test, count=0, task_name="toy")
    assert len(whole.train) == 8
    assert whole.validation is None
