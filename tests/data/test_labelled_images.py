from __future__ import annotations

import numpy as np
import pytest
import torch

from milbench.data.labelled_images import ImageSplits, LabelledImages
from milbench.errors import UsageError


def numbered(count: int, boxed: bool = True) -> LabelledImages:
    """Return images of 2x3 pixels in two channels; every pixel of image n is n, and so is the left side of its box."""
    numbers = torch.arange(count)
    boxes = torch.tensor([0.0, 1, 2, 2]) + torch.tensor([1.0, 0, 0, 0]) * numbers.view(-1, 1, 1)
    pixels = numbers.byte().view(-1, 1, 1, 1).expand(count, 2, 2, 3)
    return LabelledImages(pixels, numbers % 4, white=255, boxes=boxes if boxed else None)


@pytest.mark.parametrize("boxed", [True, False])
@pytest.mark.parametrize(
    ("index", "expected"),
    [(slice(2, 5), [2, 3, 4]), (slice(6, None), [6, 7]), (torch.tensor([5, 0, 5]), [5, 0, 5]), (slice(3, 3), [])],
)
def test_an_index_selects_pixels_classes_and_boxes_of_the_same_images(
    index: slice | torch.Tensor, expected: list[int], boxed: bool
) -> None:
    some = numbered(8, boxed)[index]
    assert len(some) == len(expected)
    assert some.pixels.shape == (len(expected), 2, 2, 3)
    assert some.pixels[:, 1, 1, 2].tolist() == expected
    assert some.classes.tolist() == [n % 4 for n in expected]
    assert some.white == 255
    if boxed:
        assert some.boxes is not None
        assert some.boxes.tolist() == [[[n, 1, 2, 2]] for n in expected]
    else:
        assert some.boxes is None


@pytest.mark.parametrize("white", [16, 255, 256])
def test_pixels_are_scaled_as_numpy_divides_every_value_of_a_byte(white: int) -> None:
    values = np.arange(256, dtype=np.float32)
    images = LabelledImages(torch.arange(256).byte().view(1, 1, 16, 16), torch.zeros(1).long(), white)
    scaled = images.scaled()
    assert scaled.dtype == torch.float32
    assert np.array_equal(scaled.numpy().ravel(), values / np.float32(white))  # bit for bit


def test_everything_moves_to_a_device() -> None:
    images = numbered(3)
    moved = ImageSplits(images, None, images[:1]).to(torch.device("meta"))
    assert moved.validation is None
    for part in (moved.train, moved.test):
        assert part.boxes is not None
        assert {part.pixels.device.type, part.classes.device.type, part.boxes.device.type} == {"meta"}
    held_out = ImageSplits(images, images, images).to(torch.device("meta")).validation
    assert held_out is not None
    assert held_out.pixels.device.type == "meta"


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


@pytest.mark.parametrize("count", [8, 9])
def test_an_image_is_left_to_train_on_or_the_error_names_the_task(count: int) -> None:
    with pytest.raises(UsageError, match=f"^toy: validation = {count} leaves none of 8 training images$"):
        ImageSplits.with_last_for_validation(numbered(8), numbered(2), count=count, task_name="toy")
