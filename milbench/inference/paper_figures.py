"""Figures 1, 2 and 4 of X.-L. Li, arXiv:1811.12346, drawn again from a trained network and its test data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from milbench._utils.images import open_picture
from milbench._utils.palette import INK, MUTED
from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.errors import UsageError
from milbench.families.nested_digits import NestedDigits
from milbench.families.street_numbers import StreetNumbers
from milbench.inference.load import Trained
from milbench.inference.overlay import (
    GAP,
    PAD,
    Line,
    beside,
    captioned,
    enlarged,
    enlargement,
    glyph_map,
    overlay,
    shelves,
)
from milbench.inference.predict import Decoder, Prediction, chosen_decoder, predict, set_name, spelled
from milbench.inference.scale_search import Scale, look

CROPS, PICTURES = 8, 8
CANVASES = ((1.3, 1.3, 1), (1.5, 4.6, 3), (4.5, 2.0, 5), (4.5, 4.5, 8), (3.0, 2.0, 3), (3.0, 4.6, 7))
"""Of Figure 2: height and width of each canvas in sides of a digit, and the number of digits."""
RIGHT, WRONG = "#0f7b5c", "#c23a4b"
WIDTH = 1560


def draw(
    number: str, model: Trained, seed: int, data_dir: Path | None, decoder: Decoder | None, scale: Scale = 1.0
) -> tuple[Image.Image, list[str]]:
    """Return the figure, and what a reader must know of it. Raises UsageError where the task has no such figure."""
    chosen_decoder(model, decoder)
    task, rng = model.task, generator("figure", number, seed)
    notes: list[str] = []
    if number in ("1", "4"):
        if not isinstance(task, StreetNumbers):
            raise UsageError(f"figure {number} shows house numbers, and {model.cell} is no run of a task of them")
        notes = _check(model, data_dir)
        if number == "1":
            tiles = _crops(model, task, rng, decoder)
        else:
            tiles = _pictures(model, task.test_pictures(data_dir), rng, decoder, scale)
    else:
        if not isinstance(task, NestedDigits):
            raise UsageError(f"figure 2 shows digits on canvases, and {model.cell} is no run of a task of them")
        notes = _check(model, data_dir)
        tiles = _canvases(model, task, rng, decoder)
    page = shelves(tiles, WIDTH)
    foot = Line(f"{model.cell}, run {model.run_id}; test pictures drawn with seed {seed}", 14)
    return captioned(page, [foot], indent=GAP + PAD), notes


def lines(model: Trained, found: Prediction, truth: str | None = None, also: str = "") -> list[Line]:
    """Return what is read in a picture, as lines below it; with the truth, whether that is right."""
    read = spelled(model, found)
    verdict, colour = "", INK
    if truth is not None:
        right = read == truth
        verdict, colour = ("  ✓", RIGHT) if right else (f"  ✗ {truth}", WRONG)
    sets = f"label set {set_name(model, found.labels)}, probability {np.exp(found.log_prob):.2g}"
    how = "  ·  ".join([*([also] if also else []), f"read by {found.decoder}"])
    head = Line(f"{read or 'nothing'}{verdict}", 24, colour, bold=True)
    return [head, Line(sets, 13, MUTED), Line(how, 13, MUTED)]


def _check(model: Trained, data_dir: Path | None) -> list[str]:
    """Load the test data, and say if they are not those that the run was tested on."""
    here = model.task.check_data(data_dir)
    model.task.prepare(data_dir, torch.device("cpu"))
    if here == model.cell.data:
        return []
    return [f"note: these are other data than the run's ({here} here, {model.cell.data} there)"]


def _crops(model: Trained, task: StreetNumbers, rng: torch.Generator, decoder: Decoder | None) -> list[Image.Image]:
    """Eight test crops with the maps of what their positions show beside them."""
    bags = task.test_crops(CROPS, rng)
    tiles = []
    for instances, classes in zip(bags.instances, _classes(bags), strict=True):
        found = predict(model, instances, decoder)
        crop = _picture(instances, 256)
        factor = enlargement(*crop.size, side=350)
        names = task.class_names
        pair = beside(enlarged(crop, factor), glyph_map(found, names, crop.size, factor))
        tiles.append(captioned(pair, lines(model, found, "".join(names[c] for c in classes))))
    return tiles


def _canvases(model: Trained, task: NestedDigits, rng: torch.Generator, decoder: Decoder | None) -> list[Image.Image]:
    """Canvases of other sizes than those in training, with test digits, and what is detected on them."""
    tiles = []
    for high, wide, count in CANVASES:
        bags = task.test_canvas(high, wide, count, rng)
        canvas = _picture(bags.instances[0], 255)
        found = predict(model, bags.instances[0], decoder)
        factor = max(round(112 * high / canvas.height), 1)
        pair = beside(enlarged(canvas, factor), overlay(canvas, found, task.class_names, factor))
        true = "{" + ", ".join(task.class_names[c] for c in bags.labels[0].nonzero().flatten().tolist()) + "}"
        right = set_name(model, found.labels) == true
        head = Line(
            f"{set_name(model, found.labels)}{'  ✓' if right else f'  ✗ {true}'}", 20, RIGHT if right else WRONG, True
        )
        size = f"{canvas.width}x{canvas.height} pixels, probability of the label set {np.exp(found.log_prob):.2g}"
        tiles.append(captioned(pair, [head, Line(size, 13)]))
    return tiles


def _pictures(
    model: Trained,
    known: list[tuple[Path, tuple[int, ...]]],
    rng: torch.Generator,
    decoder: Decoder | None,
    scale: Scale,
) -> list[Image.Image]:
    """Whole test pictures and what is detected in them: as they are, unless another scale was asked for."""
    drawn = torch.randperm(len(known), generator=rng)[:PICTURES].tolist()
    pictures = sorted(((open_picture(known[n][0]), known[n][1]) for n in drawn), key=lambda entry: entry[0].width)
    widest = pictures[-1][0].width
    tiles = []
    for whole, classes in pictures:
        picture, found = look(model, whole, scale, decoder)
        shown = round(200 + 140 * whole.width / widest)
        factor = enlargement(*picture.size)
        names = model.task.class_names
        images = (enlarged(picture, factor), overlay(picture, found, names, factor))
        small = [i.resize((shown, max(round(shown * i.height / i.width), 1)), Image.Resampling.LANCZOS) for i in images]
        size = f"{whole.width}x{whole.height} pixels"
        if picture.size != whole.size:
            size += f", seen at {picture.width}x{picture.height}"
        truth = "".join(names[c] for c in classes)
        tiles.append(captioned(beside(small[0], small[1]), lines(model, found, truth, size)))
    return tiles


def _picture(instances: Tensor, white: int) -> Image.Image:
    """Return instances (N, H, W) as a picture: the opposite of a task's `instances_from`."""
    pixels = (instances * white).round().clamp(0, 255).byte().cpu().numpy()
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def _classes(bags: Bags) -> list[list[int]]:
    """Return the classes in each bag, in their order."""
    return [[c for c in row if c >= 0] for row in bags.truth.classes.tolist()] if bags.truth else [[]] * len(bags)
