"""Photographs of simple pictures, against what can be computed of them by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.data.rendering.camera import photograph

Array = NDArray[np.float64]
SHARP = 1.0
"""A height of digits so small that blur, which is proportional to it, is less than a pixel."""


def flat(light: float) -> Array:
    return np.full((48, 64, 3), light)


def photographs(picture: Array, height: float, count: int) -> Array:
    """Return (count, H, W, 3), from 0 to 255."""
    return np.array([photograph(np.random.default_rng([3, n]), picture, height) for n in range(count)], dtype=float)


def test_a_photograph_has_the_same_shape_and_is_decided_by_the_generator() -> None:
    picture = np.random.default_rng(0).uniform(0, 1, (31, 50, 3))
    before = picture.copy()
    one, same, other = (photograph(np.random.default_rng(seed), picture, 20) for seed in (5, 5, 6))
    assert one.shape == (31, 50, 3)
    assert one.dtype == np.uint8
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert np.array_equal(picture, before)


def test_black_and_white_become_what_the_exposure_makes_of_them() -> None:
    """Black is drawn from 0 to 0.15 of full light, white from 0.6 to 1.1, of which what is above 1 is cut off."""
    black, middle, white = (photographs(flat(light), 20, 200).mean(axis=(1, 2, 3)) for light in (0.0, 0.5, 1.0))
    assert black.mean() == pytest.approx(255 * 0.075, abs=3)
    expected = (1**2 - 0.6**2) / 2 / 0.5 + 0.1 / 0.5  # the mean of min(u, 1) for u uniform on 0.6..1.1
    assert white.mean() == pytest.approx(255 * expected, abs=6)  # a tint of about 4 % is cut off as well
    assert (black < middle).all()
    assert (middle < white).all()
    assert np.ptp(black) > 20
    assert np.ptp(white) > 80


def test_a_flat_picture_stays_flat_but_for_noise() -> None:
    """Noise has a deviation of 0 to 0.02 of full light, 5.1 of 255; compression smooths some of it away."""
    deviation = photographs(flat(0.5), 20, 200).std(axis=(1, 2)).mean(axis=1)
    assert deviation.max() < 5.1
    assert deviation.min() < 0.3
    assert np.quantile(deviation, 0.9) > 1.5


@pytest.mark.parametrize("height", [20.0, 50.0])
def test_two_strokes_of_a_digit_do_not_run_together(height: float) -> None:
    """Dark strokes, a tenth of the height wide, are two tenths apart: what is between them stays lighter than they."""
    wide, middle = round(3 * height), round(1.5 * height)
    picture = np.full((round(1.5 * height), wide, 3), 0.9)
    lefts = [middle - round(0.2 * height), middle + round(0.1 * height)]
    stroke = round(0.1 * height)
    for left in lefts:
        picture[:, left : left + stroke] = 0.1
    seen = photographs(picture, height, 150).mean(axis=(1, 3))
    around = (seen[:, : stroke * 4].mean(axis=1) + seen[:, -stroke * 4 :].mean(axis=1)) / 2
    between = seen[:, middle - stroke // 2 : middle + stroke // 2].mean(axis=1)
    strokes = np.max([seen[:, left : left + stroke].mean(axis=1) for left in lefts], axis=0)
    assert (around - strokes > 255 * 0.1).all()
    assert ((between - strokes) / (around - strokes) > 0.15).all()
    assert np.median((between - strokes) / (around - strokes)) > 0.7


def test_blur_grows_with_the_height_and_keeps_the_mean() -> None:
    """An edge between black and white: how many columns are neither."""
    picture = flat(0.0)
    picture[:, 32:] = 1
    widths = []
    for height in (SHARP, 20, 60):
        seen = photographs(picture, height, 100).mean(axis=(1, 3))
        low, high = seen[:, :4].mean(axis=1, keepdims=True), seen[:, -4:].mean(axis=1, keepdims=True)
        share = (seen - low) / (high - low)
        widths.append(((share > 0.1) & (share < 0.9)).sum(axis=1).mean())
    assert widths[0] < 1
    assert widths[0] < widths[1] < widths[2]
    # Half of the picture is white, whatever the blur: compare with the same exposures of no edge at all.
    linear = photographs(picture, 20, 100).mean(axis=(1, 2, 3))
    ends = (
        photographs(flat(0.0), 20, 100).mean(axis=(1, 2, 3)) + photographs(flat(1.0), 20, 100).mean(axis=(1, 2, 3))
    ) / 2
    assert np.abs(linear - ends).mean() < 6


def test_compression_drops_fine_colour_and_keeps_fine_light() -> None:
    """JPEG halves the resolution of colour: a chessboard of single pixels loses its hue, not its light."""
    odd = (np.add(*np.mgrid[:32, :32]) % 2).astype(float)
    light = np.repeat((0.3 + 0.4 * odd)[..., None], 3, axis=2)
    # Red goes up where green goes down, in the proportion that keeps the luma 0.299 R + 0.587 G + 0.114 B.
    swing = 0.15 * (2 * odd - 1)
    hue = np.stack([0.5 + swing * 0.587 / 0.299, 0.5 - swing, np.full_like(odd, 0.5)], axis=2)
    steps = []
    for picture in (light, hue):
        seen = photographs(picture, SHARP, 100)
        steps.append(seen[:, odd == 1].mean(axis=1) - seen[:, odd == 0].mean(axis=1))
    assert np.median(steps[0]) > 255 * 0.4 * 0.5
    assert np.abs(steps[1][:, 0] - steps[1][:, 1]).max() < 2
