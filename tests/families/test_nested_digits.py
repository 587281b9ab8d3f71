"""Digits nested on a canvas: bags against a naive rendering, and what every epoch and every seed must keep."""

import pytest
import torch
from torch import Tensor

from milbench import generator
from milbench.contracts.bags import Bags
from milbench.data.labelled_images import LabelledImages
from milbench.families.image_task import DIGITS
from milbench.families.nested_digits import draw_canvases
from tests._helpers.tasks import loaded


def named_digits(count: int, side: int = 3) -> LabelledImages:
    """Digits that can be told apart by their pixels: number n has the binary digits of n + 1 for pixels, times 5."""
    bits = (torch.arange(1, count + 1).unsqueeze(1) >> torch.arange(side * side)) & 1
    return LabelledImages(
        (bits * 5).byte().view(count, 1, side, side), torch.arange(count) % DIGITS, white=8
    )


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


@pytest.mark.parametrize("per_bag", [1, 2, 5])
def test_canvases_are_what_a_loop_draws(per_bag: int) -> None:
    digits = named_digits(40)
    rng = torch.Generator().manual_seed(per_bag)
    index = torch.randint(40, (25, per_bag), generator=rng)
    bags = draw_canvases(digits, index, (6, 8), rng)
    classes, boxes = truth(bags)
    _, channels, height, width = bags.instances.shape
    assert (channels, len(bags)) == (1, 25)
    for b in range(25):
        torch.testing.assert_close(
            bags.instances[b, 0], rendered(digits, index[b].tolist(), boxes[b], height, width)
        )
        assert classes[b].tolist() == digits.classes[index[b]].tolist()
        assert set(bags.labels[b].nonzero().flatten().tolist()) == set(classes[b].tolist())
    overlapping = bags.instances[bags.instances > 5 / 8]
    assert (
        per_bag == 1 or (overlapping == 1).any()
    )  # two lit pixels add to more than 1 and are clamped


def test_sizes_and_places_cover_their_whole_range_uniformly() -> None:
    digits, rng = named_digits(10), torch.Generator().manual_seed(0)
    drawn = [
        draw_canvases(digits, torch.zeros(8, 2, dtype=torch.int64), (6, 8), rng) for _ in range(400)
    ]
    heights, widths = zip(*(bags.instances.shape[2:] for bags in drawn), strict=True)
    offsets = [
        truth(bags)[1][..., :2].reshape(-1, 2)
        for bags in drawn
        if bags.instances.shape[2:] == (6, 8)
    ]
    for sides in (heights, widths):
        assert [sides.count(side) for side in (6, 7, 8)] == pytest.approx(
            [400 / 3] * 3, abs=4 * (400 * 2 / 9) ** 0.5
        )
    assert abs(float(torch.corrcoef(torch.tensor([heights, widths]).float())[0, 1])) < 4 / 400**0.5
    lefts, tops = torch.cat(offsets).long().unbind(dim=1)
    for values, places in ((lefts, 6), (tops, 4)):
        counts = values.bincount()
        assert len(counts) == places
        expected = len(values) / places
        assert (
            float(((counts - expected) ** 2 / expected).sum()) < 30
        )  # chi-square, 5 degrees of freedom at most


def test_every_training_digit_is_used_once_an_epoch() -> None:
    problem = loaded("extended-digits", limit=8, digits_per_bag=1)
    batches = list(problem.train_batches(0, generator("a")))
    assert [len(bags) for bags in batches] == [32] * 39 + [10]
    drawn = []
    for bags in batches:
        boxes = bags.truth.boxes[:, 0].int().tolist()
        for canvas, (left, top, right, bottom) in zip(bags.instances[:, 0], boxes, strict=True):
            drawn.append((canvas[top:bottom, left:right] * 16).byte().numpy().tobytes())
    pixels = [digit.numpy().tobytes() for digit in problem.digits.pixels]
    assert drawn != pixels
    assert sorted(drawn) == sorted(pixels)
