"""Figures 1, 2 and 4 of X.-L. Li, arXiv:1811.12346, drawn again from a trained network and the test data of its task.

Each shows pictures, beside them what the network detects where, above what it reads and below what that rests on.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from matplotlib.figure import Figure
from PIL.Image import Image

from milbench._utils.images import open_image
from milbench._utils.pictures import plain
from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.decoder import Decoder
from milbench.errors import UsageError
from milbench.inference.load import Trained
from milbench.inference.overlay import details, draw_letters, draw_prediction, write_caption
from milbench.inference.predict import Prediction, label_set_text, notes, predict, read_picture, reading_text

CONTENT = {"1": "house numbers", "2": "digits on canvases", "4": "house numbers"}
"""The subject of each figure."""
PICTURES = 8
"""How many pictures Figure 4 shows."""
COLUMNS = 2
TILE = 6.0, 3.6
"""Width and height of a picture with what is detected in it, in inches."""


class PaperTask(Protocol):
    """A task whose test data fill figures of arXiv:1811.12346."""

    figures: tuple[str, ...]
    """Their numbers: "1" and "2" are made of bags, "4" of pictures."""

    def figure_bags(self, rng: torch.Generator) -> list[Bags]:
        """Return the test bags of Figure 1 or 2 with their truth, drawn by `rng`; called after `prepare`."""
        ...

    def figure_pictures(self, data_dir: Path | None) -> list[tuple[Path, tuple[int, ...]]]:
        """For Figure 4: return the files of whole test pictures, with the classes in each in the order of reading."""
        ...


class _Tile(NamedTuple):
    """A picture with its prediction, the text read in it, the true text, and the size that it was read at."""

    picture: Image
    found: Prediction
    read: str
    truth: str
    size: str


def draw_figure(
    number: str, model: Trained, seed: int, data_dir: Path | None, decoder: Decoder | None, scale: float = 1.0
) -> tuple[Figure, list[str]]:
    """Return figure "1", "2" or "4" for a trained network, and notes for its reader, a line each.

    `seed` draws the test pictures; those of Figure 4 are read at a multiple of their size, `scale`.

    Raises:
        UsageError: the task has no data for this figure, or its data are missing.
    """
    task, rng = cast("PaperTask", model.task), generator("figure", number, seed)
    if number not in getattr(task, "figures", ()):
        raise UsageError(f"figure {number} shows {CONTENT[number]}, which the task of {model.cell} does not have")
    remarks = [*_prepare(model, data_dir), *notes(model)]
    if number == "4":
        tiles = _whole_pictures(model, task.figure_pictures(data_dir), rng, decoder, scale)
    else:
        tiles = [
            _bag(model, bags, n, decoder, by_set=number == "2")
            for bags in task.figure_bags(rng)
            for n in range(len(bags))
        ]
    rows = -(-len(tiles) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * TILE[0], rows * TILE[1] + 0.4), dpi=150, layout="constrained")
    largest = tuple(max(tile.picture.size[side] for tile in tiles) for side in (0, 1))
    for part, tile in zip(figure.subfigures(rows, COLUMNS, squeeze=False).flat, tiles, strict=False):
        left, right = part.subplots(1, 2)
        left.imshow(tile.picture.convert("RGB"), interpolation="none", extent=(0, *tile.picture.size, 0))
        draw = draw_letters if number == "1" else draw_prediction
        draw(right, model, tile.picture, tile.found)
        for axes in (left, right):
            plain(axes)
            if number == "2":  # the digits of all canvases have one size
                axes.set(xlim=(0, largest[0]), ylim=(largest[1], 0), frame_on=False)
        write_caption(left, tile.read, f"{tile.size}\n{details(model, tile.found)}", tile.truth)
    figure.supxlabel(f"{model.name}, cell {model.cell.id}; test pictures drawn with seed {seed}", fontsize=10)
    return figure, remarks


def _prepare(model: Trained, data_dir: Path | None) -> list[str]:
    """Load the test data; return a note if they are not those that the cell was tested on."""
    here = model.task.check_data(data_dir)
    model.task.prepare(data_dir, torch.device("cpu"))
    if here == model.cell.data:
        return []
    return [f"note: these are other data than the cell's ({here} here, {model.cell.data} there)"]


def _bag(model: Trained, bags: Bags, n: int, decoder: Decoder | None, *, by_set: bool) -> _Tile:
    """Return one test bag, read as a label set, or as a string in the order of reading."""
    picture, prediction = model.task.picture_from(bags.instances[n]), predict(model, bags.instances[n], decoder)
    if by_set:
        read, truth = (label_set_text(model, labels) for labels in (prediction.labels, bags.labels[n]))
    else:
        classes = bags.truth.classes[n].tolist() if bags.truth else []
        read, truth = reading_text(model, prediction), "".join(model.task.class_names[c] for c in classes if c >= 0)
    return _Tile(picture, prediction, read, truth, f"{picture.width}x{picture.height} pixels")


def _whole_pictures(
    model: Trained,
    pictures: list[tuple[Path, tuple[int, ...]]],
    rng: torch.Generator,
    decoder: Decoder | None,
    scale: float,
) -> list[_Tile]:
    drawn = torch.randperm(len(pictures), generator=rng)[:PICTURES].tolist()
    tiles = []
    for path, classes in (pictures[n] for n in drawn):
        whole = open_image(path)
        picture, prediction = read_picture(model, whole, scale, decoder)
        size = f"{whole.width}x{whole.height} pixels"
        if picture.size != whole.size:
            size += f", read at {picture.width}x{picture.height}"
        truth = "".join(model.task.class_names[c] for c in classes)
        tiles.append(_Tile(picture, prediction, reading_text(model, prediction), truth, size))
    return tiles
