from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from milbench.data.rendering import scene as scene_module
from milbench.data.rendering.scene import FONTS, LENGTHS, Scene, Style, arrange, draw_number, glyph, render_scene


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [render_scene(np.random.default_rng([7, n])) for n in range(40)]


def test_a_scene_is_decided_by_its_generator() -> None:
    one, same, other = (render_scene(np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(one.pixels, same.pixels)
    assert one.classes == same.classes
    assert one.pixels.shape != other.pixels.shape or not np.array_equal(one.pixels, other.pixels)


def test_boxes_are_tight_around_the_ink_and_inside_the_picture(scenes: list[Scene]) -> None:
    for scene in scenes:
        height, width, _ = scene.pixels.shape
        assert len(scene.classes) == len(scene.boxes) == len(scene.masks)
        for mask, (left, top, w, h) in zip(scene.masks, scene.boxes.astype(int), strict=True):
            assert 0 <= left < left + w <= width
            assert 0 <= top < top + h <= height
            inked = [(x, y) for y in range(height) for x in range(width) if mask[y, x] >= 0.25]
            assert (left, top) == (min(x for x, _ in inked), min(y for _, y in inked))
            assert (left + w - 1, top + h - 1) == (max(x for x, _ in inked), max(y for _, y in inked))


def test_the_pixels_show_a_digit_where_its_box_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """White ink on a black wall and a perfect camera: the light is inside the boxes, and reaches their sides."""
    monkeypatch.setattr(scene_module, "paint_wall", lambda rng, width, height, scale: np.zeros((height, width, 3)))
    monkeypatch.setattr(scene_module, "_plate", lambda *args: None)
    monkeypatch.setattr(scene_module, "_other_text", lambda *args: [])
    monkeypatch.setattr(scene_module, "photograph", lambda rng, picture, height: picture)
    for seed in range(12):
        scene = render_scene(np.random.default_rng([9, seed]))
        light = scene.pixels.max(axis=2)
        bright, lit = light >= 0.4 * light.max(), light >= 0.15 * light.max()
        inside = np.zeros_like(bright)
        for left, top, w, h in scene.boxes.astype(int):
            inside[top : top + h, left : left + w] = True
            digit = lit[top : top + h, left : left + w]
            assert all(side.any() for side in (digit[0], digit[-1], digit[:, 0], digit[:, -1]))
        assert not (bright & ~inside).any()


def test_ink_stands_out_from_what_is_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a camera by a sixth of full light at least, and after one in nearly every photograph by a twentieth."""

    def contrasts() -> list[float]:
        found = []
        for seed in range(60):
            scene = render_scene(np.random.default_rng([7, seed]))
            ink = scene.masks.max(axis=0)
            around = binary_dilation(ink > 0.02, iterations=4) & ~binary_dilation(ink > 0)
            light = scene.pixels.astype(float).mean(axis=2)
            found.append(abs(light[ink > 0.9].mean() - light[around].mean()))
        return found

    photographed = np.array(contrasts()) / 255
    assert photographed.min() > 0.02
    assert np.quantile(photographed, 0.1) > 0.05
    monkeypatch.setattr(scene_module, "photograph", lambda rng, picture, height: picture)
    assert min(contrasts()) > 1 / 6


def test_digits_are_read_from_left_to_right_or_from_the_top() -> None:
    for vertical in (False, True):
        style = Style("cmr10", 30, 0, 1, 0.1, (0, 0), vertical)
        rng = np.random.default_rng(0)
        places = arrange(style, [glyph(style, c) for c in "1807"], rng)
        along = [place[1 if vertical else 0] for place in places]
        assert along == sorted(along)
        for one, two in pairwise(places):
            start, extent = (1, 3) if vertical else (0, 2)
            assert one[start] + one[extent] < two[start] + 0.1 * 30


def test_numbers_have_the_lengths_of_svhn_and_no_leading_zero() -> None:
    rng = np.random.default_rng(1)
    numbers = [draw_number(rng) for _ in range(4000)]
    counts = np.bincount([len(number) for number in numbers], minlength=6)[1:]
    for count, share in zip(counts, LENGTHS, strict=True):
        assert count == pytest.approx(4000 * share, abs=4 * np.sqrt(4000 * share))
    assert sum(LENGTHS) == pytest.approx(1)
    assert all(number[0] for number in numbers)
    assert {digit for number in numbers for digit in number} == set(range(10))


@pytest.mark.parametrize("font", sorted(set(FONTS)))
def test_every_font_has_ten_different_digits(font: str) -> None:
    style = Style(font, 20, 0, 1, 0.1, (0, 0), False)
    drawn = [glyph(style, str(digit)) for digit in range(10)]
    assert all(36 <= image.height <= 56 for image in drawn)  # twice 20; the 4 of cmti10 goes below the line
    same_size = [np.asarray(image.resize((20, 40))) for image in drawn]
    distances = [np.abs(a.astype(int) - b).mean() for k, a in enumerate(same_size) for b in same_size[:k]]
    assert min(distances) > 8
