"""Augmentation of images: crops of house numbers, and users' images mirrored and shifted."""

import itertools
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import get_args

import pytest
import torch
from torch import Tensor

from milbench import generator
from milbench.data.crops import Protocol
from milbench.families.augmentation import augment, flip_and_crop

IMAGES = torch.arange(40 * 3 * 6 * 8, dtype=torch.int64).view(40, 3, 6, 8)
CROPS = torch.arange(2 * 3 * 64 * 64, dtype=torch.float64).view(2, 3, 64, 64)
"""Every pixel has another value: column + 64 * row + 64 * 64 * (channel + 3 * image)."""
BOXES = [(10.0, 12.0, 20.0, 40.0), (61.0, 1.0, 64.0, 3.0)]
"""Left, top, right and bottom. The second box reaches the border, where it may be cut off."""
SEEDS = range(32)


@dataclass(frozen=True)
class Augmented:
    """Augmented crops, and how they were changed.

    A part of 60x60 pixels was cut out of 64x64 and resized, and the channels were put in another
    order.
    """

    images: Tensor
    boxes: Tensor
    height: int
    width: int
    top: int
    """The top row of the part that was cut out."""
    left: int
    """The left column of the part that was cut out."""
    channels: list[int]
    """The old number of each channel."""


def augmented(seed: int, protocol: Protocol) -> Augmented:
    """Return augmented crops; the values of the first pixel tell how they were changed."""
    boxes = torch.tensor([BOXES] * len(CROPS))
    images, moved = augment(CROPS, boxes, torch.Generator().manual_seed(seed), protocol)
    height, width = images.shape[2:]
    first_pixel = images[0, :, 0, 0].long()
    top, left = divmod(int(first_pixel[0]) % (64 * 64), 64)
    channels = (first_pixel // (64 * 64)).tolist()
    return Augmented(images, moved, height, width, top, left, channels)


def old_pixel(new: int, size: int, protocol: Protocol) -> int:
    """Return the old row or column that a new one is taken from.

    In the protocol "ours" it is the old pixel at the centre of the new pixel. In the published
    protocol the first and the last pixel stay the same.
    """
    if protocol == "ours":
        return floor((new + Fraction(1, 2)) * 60 / size)
    return floor(Fraction(new * (60 - 1), size - 1))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_every_pixel_is_what_plain_python_says(seed: int, protocol: Protocol) -> None:
    found = augmented(seed, protocol)
    rows = (0, 1, found.height // 2, found.height - 1)
    columns = (0, 1, found.width // 3, found.width - 1)
    for y, x in itertools.product(rows, columns):
        row = found.top + old_pixel(y, found.height, protocol)
        column = found.left + old_pixel(x, found.width, protocol)
        assert torch.equal(found.images[:, :, y, x], CROPS[:, found.channels, row, column])


@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_are_moved_clipped_and_resized(seed: int) -> None:
    found = augmented(seed, "ours")
    for moved, box in zip(found.boxes[0].tolist(), BOXES, strict=True):
        left, top, right, bottom = box
        expected = [
            clipped(left - found.left) * found.width / 60,
            clipped(top - found.top) * found.height / 60,
            clipped(right - found.left) * found.width / 60,
            clipped(bottom - found.top) * found.height / 60,
        ]
        assert moved == pytest.approx(expected)


def clipped(coordinate: float) -> float:
    """Return a coordinate, clipped to the part of 60 pixels that is kept."""
    return min(max(coordinate, 0), 60)


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_sides_are_50_to_70_pixels_and_independent(protocol: Protocol) -> None:
    samples = [augmented(seed, protocol) for seed in SEEDS]
    heights = [sample.height for sample in samples]
    widths = [sample.width for sample in samples]
    assert 50 <= min(heights + widths) < 54
    assert 66 < max(heights + widths) <= 70
    assert heights != widths


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_every_corner_and_order_of_channels_is_drawn(protocol: Protocol) -> None:
    samples = [augmented(seed, protocol) for seed in SEEDS]
    # A part of 60 pixels can begin at five of 64 pixels, and three channels have six orders.
    assert {sample.top for sample in samples} == {0, 1, 2, 3, 4}
    assert {sample.left for sample in samples} == {0, 1, 2, 3, 4}
    assert len({tuple(sample.channels) for sample in samples}) == 6


@pytest.mark.parametrize("seed", SEEDS)
def test_by_the_published_protocol_boxes_have_the_same_content(seed: int) -> None:
    left, top, right, bottom = (17, 9, 31, 50)
    images = torch.zeros(1, 3, 64, 64)
    images[:, :, top:bottom, left:right] = 1
    whole = (0, 0, 64, 64)
    boxes = torch.tensor([[(left, top, right, bottom), whole]], dtype=torch.float32)
    new, moved = augment(images, boxes, torch.Generator().manual_seed(seed), "paper")
    height, width = new.shape[2:]
    rows, columns = new[0, 0].nonzero(as_tuple=True)
    shown = [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]
    assert moved[0, 0].tolist() == pytest.approx(shown, abs=1)
    assert moved[0, 1].tolist() == pytest.approx([0, 0, width, height], abs=0.2)


def test_about_half_of_the_images_are_mirrored() -> None:
    found = flip_and_crop(IMAGES, generator(0), flip=True, crop=0)
    is_kept = (found == IMAGES).flatten(1).all(dim=1)
    is_mirrored = (found == IMAGES.flip(3)).flatten(1).all(dim=1)
    assert (is_kept ^ is_mirrored).all()
    # Of 40 images 20 are mirrored on average. The standard deviation is sqrt(10), so the bounds are
    # three standard deviations away.
    assert 10 <= int(is_mirrored.sum()) <= 30


def test_each_image_is_shifted_independently() -> None:
    images = torch.zeros(200, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 255
    found = flip_and_crop(images, generator(0), flip=False, crop=2)
    assert found.shape == images.shape
    pixels = (found[:, 0] == 255).nonzero()
    assert len(pixels) == 200, "no pixel is made or lost"
    # The middle of 9x9 pixels is (4, 4). It is shifted by up to two pixels to each side.
    expected = set(itertools.product(range(2, 7), range(2, 7)))
    assert {(y, x) for _, y, x in pixels.tolist()} == expected
