"""Pictures of what a network finds: colour is the class of a position or pixel, opacity its probability or weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from matplotlib.colors import to_rgb
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from milbench._utils.palette import INK, LINE, MUTED, PAPER, class_colours
from milbench.evaluation.localisation import grid_step
from milbench.inference.load import Trained
from milbench.inference.predict import Prediction, label_set_text, pixel_at, reading_text, sensitivities

LONGER_SIDE = 800
"""Pictures are enlarged by a whole number so that their longer side comes near to this; none is shrunk here."""
DIMMED, STRENGTH = 0.6, 0.85
"""The brightness of the picture below, so that colours stand out, and the opacity of a class that is certain."""
PAD, GAP, PAIR_GAP, LEAST_WIDTH = 12, 22, 6, 360
"""Pixels around a caption, between tiles, between the two pictures of a tile, and of a captioned picture at least."""
RIGHT, WRONG = "#0f7b5c", "#c23a4b"
"""The colours of what is read rightly and wrongly."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CaptionLine:
    """A line of text below a picture; size is in pixels."""

    text: str
    size: int = 15
    colour: str = MUTED
    bold: bool = False


def prediction_page(model: Trained, image: Image.Image, found: Prediction) -> Image.Image:
    """Return a picture in which every position has the colour of its class, with its caption."""
    overlay = class_overlay(image, found, model.task.class_names, enlargement(*image.size))
    return captioned(overlay, caption_lines(model, found))


def sensitivity_page(model: Trained, image: Image.Image, found: Prediction) -> Image.Image:
    """Return a picture in which every pixel has the colour of the class that depends on it most, with its caption."""
    names, factor = model.task.class_names, enlargement(*image.size)
    rgb, opacity = np.zeros((1, 1, 3)), np.zeros((1, 1))
    if maps := sensitivities(model, image, found):
        values = np.stack(list(maps.values()))
        strongest = np.array(list(maps))[values.argmax(axis=0)]
        colours = _colours(len(names))[strongest], values.max(axis=0)
        rgb, opacity = (v.repeat(factor, axis=0).repeat(factor, axis=1) for v in colours)
    meaning = CaptionLine("colour: the class that depends most on a pixel; strength: how much it depends", 13)
    heat = _laid_over(image, found, names, factor, rgb, opacity)
    return captioned(heat, [*caption_lines(model, found), meaning])


def caption_lines(model: Trained, found: Prediction, truth: str | None = None, also: str = "") -> list[CaptionLine]:
    """Return the caption of a picture: what is read, beside the true string if known, the label set, the decoder."""
    read = reading_text(model, found)
    verdict, colour = "", INK
    if truth is not None:
        verdict, colour = ("  ✓", RIGHT) if read == truth else (f"  ✗ {truth}", WRONG)
    sets = f"label set {label_set_text(model, found.labels)}, probability {np.exp(found.log_prob):.2g}"
    how = "  ·  ".join([*([also] if also else []), f"read by {found.decoder}"])
    head = CaptionLine(f"{read or 'nothing'}{verdict}", 24, colour, bold=True)
    return [head, CaptionLine(sets, 13), CaptionLine(how, 13)]


def enlargement(width: int, height: int, side: int = LONGER_SIDE) -> int:
    """Return the whole number by which a picture is enlarged, so that its longer side comes near to `side`."""
    return max(round(side / max(width, height)), 1)


def enlarged(picture: Image.Image, factor: int) -> Image.Image:
    """Return the picture in mode RGB with its sides times `factor`; the pixels of small pictures stay visible."""
    size = (picture.width * factor, picture.height * factor)
    smooth = min(picture.size) > 40
    return picture.convert("RGB").resize(size, Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST)


def class_overlay(picture: Image.Image, found: Prediction, names: Sequence[str], factor: int) -> Image.Image:
    """Return the picture in a darker grey, and over it the most probable class of every position, background aside.

    Pixel (x, y) of the picture covers the square of side `factor` at (x, y) * factor. It has the colour of the position
    whose centre is nearest, and none beyond the outermost positions.
    """
    class_map, strength = (v.numpy() for v in found.class_map())
    ys, xs = (c.numpy() * factor for c in found.centres)
    step_y, step_x = _steps(found, factor)
    row, inside_y = _nearest(ys, step_y, picture.height * factor)
    column, inside_x = _nearest(xs, step_x, picture.width * factor)
    class_map, strength = class_map[row][:, column], strength[row][:, column]
    there = (class_map < len(names)) & inside_y[:, None] & inside_x
    colours = np.vstack([_colours(len(names)), np.zeros(3)])
    return _laid_over(picture, found, names, factor, colours[class_map], np.where(there, STRENGTH * strength, 0.0))


def glyph_map(found: Prediction, names: Sequence[str], size: tuple[int, int], factor: int) -> Image.Image:
    """Return the map of a picture of `size` alone, as in the paper's Figure 1: the class name at every position."""
    image = Image.new("RGB", (size[0] * factor, size[1] * factor), PAPER)
    draw = ImageDraw.Draw(image)
    class_map, strength = (v.numpy() for v in found.class_map())
    ys, xs = (c.numpy() * factor for c in found.centres)
    step, colours, paper = min(_steps(found, factor)), _colours(len(names)), np.array(to_rgb(PAPER)) * 255
    for row, column in np.argwhere(class_map < len(names)):
        cls = class_map[row, column]
        colour = paper + (0.25 + 0.75 * strength[row, column]) * (0.82 * colours[cls] - paper)
        letters = max(round(step * 1.05 / max(1.0, 0.62 * len(names[cls]))), 6)  # as wide as a position, or as high
        where = (float(xs[column]), float(ys[row]))
        fill = tuple(colour.round().astype(int).tolist())
        draw.text(where, names[cls], fill=fill, font=_font(letters, bold=True), anchor="mm")
    draw.rectangle((0, 0, image.width - 1, image.height - 1), outline=LINE)
    return image


def captioned(image: Image.Image, lines: Sequence[CaptionLine], indent: int = PAD) -> Image.Image:
    """Return the image with lines of text below it, cut where they are too long for its width."""
    width = max(image.width, LEAST_WIDTH)
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


def side_by_side(left: Image.Image, right: Image.Image) -> Image.Image:
    """Return two images side by side, their tops aligned."""
    page = Image.new("RGB", (left.width + PAIR_GAP + right.width, max(left.height, right.height)), PAPER)
    page.paste(left, (0, 0))
    page.paste(right, (left.width + PAIR_GAP, 0))
    return page


def in_rows(tiles: Sequence[Image.Image], width: int) -> Image.Image:
    """Return tiles in their order in rows that are at most `width` wide, unless one tile is wider."""
    rows: list[list[Image.Image]] = []
    for tile in tiles:
        if rows and sum(t.width + GAP for t in rows[-1]) + tile.width <= width - 2 * GAP:
            rows[-1].append(tile)
        else:
            rows.append([tile])
    wide = max(sum(t.width + GAP for t in row) + GAP for row in rows)
    page = Image.new("RGB", (wide, sum(max(t.height for t in row) + GAP for row in rows) + GAP), PAPER)
    y = GAP
    for row in rows:
        x = GAP
        for tile in row:
            page.paste(tile, (x, y))
            x += tile.width + GAP
        y += max(t.height for t in row) + GAP
    return page


def _laid_over(
    picture: Image.Image, found: Prediction, names: Sequence[str], factor: int, rgb: Floats, opacity: Floats
) -> Image.Image:
    """Return colours (height, width, 3) from 0 to 255 over the darkened picture, with the name of each component."""
    base = DIMMED * np.asarray(enlarged(picture.convert("L"), factor), dtype=np.float64)
    image = Image.fromarray((base + opacity[..., None] * (rgb - base)).round().astype(np.uint8))
    draw = ImageDraw.Draw(image)
    size = max(12, min(round(9 + 2.2 * factor), 32))  # an instance is a few dozen pixels of the picture
    font, stroke = _font(size, bold=True), 2 + size // 24
    edges, read_from = 0.45 * _colours(len(names)), found.read_from
    ys, xs = found.centres
    for i in np.argsort(read_from.mass):  # the largest ones last, on top of others
        cls = int(read_from.cls[i])
        x, y = pixel_at(read_from.x[i], xs) * factor, pixel_at(read_from.y[i], ys) * factor
        x, y = (min(max(v, size / 2), side - size / 2) for v, side in ((x, image.width), (y, image.height)))
        edge = tuple(edges[cls].astype(int).tolist())
        draw.text((x, y), names[cls], fill="white", font=font, anchor="mm", stroke_width=stroke, stroke_fill=edge)
    return image


def _colours(count: int) -> Floats:
    """Return (count, 3), from 0 to 255."""
    return np.array([to_rgb(colour) for colour in class_colours(count)]) * 255


def _nearest(centres: Floats, step: float, size: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each of `size` pixels the index of the nearest of evenly spaced centres, and whether it is near."""
    place = np.floor((np.arange(size) + 0.5 - centres[0]) / step + 0.5).astype(np.int64)
    return place.clip(0, len(centres) - 1), (place >= 0) & (place < len(centres))


def _steps(found: Prediction, factor: int) -> tuple[float, float]:
    """Return the distance of neighbouring positions down and across; a map of one position fills its picture."""
    ys, xs = found.centres
    down, across = (grid_step(a, b, single=2 * float(a[0])) for a, b in ((ys, xs), (xs, ys)))
    return down * factor, across * factor


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
