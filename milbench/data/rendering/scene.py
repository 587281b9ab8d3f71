"""Rendered scenes: a wall, sometimes a plate, a number on it, sometimes other text, with simulated camera effects.

Glyphs are drawn at twice the size and averaged down. Every random choice comes from the generator that is given, so a
scene is the same on every machine that has the same versions of Pillow, NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from milbench.data.rendering.background import Array, add_plate, paint_wall
from milbench.data.rendering.camera import photograph

FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono-Bold", "DejaVuSerif",
    "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic", "STIXGeneral", "STIXGeneralBol", "STIXGeneralBolIta", "cmb10",
    "cmr10", "cmss10", "cmss10", "cmti10", "cmtt10",
)  # fmt: skip
"""Fonts of matplotlib with lining digits; a name that is listed twice is drawn twice as often."""
LENGTHS = (0.15, 0.50, 0.26, 0.08, 0.01)
"""Shares of numbers with 1 to 5 digits, about as in SVHN."""
LETTERS = "ABCDEFHKLMNPRTUWXY"
"""Letters that do not resemble digits."""
COVERED = 0.25
"""Share of a pixel that a digit must cover for the pixel to be inside its box."""
GLYPH = 160
"""Height at which a digit is rasterised before it is scaled down, in pixels."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture of a house number with its truth.

    Args:
        pixels: (H, W, 3) uint8.
        classes: n digits in the order of reading.
        masks: (n, H, W) float64 in [0, 1], how much of each pixel each digit covers.
    """

    pixels: NDArray[np.uint8]
    classes: tuple[int, ...]
    masks: Array

    @property
    def boxes(self) -> Array:
        """The tight boxes (n, 4) of the digits, (left, top, width, height) in whole pixels."""
        return np.array([_box(mask) for mask in self.masks])


@dataclass(frozen=True, slots=True)
class Style:
    """The appearance and the places of the glyphs of a number.

    Args:
        font: one of `FONTS`.
        height: of a digit, in pixels of the picture.
        stroke: how much strokes are thickened, in pixels at a font size of 320.
        widening: factor on the width of a glyph.
        gap: between two glyphs, relative to the height.
        step: additional offset from one glyph to the next, to the right and down, relative to the height; (0, 0) for an
            ordinary number.
        vertical: whether the digits are below each other.
    """

    font: str
    height: float
    stroke: int
    widening: float
    gap: float
    step: tuple[float, float]
    vertical: bool


def render_scene(rng: Generator) -> Scene:
    """Return a random scene, decided by the generator."""
    digits = draw_number(rng)
    style = draw_style(rng, len(digits))
    glyphs = [glyph(style, str(digit)) for digit in digits]
    places = arrange(style, glyphs, rng)
    number = len(glyphs)
    for text, x, y, size in _other_text(rng, style, places):
        glyphs.append(glyph(style, text, size))
        places.append((x, y, glyphs[-1].width / 2, glyphs[-1].height / 2))
    view, (width, height) = _view(rng, style, places[:number])
    masks = np.array([_project(g, place, view, width, height) for g, place in zip(glyphs, places, strict=True)])
    wall = paint_wall(rng, width, height, style.height)
    plate = _plate(rng, style, places[:number], view, width, height)
    if plate is not None:
        wall = add_plate(rng, wall, plate, style.height)
    picture = _write(rng, wall, masks, number, style.height)
    return Scene(photograph(rng, picture, style.height), digits, masks[:number])


def draw_number(rng: Generator) -> tuple[int, ...]:
    """Return the digits of a random number: lengths as `LENGTHS`, first digits by Benford's law, others uniform."""
    benford = np.log10(1 + 1 / np.arange(1, 10))
    count = int(rng.choice(len(LENGTHS), p=LENGTHS)) + 1
    first = int(rng.choice(9, p=benford)) + 1
    return (first, *(int(d) for d in rng.integers(0, 10, count - 1)))


def draw_style(rng: Generator, digits: int) -> Style:
    """Return a random style for a number of so many digits."""
    way = rng.random()
    vertical = digits > 1 and way < 0.06
    step = (0.0, 0.0)
    if 0.06 <= way < 0.14:
        step = (rng.uniform(0, 0.1), rng.choice([-1, 1]) * rng.uniform(0.12, 0.5))
    return Style(
        font=str(rng.choice(FONTS)),
        height=float(np.clip(np.exp(rng.normal(np.log(27), 0.42)), 13, 90)),
        stroke=int(rng.choice([0, 0, 3, 6])),
        widening=float(rng.uniform(0.65, 1.15)),
        gap=float(rng.choice([rng.uniform(0.02, 0.14), rng.uniform(0.1, 0.4)], p=[0.75, 0.25])),
        step=step,
        vertical=vertical,
    )


def glyph(style: Style, text: str, size: float = 1.0) -> Image.Image:
    """Return a glyph as a grey image, white on black without a border, at twice its size in the picture.

    Args:
        style: the style of the number.
        text: one digit, or letters.
        size: relative to the digits of the number.

    Returns:
        An image of mode L, cropped to the glyph.
    """
    drawn = _drawn(style.font, text, style.stroke)
    scale = 2 * style.height * size / GLYPH
    return drawn.resize(
        (max(round(drawn.width * scale * style.widening), 2), max(round(drawn.height * scale), 3)),
        Image.Resampling.BOX,
    )


@lru_cache(maxsize=1024)
def _drawn(font: str, text: str, stroke: int) -> Image.Image:
    import matplotlib as mpl

    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    face = ImageFont.truetype(str(path), 2 * GLYPH, layout_engine=ImageFont.Layout.BASIC)
    left, top, right, bottom = face.getbbox("8", stroke_width=stroke)
    tall = bottom - top
    left, top, right, bottom = face.getbbox(text, stroke_width=stroke)
    image = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), text, fill=255, font=face, stroke_width=stroke)
    scale = GLYPH / tall
    return image.resize((max(round(image.width * scale), 1), max(round(image.height * scale), 1)), Image.Resampling.BOX)


Place = tuple[float, float, float, float]
"""Left, top, width and height of a glyph on the wall, in pixels, before the perspective of the camera."""


def arrange(style: Style, glyphs: Sequence[Image.Image], rng: Generator) -> list[Place]:
    """Return the places of the glyphs of a number, side by side or below each other, in the order of the glyphs.

    Args:
        style: the style of the number.
        glyphs: images at twice the size, as `glyph` returns them.
        rng: the generator, which moves each glyph a little.

    Returns:
        One place for each glyph, in pixels; the coordinates begin near (0, 0).
    """
    places, x, y = [], 0.0, 0.0
    for image in glyphs:
        w, h = image.width / 2, image.height / 2
        jitter = rng.normal(0, 0.02, 2) * style.height
        if style.vertical:
            places.append((x - w / 2 + jitter[0], y, w, h))
            y += h + style.gap * style.height
        else:
            places.append((x, y + style.height - h + jitter[1], w, h))
            x += w + (style.gap + style.step[0]) * style.height
            y += style.step[1] * style.height
    return places


def _other_text(rng: Generator, style: Style, places: Sequence[Place]) -> list[tuple[str, float, float, float]]:
    """Return text beside the number, if any: text, left, top, size relative to the number; never a digit close by."""
    left, top = min(p[0] for p in places), min(p[1] for p in places)
    right, bottom = max(p[0] + p[2] for p in places), max(p[1] + p[3] for p in places)
    height, kind = style.height, rng.random()
    if kind < 0.05:  # 12b
        return [(str(rng.choice(list(LETTERS))), right + 0.2 * height, bottom - 0.6 * height, 0.6)]
    if kind < 0.10:  # a street's name
        text = "".join(rng.choice(list(LETTERS), rng.integers(4, 9)))
        below = bottom + 0.25 * height if rng.random() < 0.7 else top - 0.5 * height
        return [(text, left + rng.uniform(-0.5, 0.2) * height, below, 0.25)]
    if kind < 0.16:  # the neighbour's number
        text = "".join(str(d) for d in rng.integers(0, 10, 2))
        far = height * rng.uniform(0.9, 1.4)
        x = right + far if rng.random() < 0.5 else left - far - 1.2 * height
        return [(text, x, top + rng.uniform(-0.3, 0.3) * height, rng.uniform(0.7, 1.1))]
    return []


def _view(rng: Generator, style: Style, places: Sequence[Place]) -> tuple[Array, tuple[int, int]]:
    """Return the perspective and the size of the picture, which shows the whole number and some of its surroundings.

    Args:
        rng: the generator.
        style: the style of the number.
        places: of the digits.

    Returns:
        The homogeneous map (3, 3) from pixels of the wall to pixels of the picture, and (width, height) of the picture.
    """
    corners = np.array([(x + a * w, y + b * h, 1) for x, y, w, h in places for a in (0, 1) for b in (0, 1)]).T
    middle, extent = corners[:2].mean(axis=1), np.ptp(corners[:2], axis=1).max()
    angle = rng.normal(0, np.radians(12 if rng.random() < 0.12 else 3.5))
    slant = rng.normal(0, 0.09)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ [[1, slant], [0, 1]]
    view = np.eye(3)
    view[:2, :2], view[:2, 2] = turn, -turn @ middle
    view = np.array([[1, 0, 0], [0, 1, 0], [*(rng.normal(0, 0.12, 2) / extent), 1]]) @ view
    seen = (view @ corners)[:2] / (view @ corners)[2]
    margins = style.height * np.maximum(rng.gamma(2.2, 0.28, 4), 0.08)
    start = seen.min(axis=1) - margins[:2]
    size = np.ceil(seen.max(axis=1) + margins[2:] - start)
    shift = np.array([[1, 0, -start[0]], [0, 1, -start[1]], [0, 0, 1]])
    return shift @ view, (int(size[0]), int(size[1]))


def _project(image: Image.Image, place: Place, view: Array, width: int, height: int) -> Array:
    """Return how much of each pixel (height, width) of the picture is covered by an image at a place of the wall."""
    on_wall = np.array([[place[2] / image.width, 0, place[0]], [0, place[3] / image.height, place[1]], [0, 0, 1]])
    back = np.linalg.inv(np.diag([2.0, 2.0, 1.0]) @ view @ on_wall)
    coefficients = (back / back[2, 2]).ravel()[:8].tolist()
    drawn = image.transform(
        (2 * width, 2 * height), Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BILINEAR
    )
    return np.asarray(drawn.reduce(2), dtype=np.float64) / 255


def _plate(rng: Generator, style: Style, places: Sequence[Place], view: Array, width: int, height: int) -> Array | None:
    """Return how much of each pixel (height, width) is covered by a plate behind the number, None without a plate."""
    if rng.random() < 0.45:
        return None
    margin = style.height * rng.uniform(0.12, 0.5, 2)
    left, top = min(p[0] for p in places) - margin[0], min(p[1] for p in places) - margin[1]
    right, bottom = max(p[0] + p[2] for p in places) + margin[0], max(p[1] + p[3] for p in places) + margin[1]
    w, h = right - left, bottom - top
    image = Image.new("L", (max(round(2 * w), 2), max(round(2 * h), 2)))
    draw, corner = ImageDraw.Draw(image), (0, 0, image.width - 1, image.height - 1)
    shape = rng.random()
    if shape < 0.15:
        w, h, left, top = 1.35 * w, 1.35 * h, left - 0.175 * w, top - 0.175 * h
        draw.ellipse(corner, fill=255)
    else:
        radius = 0 if shape < 0.6 else rng.uniform(0.05, 0.5) * min(image.size)
        draw.rounded_rectangle(corner, radius, fill=255)
    return _project(image, (left, top, w, h), view, width, height)


def _write(rng: Generator, wall: Array, masks: Array, number: int, height: float) -> Array:
    """Return the wall (H, W, 3) with all glyphs on it, in a colour of enough contrast to what is behind the number.

    Args:
        rng: the generator.
        wall: (H, W, 3), with the plate.
        masks: (n, H, W), how much of each pixel each glyph covers; the digits of the number come first.
        number: the number of digits.
        height: of a digit, in pixels.
    """
    from scipy.ndimage import gaussian_filter, shift

    ink = masks.max(axis=0)
    behind = (wall * masks[:number].sum(axis=0)[..., None]).sum(axis=(0, 1)) / masks[:number].sum()
    light = float(behind.mean())
    contrast = 0.22 + 0.68 * rng.beta(1.4, 1.4)
    brighter = light < 0.5 if rng.random() < 0.8 else light + contrast < 0.95
    level = np.clip(light + (contrast if brighter else -contrast), 0.02, 1)
    if abs(level - light) < 0.18:
        level = np.clip(light - (contrast if brighter else -contrast), 0.02, 1)
    tint = rng.normal(0, rng.choice([0.015, 0.015, 0.1]), 3)
    colour = np.clip(level + tint - tint.mean(), 0, 1)
    if rng.random() < 0.35:  # letters that stand out from the wall
        cast = gaussian_filter(shift(ink, rng.uniform(-0.1, 0.1, 2) * height, order=1), 0.03 * height + 0.3)
        wall = wall * (1 - rng.uniform(0.2, 0.6) * cast[..., None])
    rows = np.linspace(-1, 1, wall.shape[0])[:, None, None]
    shaded = np.clip(colour * (1 + rng.normal(0, 0.08) * rows), 0, 1)
    written: Array = wall + ink[..., None] * (shaded - wall)
    return written


def _box(mask: Array) -> tuple[float, float, float, float]:
    covered = mask >= min(COVERED, float(mask.max()) / 2)
    rows, columns = np.flatnonzero(covered.any(axis=1)), np.flatnonzero(covered.any(axis=0))
    return columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1
