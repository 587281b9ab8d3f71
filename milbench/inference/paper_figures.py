"""Figures 1, 2 and 4 of X.-L. Li, arXiv:1811.12346, drawn again from a trained network and the test data of its task.

A figure is a page of tiles: a picture, beside it what the network detects in it, and below both what it reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from PIL import Image

from milbench._utils.images import open_image
from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.decoder import Decoder
from milbench.errors import UsageError
from milbench.inference.load import Trained
from milbench.inference.overlay import (
    GAP,
    PAD,
    RIGHT,
    WRONG,
    CaptionLine,
    caption_lines,
    captioned,
    class_overlay,
    enlarged,
    enlargement,
    glyph_map,
    in_rows,
    side_by_side,
)
from milbench.inference.predict import label_set_text, notes, predict, read_picture

CONTENT = {"1": "house numbers", "2": "digits on canvases", "4": "house numbers"}
"""What each figure shows."""
PICTURES = 8
"""How many pictures Figure 4 shows."""
DIGIT_SIDE = 112
"""Pixels of a digit's side in Figure 2, about."""
PAGE_WIDTH = 1560
"""Of a figure, in pixels."""


class PaperTask(Protocol):
    """A task whose test data fill figures of arXiv:1811.12346."""

    figures: tuple[str, ...]
    """Their numbers: "1" and "2" are made of bags, "4" of pictures."""

    def figure_bags(self, number: str, rng: torch.Generator) -> list[Bags]:
        """Return the test bags of a figure with their truth, drawn by `rng`; called after `prepare`."""
        ...

    def figure_pictures(self, data_dir: Path | None) -> list[tuple[Path, tuple[int, ...]]]:
        """For Figure 4: return the files of whole test pictures, with the classes in each in the order of reading."""
        ...


def draw_figure(
    number: str, model: Trained, seed: int, data_dir: Path | None, decoder: Decoder | None, scale: float = 1.0
) -> tuple[Image.Image, list[str]]:
    """Return figure "1", "2" or "4" for a trained network in mode RGB, and notes for its reader, a line each.

    `seed` draws the test pictures; those of Figure 4 are read at a multiple of their size, `scale`.

    Raises:
        UsageError: the task has no data for this figure, or its data are missing.
    """
    task, rng = cast("PaperTask", model.task), generator("figure", number, seed)
    if number not in getattr(task, "figures", ()):
        raise UsageError(f"figure {number} shows {CONTENT[number]}, which the task of {model.cell} does not have")
    remarks = [*_prepare(model, data_dir), *notes(model)]
    if number == "4":
        tiles = _picture_tiles(model, task.figure_pictures(data_dir), rng, decoder, scale)
    else:
        tile = {"1": _crop_tile, "2": _canvas_tile}[number]
        tiles = [tile(model, bags, n, decoder) for bags in task.figure_bags(number, rng) for n in range(len(bags))]
    page = in_rows(tiles, PAGE_WIDTH)
    foot = CaptionLine(f"{model.name}, cell {model.cell.id}; test pictures drawn with seed {seed}", 14)
    return captioned(page, [foot], indent=GAP + PAD), remarks


def _prepare(model: Trained, data_dir: Path | None) -> list[str]:
    """Load the test data; return a note if they are not those that the cell was tested on."""
    here = model.task.check_data(data_dir)
    model.task.prepare(data_dir, torch.device("cpu"))
    if here == model.cell.data:
        return []
    return [f"note: these are other data than the cell's ({here} here, {model.cell.data} there)"]


def _crop_tile(model: Trained, bags: Bags, n: int, decoder: Decoder | None) -> Image.Image:
    found = predict(model, bags.instances[n], decoder)
    crop = model.task.picture_from(bags.instances[n])
    factor = enlargement(*crop.size, side=350)
    names = model.task.class_names
    pair = side_by_side(enlarged(crop, factor), glyph_map(found, names, crop.size, factor))
    truth = bags.truth.classes[n].tolist() if bags.truth else []
    return captioned(pair, caption_lines(model, found, "".join(names[c] for c in truth if c >= 0)))


def _canvas_tile(model: Trained, bags: Bags, n: int, decoder: Decoder | None) -> Image.Image:
    canvas = model.task.picture_from(bags.instances[n])
    found = predict(model, bags.instances[n], decoder)
    if bags.truth is None or bags.truth.boxes is None:
        raise UsageError(f"{model.cell.task} has no boxes of its digits, which figure 2 is scaled by")
    _, top, _, bottom = bags.truth.boxes[n, 0].tolist()
    factor = max(round(DIGIT_SIDE / (bottom - top)), 1)
    pair = side_by_side(enlarged(canvas, factor), class_overlay(canvas, found, model.task.class_names, factor))
    read, true = (label_set_text(model, labels) for labels in (found.labels, bags.labels[n]))
    right = read == true
    head = CaptionLine(f"{read}{'  ✓' if right else f'  ✗ {true}'}", 20, RIGHT if right else WRONG, bold=True)
    size = f"{canvas.width}x{canvas.height} pixels, probability of the label set {np.exp(found.log_prob):.2g}"
    return captioned(pair, [head, CaptionLine(size, 13)])


def _picture_tiles(
    model: Trained,
    known: list[tuple[Path, tuple[int, ...]]],
    rng: torch.Generator,
    decoder: Decoder | None,
    scale: float,
) -> list[Image.Image]:
    drawn = torch.randperm(len(known), generator=rng)[:PICTURES].tolist()
    pictures = sorted(((open_image(known[n][0]), known[n][1]) for n in drawn), key=lambda entry: entry[0].width)
    widest = pictures[-1][0].width
    tiles = []
    for whole, classes in pictures:
        picture, found = read_picture(model, whole, scale, decoder)
        width = round(200 + 140 * whole.width / widest)
        factor = enlargement(*picture.size)
        names = model.task.class_names
        images = (enlarged(picture, factor), class_overlay(picture, found, names, factor))
        small = [i.resize((width, max(round(width * i.height / i.width), 1)), Image.Resampling.LANCZOS) for i in images]
        size = f"{whole.width}x{whole.height} pixels"
        if picture.size != whole.size:
            size += f", read at {picture.width}x{picture.height}"
        truth = "".join(names[c] for c in classes)
        tiles.append(captioned(side_by_side(small[0], small[1]), caption_lines(model, found, truth, size)))
    return tiles
