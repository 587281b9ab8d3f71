"""Figures 1, 2 and 4 of X.-L. Li, arXiv:1811.12346, drawn again from a trained network and the test data of its task.

Each shows pictures, beside them what the network detects where, above what it reads and below what that rests on. A
task names its `figures`. After `prepare`, `figure_bags(rng)` returns the test bags of 1 or 2; for 4
`figure_pictures(data_dir)` returns the files of whole test pictures, with the classes in each in the order of reading.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from PIL.Image import Image

from milbench._utils.images import open_image
from milbench._utils.pictures import plain
from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.errors import UsageError
from milbench.inference.load import Trained
from milbench.inference.overlay import details, draw_letters, draw_prediction, write_caption
from milbench.inference.predict import (
    Prediction,
    label_set_text,
    notes,
    predict,
    read_picture,
    reading_text,
)

CONTENT = {"1": "house numbers", "2": "digits on canvases", "4": "house numbers"}  # of each figure
PICTURES, COLUMNS = 8, 2  # in Figure 4, and beside each other
TILE = 6.0, 3.6  # width and height of a picture with what is detected in it, in inches


class _Tile(NamedTuple):
    """A picture with its prediction, the text read in it, the true text, and the size that it was read at."""

    picture: Image
    prediction: Prediction
    read: str
    truth: str
    size: str


def draw_figure(
    number: str, model: Trained, seed: int, data_dir: Path | None
) -> tuple[Figure, list[str]]:
    """Return figure "1", "2" or "4" for a trained network, and notes for its reader, a line each.

    `seed` draws the test pictures. Raises UsageError where the task has no data for this figure, or they are missing.
    """
    task: Any = model.task
    rng = generator("figure", number, seed)
    if number not in getattr(task, "figures", ()):
        raise UsageError(
            f"figure {number} shows {CONTENT[number]}, which the task of {model.cell} does not have"
        )
    data, data_of_cell = task.check_data(data_dir), model.cell.data
    task.prepare(data_dir, torch.device("cpu"))
    other = (
        [f"note: these are other data than the cell's ({data}, not {data_of_cell})"]
        if data != data_of_cell
        else []
    )
    if number == "4":
        pictures = task.figure_pictures(data_dir)
        tiles = [
            _whole_picture(model, *pictures[n])
            for n in torch.randperm(len(pictures), generator=rng)[:PICTURES]
        ]
    else:
        tiles = [
            _bag(model, bags, n, by_set=number == "2")
            for bags in task.figure_bags(rng)
            for n in range(len(bags))
        ]
    rows = -(-len(tiles) // COLUMNS)
    figure = Figure(
        figsize=(COLUMNS * TILE[0], rows * TILE[1] + 0.4), dpi=150, layout="constrained"
    )
    largest = tuple(max(tile.picture.size[side] for tile in tiles) for side in (0, 1))
    for part, tile in zip(
        figure.subfigures(rows, COLUMNS, squeeze=False).flat, tiles, strict=False
    ):
        left, right = part.subplots(1, 2)
        left.imshow(
            tile.picture.convert("RGB"), interpolation="none", extent=(0, *tile.picture.size, 0)
        )
        draw = draw_letters if number == "1" else draw_prediction
        draw(right, model, tile.picture, tile.prediction)
        for axes in (left, right):
            plain(axes)
            if number == "2":  # the digits of all canvases have one size
                axes.set(xlim=(0, largest[0]), ylim=(largest[1], 0), frame_on=False)
        write_caption(
            left, tile.read, f"{tile.size}\n{details(model, tile.prediction)}", tile.truth
        )
    figure.supxlabel(
        f"{model.name}, cell {model.cell.id}; test pictures drawn with seed {seed}", fontsize=10
    )
    return figure, [*other, *notes(model)]


def _bag(model: Trained, bags: Bags, n: int, *, by_set: bool) -> _Tile:
    """Return one test bag, read as a label set, or as a string in the order of reading."""
    picture, prediction = (
        model.task.picture_from(bags.instances[n]),
        predict(model, bags.instances[n]),
    )
    read, truth = (label_set_text(model, labels) for labels in (prediction.labels, bags.labels[n]))
    if not by_set:
        classes = bags.truth.classes[n].tolist() if bags.truth else []
        read, truth = (
            reading_text(model, prediction),
            "".join(model.task.class_names[c] for c in classes if c >= 0),
        )
    return _Tile(picture, prediction, read, truth, f"{picture.width}x{picture.height} pixels")


def _whole_picture(model: Trained, path: Path, classes: Sequence[int]) -> _Tile:
    """Return one test picture with its classes in the order of reading; a very large one is read shrunk."""
    whole = open_image(path)
    picture, prediction = read_picture(model, whole)
    size = f"{whole.width}x{whole.height} pixels"
    if picture.size != whole.size:
        size += f", read at {picture.width}x{picture.height}"
    truth = "".join(model.task.class_names[c] for c in classes)
    return _Tile(picture, prediction, reading_text(model, prediction), truth, size)
