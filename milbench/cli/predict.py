"""`milbench predict`: predictions of a trained network for pictures and other bags."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milbench._utils.files import write_atomically
from milbench.cli import options
from milbench.contracts.decoder import Decoder
from milbench.errors import UsageError, as_usage
from milbench.store.folders import Root

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from milbench.contracts.task import Task
    from milbench.inference.predict_bags import BagPredictions
    from milbench.inference.trained import Trained

SHOWN = 10
"""The most bags that are printed. The table in the file has all bags."""
CellOption = Annotated[
    str,
    typer.Option(
        "--cell",
        metavar="ID",
        help="Cell (see milbench status) or MLflow run; a unique prefix is enough. "
        "Predictions for bags are averaged over several cells, separated by commas, "
        "such as all seeds of a loss.",
    ),
]


def predict(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Pictures of any size; "
            "or tables, files or folders of bags, as the task reads them."
        ),
    ],
    cell: CellOption,
    out: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Folder for NAME.png and NAME.json, or NAME.csv; or a table to write.",
        ),
    ] = Path("predictions"),
    decoder: Annotated[
        Decoder | None,
        typer.Option(help="Decoder of strings; default: the one of the cell, else of the task."),
    ] = None,
    scale: Annotated[float, typer.Option(metavar="FACTOR", help="Enlarge images first.")] = 1.0,
    positions: Annotated[
        bool,
        typer.Option(
            "--positions", help="Add the probabilities of every position, and pictures of bags."
        ),
    ] = False,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Write NAME-sensitivity.png too: the pixels that each class depends on.",
        ),
    ] = False,
    invert: Annotated[
        bool,
        typer.Option(
            "--invert", help="Invert pictures: for dark digits, if the task has light ones."
        ),
    ] = False,
    device: options.DeviceOption = "auto",
    root: options.RootOption = options.HERE,
) -> int:
    """Predict label sets, and where their classes are, for pictures or other bags.

    Pictures are shrunk to at most 1,000,000 pixels.

    Example: milbench predict photo.png --cell ID
    """
    from milbench.contracts.task import Task

    models = _load(cell.split(","), root, device)
    chosen = _PictureOptions(decoder, scale, positions, sensitivity, invert)
    # A task that reads bags from files overrides `read_bags`. All other tasks read pictures.
    if type(models[0].task).read_bags is Task.read_bags:
        _check_pictures(models)
        _read_pictures(models[0], images, out, chosen)
    else:
        _refuse_picture_options(chosen, images)
        _write_predicted_bags(models, images, out, positions=positions)
    return 0


@dataclass(frozen=True)
class _PictureOptions:
    """The options of the command for pictures: how they are read, and what is written."""

    decoder: Decoder | None
    scale: float
    positions: bool
    sensitivity: bool
    invert: bool


def _check_pictures(models: Sequence[Trained]) -> None:
    """Raise UsageError unless there is a single cell, whose task reads pictures."""
    from milbench.contracts.task import Task

    task = models[0].task
    if len(models) > 1:
        raise UsageError(
            f"only predictions for bags can be averaged over cells; {task.name} has pictures, "
            "expected one cell"
        )
    # A task that reads pictures overrides `instances_from`.
    if type(task).instances_from is Task.instances_from:
        raise UsageError(
            f"{task.name} reads neither pictures nor other bags; its class needs a method "
            "read_bags, or instances_from for pictures"
        )


def _refuse_picture_options(chosen: _PictureOptions, paths: Sequence[Path]) -> None:
    """Raise UsageError if an option for pictures is given with bags of another kind."""
    is_given = {
        "--decoder": chosen.decoder is not None,
        "--scale": chosen.scale != 1,
        "--sensitivity": chosen.sensitivity,
        "--invert": chosen.invert,
    }
    for option, given in is_given.items():
        if given:
            raise UsageError(
                f"{option} is for pictures: {paths[0]} holds bags, of which a table is written"
            )


def _read_pictures(
    model: Trained, images: Sequence[Path], out: Path, chosen: _PictureOptions
) -> None:
    """Write the files of every picture, and print a table of the pictures.

    All pictures are checked before the first file is written.
    """
    from milbench._utils.console import console, table_of
    from milbench._utils.images import unique_stems
    from milbench.inference.predict_picture import notes

    names = unique_stems(images)
    endings = [".json", ".png"]
    if chosen.sensitivity:
        endings.append("-sensitivity.png")
    outputs = [out / f"{name}{ending}" for name in names for ending in endings]
    _refuse_overwriting(images, out, outputs)
    # Pictures are prepared here only to raise UsageError for one that cannot be read. Each is
    # prepared again when its files are written, so that not all have to be in memory.
    for path in images:
        _prepared(model, path, chosen)
    with as_usage():
        out.mkdir(parents=True, exist_ok=True)
    rows = []
    for path, name in zip(images, names, strict=True):
        found = _read_picture(model, path, out / name, chosen)
        rows.append((str(path), *found, f"{out / name}{', '.join(endings)}"))
    headings = "image", "read at", "reads", "label set", "probability", "written"
    console.print(table_of(f"{model.name}, cell {model.cell.id}", headings, rows), markup=False)
    options.say(*notes(model), then=("open", f"{out / names[0]}.png"))


def _read_picture(
    model: Trained, path: Path, start: Path, chosen: _PictureOptions
) -> tuple[str, str, str, str]:
    """Write the files of a picture, whose paths begin with `start`.

    Returns four texts for its row of the printed table: the size at which the picture was read, the
    string that a decoder read in it, the label set and its probability.
    """
    from milbench.inference.overlay import prediction_figure, sensitivity_figure
    from milbench.inference.predict_picture import (
        as_json,
        label_set_text,
        read_picture,
        reading_text,
    )

    image = _prepared(model, path, chosen)
    resized, reading = read_picture(model, image, chosen.scale, chosen.decoder)
    about = as_json(model, path, image.size, resized.size, reading, positions=chosen.positions)
    # With an indent, JSON has a line for each number. The probabilities of all positions are too
    # many for that.
    indent = None if chosen.positions else 1
    text = json.dumps(about, indent=indent) + "\n"
    figures = {".png": prediction_figure(model, resized, reading)}
    if chosen.sensitivity:
        figures["-sensitivity.png"] = sensitivity_figure(model, resized, reading)
    with as_usage():
        file = Path(f"{start}.json")
        write_atomically(file, partial(Path.write_text, data=text, encoding="utf-8"))
        for ending, figure in figures.items():
            _save(Path(f"{start}{ending}"), figure)
    return (
        f"{resized.width}x{resized.height}",
        f"{reading_text(model, reading) or 'nothing'} ({reading.decoder})",
        label_set_text(model, reading.labels),
        f"{about['label_set_probability']:.3g}",
    )


def _write_predicted_bags(
    models: Sequence[Trained], paths: Sequence[Path], out: Path, *, positions: bool
) -> None:
    """Write the predictions for bags in files to a table, and print the first rows.

    With `positions`, another table gets the predictions for every position, and pictures are drawn.
    """
    import pandas as pd

    from milbench._utils.console import console
    from milbench.data.table_files import check_kind, is_table, write_table
    from milbench.inference.predict_bags import bag_table, position_table
    from milbench.inference.predict_picture import notes

    table = out
    if out.is_dir() or not is_table(out):
        table = out / f"{paths[0].resolve().stem}.csv"
    check_kind(table)
    position_file = table.with_stem(f"{table.stem}-positions")
    maps = table.with_name(f"{table.stem}-maps")
    _refuse_overwriting(paths, out, [table, position_file])
    tables = []
    position_tables = []
    for batch in _predictions(models, paths):
        tables.append(bag_table(batch))
        if positions:
            position_tables.append(position_table(batch))
    predictions = pd.concat(tables, ignore_index=True)
    written = f"wrote {len(predictions):,} bags to {table}"
    with as_usage():
        write_table(predictions, table)
        if position_tables:
            write_table(pd.concat(position_tables, ignore_index=True), position_file)
            written += f", their positions to {position_file}"
    console.print(_summary(models, predictions), markup=False)
    lines = []
    for model in models:
        lines += notes(model)
    lines.append(written)
    # The pictures come last: only after the tables is it known that all bags can be read. So the
    # bags are read a second time.
    if positions:
        lines.append(_draw_bags(models, paths, maps))
    options.say(*lines, then=("open", str(table)))


def _predictions(models: Sequence[Trained], paths: Sequence[Path]) -> Iterator[BagPredictions]:
    """Yield the predictions for bags, batch by batch: the memory may be too small for all bags."""
    from milbench.inference.predict_bags import predict_bags

    # Every model reads the bags itself, in the format of its own training data.
    readers = [model.task.read_bags(paths, model.format, model.network) for model in models]
    for batches in zip(*readers, strict=True):
        yield predict_bags(models, batches)


def _draw_bags(models: Sequence[Trained], paths: Sequence[Path], folder: Path) -> str:
    """Draw where the classes are in each bag, as NAME.png.

    Returns a line that says where the pictures are, or why there are none.
    """
    from milbench._utils.images import unique_stems
    from milbench.inference.bag_pictures import draw

    names: list[Path] = []
    for predictions in _predictions(models, paths):
        names += [Path(name) for name in predictions.batch.names]
        # The stem of a picture is its name without the ending. Stems are chosen for the bags of all
        # batches so far, so that no picture overwrites another one. The last of them belong to this
        # batch.
        stems = unique_stems(names)[-len(predictions.labels) :]
        for bag, stem in enumerate(stems):
            page = draw(predictions, bag)
            if page is None:
                return _why_no_picture(models[0].task)
            with as_usage():
                folder.mkdir(parents=True, exist_ok=True)
                _save(folder / f"{stem}.png", page)
    return f"drew where the classes are into {folder}"


def _why_no_picture(task: Task) -> str:
    """Return a line that says why there are no pictures, and what the user can do.

    The instances of the bags have no coordinates.
    """
    text = "drew no pictures: the table does not say where the instances are in the plane"
    if task.name == "feature-bags":
        text += "; with -p task.coords='x;y', milbench run reads it from the columns x and y"
    return text


def _summary(models: Sequence[Trained], predictions: pd.DataFrame) -> object:
    """Return the first predictions as a table for the terminal."""
    from milbench._utils.console import table_of

    # The first column has the names of the bags, and says what they are, such as "image".
    kind = str(predictions.columns[0])
    title = f"{models[0].name}, cell {models[0].cell.id}"
    if len(models) > 1:
        seeds = ", ".join(str(model.cell.seed) for model in models)
        # The name of a model ends with its seed, which is left out here.
        title = f"{models[0].name.rpartition(', seed')[0]}, the average of seeds {seeds}"
    first = predictions[[kind, "labels", "probability"]].head(SHOWN)
    rows = []
    for bag, labels, probability in first.itertuples(index=False):
        label_set = labels.replace(";", ", ")
        rows.append((str(bag), f"{{{label_set}}}", f"{probability:.3g}"))
    table = table_of(title, (kind, "label set", "probability"), rows)
    if len(predictions) > SHOWN:
        table.caption = f"and {len(predictions) - SHOWN:,} more"
    return table


def _load(references: Sequence[str], root: Path, device: str) -> list[Trained]:
    """Return the trained cells that references name.

    Raises UsageError if the cells differ in more than their seeds.
    """
    from milbench._utils.devices import resolve
    from milbench.inference.trained import load_trained

    target = resolve(device)
    found = [Root(root).find(reference) for reference in references]
    # Two references may name the same cell.
    folders = {folder.id: folder for folder in found}
    models = [load_trained(folder, target) for folder in folders.values()]
    first = models[0].cell
    for model in models[1:]:
        cell = model.cell
        if cell.variant_key != first.variant_key or cell.task.data != first.task.data:
            raise UsageError(
                f"cells {first.id} ({first}) and {cell.id} ({cell}) differ in more than their seeds"
            )
    return models


def _prepared(model: Trained, path: Path, chosen: _PictureOptions) -> Image:
    """Open an image, check it, and return it, inverted if the user wants that.

    Raises UsageError if Pillow, the task or the network cannot read it.
    """
    from PIL import ImageOps

    from milbench._utils.images import open_image
    from milbench.inference.predict_picture import size_at

    image = open_image(path)
    # This is called only to let the task refuse an image of the wrong kind. The size of the image
    # does not matter for that, and a tiny copy is quick.
    model.task.instances_from(image.resize((1, 1)))
    try:
        size_at(model, image.size, chosen.scale)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return ImageOps.invert(image) if chosen.invert else image


def _refuse_overwriting(inputs: Sequence[Path], out: Path, outputs: Sequence[Path]) -> None:
    """Raise UsageError if one of the outputs is an input."""
    taken = {path.resolve() for path in inputs}
    for path in outputs:
        if path.resolve() in taken:
            raise UsageError(f"--out {out}: {path} is one of the inputs and would be overwritten")


def _save(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG file."""

    def write(temporary: Path) -> None:
        figure.savefig(temporary, format="png", bbox_inches="tight")

    with warnings.catch_warnings():
        # The name of a class may have letters that the font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        write_atomically(path, write)
