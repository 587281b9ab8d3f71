"""Overlays: the classes of positions drawn over a picture, where colour is the class and opacity its probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from milbench._utils.palette import LINE, MUTED, PAPER, class_colours
from milbench.evaluation.localisation import grid_step
from milbench.inference.predict import Prediction, pixel_at

LONGER_SIDE = 800
"""Pictures are enlarged by a whole number so that their longer side comes near to this; none is shrunk here."""
DIMMED, STRENGTH = 0.6, 0.85
"""The brightness of the picture below, so that colours stand out, and the opacity of a class that is certain."""
PAD, GAP = 12, 22
"""Pixels around a caption, and between tiles."""


@dataclass(frozen=True, slots=True)
class CaptionLine:
    """A line of text below a picture; size is in pixels."""

    text: str
    size: int = 15
    colour: str = MUTED
    bold: bool = False


def enlargement(width: int, height: int, side: int = LONGER_SIDE) -> int:
    """Return by how much a picture is enlarged along each axis.

    Args:
        width: of the picture, in pixels.
        height: of the picture, in pixels.
        side: the length that the longer side shall come near to.

    Returns:
        The factor for both sides, a whole number and at least 1.
    """
    return max(round(side / max(width, height)), 1)


def enlarged(picture: Image.Image, factor: int) -> Image.Image:
    """Return the picture in mode RGB with its sides times `factor`; the pixels of small pictures stay visible."""
    size = (picture.width * factor, picture.height * factor)
    smooth = min(picture.size) > 40
    return picture.convert("RGB").resize(size, Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST)


def class_overlay(picture: Image.Image, found: Prediction, names: Sequence[str], factor: int) -> Image.Image:
    """Return the picture in a darker grey, and over it the most probable class of every position, background aside.

    Pixel (x, y) of the picture covers the square of side `factor` at (x, y) * factor. Each component that is read is
    named in its middle.

    Args:
        picture: the one that `found` was read in.
        found: what was read in it.
        names: C class names.
        factor: the enlargement.

    Returns:
        An image of mode RGB whose sides are those of the picture times `factor`.
    """
    base = DIMMED * np.asarray(enlarged(picture.convert("L"), factor), dtype=np.float64)
    rgb, opacity = position_colours(found, len(names), base.shape[0], base.shape[1], factor)
    blended = base + opacity[..., None] * (rgb - base)
    image = Image.fromarray(blended.round().astype(np.uint8))
    _name_components(image, found, names, factor)
    return image


def sensitivity_overlay(
    picture: Image.Image, found: Prediction, maps: Mapping[int, NDArray[np.float64]], names: Sequence[str], factor: int
) -> Image.Image:
    """Return the picture in a darker grey, and over each pixel the class that depends on it most; components are named.

    Args:
        picture: the one that `found` was read in.
        found: what was read in it.
        maps: for each class (H, W), the opacity of its colour, from 0 to 1.
        names: C class names.
        factor: the enlargement.

    Returns:
        An image of mode RGB whose sides are those of the picture times `factor`.
    """
    base = DIMMED * np.asarray(enlarged(picture.convert("L"), factor), dtype=np.float64)
    if maps:
        values = np.stack(list(maps.values()))
        strongest = np.array(list(maps))[values.argmax(axis=0)]
        rgb, opacity = _colours(len(names))[strongest], values.max(axis=0)
        rgb, opacity = (v.repeat(factor, axis=0).repeat(factor, axis=1) for v in (rgb, opacity))
        base = base + opacity[..., None] * (rgb - base)
    image = Image.fromarray(base.round().astype(np.uint8))
    _name_components(image, found, names, factor)
    return image


def glyph_map(found: Prediction, names: Sequence[str], size: tuple[int, int], factor: int) -> Image.Image:
    """Return the map alone, as in the paper's Figure 1: the class name at every position, background aside.

    Args:
        found: what was read in the picture.
        names: C class names.
        size: width and height of the picture, in pixels.
        factor: the enlargement.

    Returns:
        An image of mode RGB whose sides are `size` times `factor`.
    """
    image = Image.new("RGB", (size[0] * factor, size[1] * factor), PAPER)
    draw = ImageDraw.Draw(image)
    class_map, strength = (v.numpy() for v in found.class_map())
    ys, xs = (c.numpy() * factor for c in found.centres)
    step = min(_steps(found, factor))
    colours = _colours(len(names))
    for row, column in np.argwhere(class_map < len(names)):
        cls = class_map[row, column]
        paper = np.array(to_rgb(PAPER)) * 255
        colour = paper + (0.25 + 0.75 * strength[row, column]) * (0.82 * colours[cls] - paper)
        font = _font(_fitting(names[cls], step * 1.05), bold=True)
        where = (float(xs[column]), float(ys[row]))
        draw.text(where, names[cls], fill=tuple(colour.round().astype(int).tolist()), font=font, anchor="mm")
    draw.rectangle((0, 0, image.width - 1, image.height - 1), outline=LINE)
    return image


def position_colours(
    found: Prediction, classes: int, height: int, width: int, factor: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the colour (height, width, 3) from 0 to 255 and the opacity (height, width) of every pixel of an overlay.

    A pixel has the colour of the position whose centre is nearest, and none beyond the outermost positions.

    Args:
        found: what was read in the picture.
        classes: C, the background not counted.
        height: of the overlay, in pixels.
        width: of the overlay, in pixels.
        factor: pixels of the overlay for one of the picture.

    Returns:
        The colours (height, width, 3), from 0 to 255, and the opacities (height, width), from 0 to 1.
    """
    class_map, strength = (v.numpy() for v in found.class_map())
    ys, xs = (c.numpy() * factor for c in found.centres)
    step_y, step_x = _steps(found, factor)
    row, inside_y = _nearest(ys, step_y, height)
    column, inside_x = _nearest(xs, step_x, width)
    class_map, strength = class_map[row][:, column], strength[row][:, column]
    there = (class_map < classes) & inside_y[:, None] & inside_x
    colours = np.vstack([_colours(classes), np.zeros(3)])
    return colours[class_map], np.where(there, STRENGTH * strength, 0.0)


def captioned(image: Image.Image, lines: Sequence[CaptionLine], least: int = 360, indent: int = PAD) -> Image.Image:
    """Return the image with lines of text below it.

    Args:
        image: of any size.
        lines: they are cut where they are too long for the width.
        least: the least width of the result, in pixels.
        indent: pixels left of the text.

    Returns:
        An image of mode RGB, as wide as the image or `least`, whichever is more, and higher by the text.
    """
    width = max(image.width, least)
    heights = [round(line.size * 1.45) for line in lines]
    page = Image.new("RGB", (width, image.height + sum(heights) + 2 * PAD - 4), PAPER)
    page.paste(image, (0, 0))
    draw = ImageDraw.Draw(page)
    y = image.height + PAD - 4
    for line, height in zip(lines, heights, strict=True):
        font = _font(line.size, bold=line.bold)
        draw.text((indent, y), _cut(line.text, font, width - 2 * indent), fill=line.colour, font=font)
        y += height
    return page


def side_by_side(left: Image.Image, right: Image.Image, gap: int = 6) -> Image.Image:
    """Return two images side by side.

    Args:
        left: an image of any size.
        right: an image of any size.
        gap: pixels between the two.

    Returns:
        An image of mode RGB, as high as the higher of the two; the tops of both are aligned.
    """
    page = Image.new("RGB", (left.width + gap + right.width, max(left.height, right.height)), PAPER)
    page.paste(left, (0, 0))
    page.paste(right, (left.width + gap, 0))
    return page


def in_rows(tiles: Sequence[Image.Image], width: int, gap: int = GAP) -> Image.Image:
    """Return tiles in their order in rows that are at most `width` wide, unless one tile is wider.

    Args:
        tiles: images of any size.
        width: of the result, in pixels.
        gap: pixels between tiles.

    Returns:
        An image of mode RGB with all tiles, `gap` pixels apart and from the edges.
    """
    rows: list[list[Image.Image]] = []
    for tile in tiles:
        if rows and sum(t.width + gap for t in rows[-1]) + tile.width <= width - 2 * gap:
            rows[-1].append(tile)
        else:
            rows.append([tile])
    wide = max(sum(t.width + gap for t in row) + gap for row in rows)
    page = Image.new("RGB", (wide, sum(max(t.height for t in row) + gap for row in rows) + gap), PAPER)
    y = gap
    for row in rows:
        x = gap
        for tile in row:
            page.paste(tile, (x, y))
            x += tile.width + gap
        y += max(t.height for t in row) + gap
    return page


def _name_components(image: Image.Image, found: Prediction, names: Sequence[str], factor: int) -> None:
    """Write the class of each component that is read into its middle; the largest ones last, on top of others."""
    draw = ImageDraw.Draw(image)
    size = max(12, min(round(9 + 2.2 * factor), 32))  # an instance is a few dozen pixels of the picture
    edges = 0.45 * _colours(len(names))
    read_from = found.read_from
    ys, xs = found.centres
    for i in np.argsort(read_from.mass):
        cls = int(read_from.cls[i])
        x, y = pixel_at(read_from.x[i], xs) * factor, pixel_at(read_from.y[i], ys) * factor
        x, y = (min(max(v, size / 2), side - size / 2) for v, side in ((x, image.width), (y, image.height)))
        edge = tuple(edges[cls].astype(int).tolist())
        font, stroke = _font(size, bold=True), 2 + size // 24
        draw.text((x, y), names[cls], fill="white", font=font, anchor="mm", stroke_width=stroke, stroke_fill=edge)


def _colours(count: int) -> NDArray[np.float64]:
    """Return (count, 3), from 0 to 255."""
    return np.array([to_rgb(colour) for colour in class_colours(count)]) * 255


def _nearest(centres: NDArray[np.float64], step: float, size: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each of `size` pixels the index of the nearest of evenly spaced centres, and whether it is near."""
    place = np.floor((np.arange(size) + 0.5 - centres[0]) / step + 0.5).astype(np.int64)
    return place.clip(0, len(centres) - 1), (place >= 0) & (place < len(centres))


def _steps(found: Prediction, factor: int) -> tuple[float, float]:
    """Return the distance of neighbouring positions down and across; a map of one position fills its picture."""
    ys, xs = found.centres
    down, across = (grid_step(a, b, single=2 * float(a[0])) for a, b in ((ys, xs), (xs, ys)))
    return down * factor, across * factor


def _fitting(name: str, step: float) -> int:
    """Return the size of letters with which a name is as wide as a position, or as high."""
    return max(round(step / max(1.0, 0.62 * len(name))), 6)


@cache
def _font(size: int, *, bold: bool) -> ImageFont.FreeTypeFont:
    path = Path(get_data_path(), "fonts", "ttf", f"DejaVuSans{'-Bold' if bold else ''}.ttf")
    return ImageFont.truetype(str(path), size)  # Pillow 10.1 takes no Path


def _cut(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
