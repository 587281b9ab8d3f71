"""Digits on a canvas: bags against a rendering pixel by pixel, and the distribution of canvases."""

from typing import Any

import pytest
import torch
from scipy.stats import chisquare, pearsonr
from torch import Tensor

from milbench import generator
from milbench.contracts.bags import Bags
from milbench.data.labelled_images import LabelledImages
from milbench.families.image_task import DIGITS
from milbench.families.nested_digits import draw_canvases
from tests._helpers.tasks import loaded


def named_digits(count: int, side: int = 3) -> LabelledImages:
    """Return digits that can be told apart by their pixels.

    The pixels of digit n are the binary digits of n + 1. A 1 has the brightness 5; white is 8.
    """
    names = torch.arange(1, count + 1).unsqueeze(1)
    bits = (names >> torch.arange(side * side)) & 1
    pixels = (5 * bits).byte().view(count, 1, side, side)
    return LabelledImages(pixels, torch.arange(count) % DIGITS, white=8)


def rendered(
    digits: LabelledImages, index: list[int], boxes: Tensor, height: int, width: int
) -> Tensor:
    """Draw one canvas pixel by pixel."""
    canvas = torch.zeros(height, width)
    for n, (left, top, right, bottom) in zip(index, boxes.int().tolist(), strict=True):
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        for y in range(top, bottom):
            for x in range(left, right):
                canvas[y, x] += float(digits.pixels[n, 0, y - top, x - left]) / digits.white
    return canvas.clamp(max=1)


def truth(bags: Bags) -> tuple[Tensor, Tensor]:
    assert bags.truth is not None
    assert bags.truth.boxes is not None
    return bags.truth.classes, bags.truth.boxes


def random_canvases(digits: LabelledImages, per_bag: int) -> tuple[Tensor, Bags]:
    """Return the indices (25, M) of the M digits in each of 25 bags, and the bags."""
    rng = torch.Generator().manual_seed(per_bag)
    index = torch.randint(len(digits), (25, per_bag), generator=rng)
    return index, draw_canvases(digits, index, (6, 8), rng)


@pytest.mark.parametrize("per_bag", [1, 2, 5])
def test_canvases_are_what_a_loop_draws(per_bag: int) -> None:
    digits = named_digits(40)
    index, bags = random_canvases(digits, per_bag)
    _, boxes = truth(bags)
    _, channels, height, width = bags.instances.shape
    assert channels == 1
    for canvas, numbers, own_boxes in zip(bags.instances[:, 0], index, boxes, strict=True):
        expected = rendered(digits, numbers.tolist(), own_boxes, height, width)
        torch.testing.assert_close(canvas, expected)


@pytest.mark.parametrize("per_bag", [1, 2, 5])
def test_a_label_set_has_the_classes_of_the_digits(per_bag: int) -> None:
    digits = named_digits(40)
    index, bags = random_canvases(digits, per_bag)
    classes, _ = truth(bags)
    assert torch.equal(classes, digits.classes[index])
    for labels, own_classes in zip(bags.labels, classes.tolist(), strict=True):
        assert set(labels.nonzero().flatten().tolist()) == set(own_classes)


@pytest.mark.parametrize("per_bag", [2, 5])
def test_pixels_of_overlapping_digits_are_1_at_most(per_bag: int) -> None:
    """A lit pixel is 5 / 8, so two of them would be 10 / 8 together."""
    _, bags = random_canvases(named_digits(40), per_bag)
    overlapping = bags.instances[bags.instances > 5 / 8]
    assert len(overlapping)
    assert (overlapping == 1).all()


@pytest.fixture(scope="module")
def many_canvases() -> list[Bags]:
    """400 batches of 8 canvases of two digits of 3 pixels, with sides of 6 to 8 pixels."""
    digits = named_digits(10)
    rng = torch.Generator().manual_seed(0)
    index = torch.zeros(8, 2, dtype=torch.int64)
    return [draw_canvases(digits, index, (6, 8), rng) for _ in range(400)]


@pytest.mark.parametrize("axis", [pytest.param(2, id="height"), pytest.param(3, id="width")])
def test_sides_are_uniform_on_their_range(many_canvases: list[Bags], axis: int) -> None:
    sides = [bags.instances.shape[axis] for bags in many_canvases]
    counts = [sides.count(side) for side in (6, 7, 8)]
    assert sum(counts) == 400
    assert chisquare(counts).pvalue > 1e-4


def test_height_and_width_are_independent(many_canvases: list[Bags]) -> None:
    heights = [bags.instances.shape[2] for bags in many_canvases]
    widths = [bags.instances.shape[3] for bags in many_canvases]
    # The correlation of 400 independent pairs has the standard deviation 1 / sqrt(400).
    assert abs(pearsonr(heights, widths).statistic) < 4 / 400**0.5


@pytest.mark.parametrize(
    ("coordinate", "number_of_values"),
    [
        # A digit of three pixels can begin at six of eight pixels, and at four of six.
        pytest.param(0, 6, id="left"),
        pytest.param(1, 4, id="top"),
    ],
)
def test_corners_of_digits_are_uniform_on_their_range(
    many_canvases: list[Bags], coordinate: int, number_of_values: int
) -> None:
    """Only canvases of 6 rows and 8 columns are looked at."""
    corners = []
    for bags in many_canvases:
        if bags.instances.shape[2:] == (6, 8):
            _, boxes = truth(bags)
            corners.append(boxes[..., coordinate].flatten())
    counts = torch.cat(corners).long().bincount()
    assert len(counts) == number_of_values
    assert chisquare(counts.tolist()).pvalue > 1e-4


@pytest.fixture(scope="module")
def single_digits_on_canvases() -> Any:
    return loaded("extended-digits", limit=8, digits_per_bag=1)


def test_an_epoch_has_a_canvas_for_each_digit(single_digits_on_canvases: Any) -> None:
    batches = list(single_digits_on_canvases.train_batches(0, generator("a")))
    # There are 1,258 digits to train on: 39 batches of 32, and 10 more.
    assert [len(bags) for bags in batches] == [32] * 39 + [10]


def test_every_training_digit_is_used_once_an_epoch(single_digits_on_canvases: Any) -> None:
    shown = []
    for bags in single_digits_on_canvases.train_batches(0, generator("a")):
        boxes = bags.truth.boxes[:, 0].int().tolist()
        for canvas, (left, top, right, bottom) in zip(bags.instances[:, 0], boxes, strict=True):
            # Pixels of these digits count from 0 to 16.
            digit = (canvas[top:bottom, left:right] * 16).byte()
            shown.append(digit.numpy().tobytes())
    known = [digit.numpy().tobytes() for digit in single_digits_on_canvases.digits.pixels]
    assert shown != known, "in another order"
    assert sorted(shown) == sorted(known)
