import itertools
from fractions import Fraction
from math import floor
from typing import get_args

import pytest
import torch

from milbench import generator
from milbench.data.crops import Protocol
from milbench.families.augmentation import augment, flip_and_crop

IMAGES = torch.arange(40 * 3 * 6 * 8, dtype=torch.int64).view(40, 3, 6, 8)


def old_pixel(new: int, size: int, protocol: Protocol) -> int:
    """The old pixel at the centre of a new one, or the one of the published number."""
    return floor(
        (new + Fraction(1, 2)) * 60 / size
        if protocol == "ours"
        else Fraction(new * (60 - 1), size - 1)
    )


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_every_pixel_is_what_plain_python_says(protocol: Protocol) -> None:
    images = torch.arange(2 * 3 * 64 * 64, dtype=torch.float64).view(
        2, 3, 64, 64
    )  # every pixel has its own value
    known = [(10.0, 12.0, 20.0, 40.0), (61.0, 1.0, 64.0, 3.0)]
    boxes, sizes, places, orders = torch.tensor([known] * 2), [], set(), set()
    for seed in range(32):
        new, moved = augment(images, boxes, torch.Generator().manual_seed(seed), protocol)
        height, width = new.shape[2:]
        # Read the draw off the first pixel and the order of the channels, then predict all the others.
        channels = (new[0, :, 0, 0] // 4096).int().tolist()
        top, left = divmod(int(new[0, 0, 0, 0]) % 4096, 64)
        sizes.append((height, width))
        places |= {top, left}
        orders.add(tuple(channels))
        for y, x in itertools.product(
            (0, 1, height // 2, height - 1), (0, 1, width // 3, width - 1)
        ):
            row, column = top + old_pixel(y, height, protocol), left + old_pixel(x, width, protocol)
            assert torch.equal(new[:, :, y, x], images[:, channels, row, column])
        for k, box in enumerate(known if protocol == "ours" else []):
            edges = zip(box, (left, top) * 2, (width, height) * 2, strict=True)
            assert moved[0, k].tolist() == pytest.approx(
                [min(max(v - o, 0), 60) * size / 60 for v, o, size in edges]
            )
    heights, widths = zip(*sizes, strict=True)
    assert 50 <= min(heights + widths) < 54
    assert 66 < max(heights + widths) <= 70
    assert heights != widths
    assert places == {0, 1, 2, 3, 4}
    assert len(orders) == 6


def test_by_the_published_protocol_boxes_hold_what_they_held() -> None:
    images, box = torch.zeros(1, 3, 64, 64), (17, 9, 31, 50)
    images[:, :, box[1] : box[3], box[0] : box[2]] = 1
    boxes = torch.tensor([[box, (0, 0, 64, 64)]], dtype=torch.float32)
    for seed in range(32):
        new, moved = augment(images, boxes, torch.Generator().manual_seed(seed), "paper")
        height, width = new.shape[2:]
        rows, columns = new[0, 0].nonzero(as_tuple=True)
        shown = [int(v) for v in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)]
        assert moved[0, 0].tolist() == pytest.approx(shown, abs=1)
        assert moved[0, 1].tolist() == pytest.approx([0, 0, width, height], abs=0.2)


def test_about_half_of_the_images_are_mirrored() -> None:
    found = flip_and_crop(IMAGES, generator(0), flip=True, crop=0)
    kept, mirrored = ((found == other).flatten(1).all(dim=1) for other in (IMAGES, IMAGES.flip(3)))
    assert (kept ^ mirrored).all()
    assert 10 <= int(mirrored.sum()) <= 30


def test_each_image_is_shifted_by_chance_of_its_own() -> None:
    images = torch.zeros(200, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 255
    found = flip_and_crop(images, generator(0), flip=False, crop=2)
    assert found.shape == images.shape
    places = (found[:, 0] == 255).nonzero()
    assert len(places) == 200, "no pixel is made or lost"
    assert {tuple(place) for place in places[:, 1:].tolist()} == {
        (y, x) for y in range(2, 7) for x in range(2, 7)
    }
