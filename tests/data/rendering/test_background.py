"""Walls and plates: their range, their kinds, and that the generator alone decides them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.data.rendering.background import add_plate, colour, paint_wall

Array = NDArray[np.float64]
SCALE = 12.0
LINE = 0.08
"""Step of the logarithm of the light, from a pixel to the next, that counts as a line and not as uneven light."""


def walls(count: int, side: int = 64) -> list[Array]:
    return [paint_wall(np.random.default_rng([2, n]), side, side, SCALE) for n in range(count)]


def test_a_wall_has_the_given_size_and_is_decided_by_the_generator() -> None:
    for width, height, scale in [(40, 30, 8.0), (7, 90, 30.0), (1, 1, 13.0)]:
        one, same, other = (paint_wall(np.random.default_rng(seed), width, height, scale) for seed in (3, 3, 4))
        assert one.shape == (height, width, 3)
        assert 0 <= one.min() <= one.max() <= 1
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)


def test_every_kind_of_wall_is_drawn() -> None:
    """By the lines in a wall: a plain one has none, boards have them along one axis, bricks along both.

    An edge of something else adds two lines at most, which is why boards are recognised by four. The upright joints of
    bricks end with their row: they cross about half of the wall, in several places.
    """
    kinds = dict.fromkeys(("plain", "lying boards", "standing boards", "bricks", "other"), 0)
    for wall in walls(300):
        light = np.log(wall.mean(axis=2) + 0.02)
        down, right = (np.abs(np.diff(light, axis=axis)) > LINE for axis in (0, 1))
        rows, columns = down.mean(axis=1), right.mean(axis=0)  # how much of the wall a line crosses, place by place
        if max(down.mean(), right.mean()) < 0.005:
            kinds["plain"] += 1
        elif (rows > 0.8).sum() >= 4 and ((columns > 0.25) & (columns < 0.75)).sum() >= 6:
            kinds["bricks"] += 1
        elif (rows > 0.8).sum() >= 4 and right.mean() < 0.01:
            kinds["lying boards"] += 1
        elif (columns > 0.8).sum() >= 4 and down.mean() < 0.01:
            kinds["standing boards"] += 1
        else:
            kinds["other"] += 1  # faint joints, or edges in front of boards
    assert min(kinds.values()) >= 5, kinds
    assert 12 <= kinds["bricks"] <= 300 * 0.15 + 15, kinds  # 15 % are bricks; edges beside boards look so now and then
    assert 20 <= kinds["lying boards"] <= 300 * 0.2 * 0.65 + 15, kinds  # 20 % are boards, 65 % of them lie
    assert 50 <= kinds["plain"] <= 300 * 0.65 * 0.45 + 25, kinds  # 65 % are neither, 45 % of all have no edge


def test_walls_are_dark_and_light() -> None:
    light = [wall.mean() for wall in walls(200, side=16)]
    assert min(light) < 0.15
    assert max(light) > 0.85
    assert 0.25 < np.median(light) < 0.5  # half of the colours are drawn from 0.05 to 0.4, half from 0.3 to 0.95


def test_colours_are_mostly_grey_or_brown_and_sometimes_blue() -> None:
    drawn = np.array([colour(np.random.default_rng([1, n])) for n in range(2000)])
    assert drawn.shape == (2000, 3)
    assert 0.01 <= drawn.min() <= drawn.max() <= 1
    red, _, blue = drawn.T
    saturation = 1 - drawn.min(axis=1) / drawn.max(axis=1)
    assert np.median(saturation) < 0.15
    assert 0.08 < (blue > 1.2 * red).mean() < 0.25  # 12 % by design, more or less blue; some of the others as well
    assert (red > 1.1 * blue).mean() > 0.2


@pytest.mark.parametrize("light", [0.1, 0.5, 0.8])
def test_a_colour_has_the_given_light(light: float) -> None:
    drawn = np.array([colour(np.random.default_rng([1, n]), light) for n in range(500)])
    assert drawn.mean() == pytest.approx(light, rel=0.02)
    assert np.quantile(np.abs(drawn.mean(axis=1) / light - 1), 0.9) < 0.1


def test_a_plate_hides_the_wall_and_leaves_it_elsewhere() -> None:
    wall = paint_wall(np.random.default_rng(0), 60, 40, SCALE)
    everywhere, nowhere = np.ones((40, 60)), np.zeros((40, 60))
    left = np.zeros((40, 60))
    left[:, :20] = 1
    reach = int(0.12 * SCALE + 4 * (0.05 * SCALE + 0.3)) + 2  # of a shadow: its shift, and four deviations of its blur
    hidden = []
    for seed in range(40):
        plated, other = (add_plate(np.random.default_rng(seed), w, everywhere, SCALE) for w in (wall, 1 - wall))
        np.testing.assert_allclose(plated, other, atol=1e-12)
        assert 0 <= plated.min() <= plated.max() <= 1
        assert np.array_equal(add_plate(np.random.default_rng(seed), wall, nowhere, SCALE), wall)
        half = add_plate(np.random.default_rng(seed), wall, left, SCALE)
        assert np.array_equal(half, add_plate(np.random.default_rng(seed), wall, left, SCALE))
        assert np.array_equal(half[:, 20 + reach :], wall[:, 20 + reach :])
        shadow = wall[:, 20:] - half[:, 20:]
        assert (shadow >= 0).all()  # a shadow takes light away
        hidden.append((float(plated.mean()), shadow.any()))
    assert {bool(cast) for _, cast in hidden} == {True, False}
    assert min(light for light, _ in hidden) < 0.3  # dark plates and light ones, none between
    assert max(light for light, _ in hidden) > 0.6
