"""`milbench predict`: predictions of a trained network for pictures and other bags."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
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

SHOWN = 10  # bags that are printed; all are written
CellOption = Annotated[
    str,
    typer.Option(
        "--cell",
        metavar="ID",
        help="Cell (see milbench status) or MLflow run; a unique prefix is enough. Predictions for bags are averaged "
        "over several cells, separated by commas, such as all seeds of a loss.",
    ),
]


def predict(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Pictures of any size; or tables, files or folders of bags, as the task reads them."
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
        typer.Option(help="Decoder of strings; default: that of the cell, else of the task."),
    ] = None,
    scale: Annotated[float, typer.Option(metavar="FACTOR", help="Enlarge images first.")] = 1.0,
    positions: Annotated[
        bool,
        typer.Option(
            "--positions", help="Add the probabilities of every position, and pictures of bags."
        ),
    ] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Write NAME-sensitivity.png too.")
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
    """Predict label sets, and where their classes are, for pictures, shrunk to at most 1,000,000 pixels, or other bags.

    Example: milbench predict photo.png --cell ID
    """
    from milbench.contracts.task import Task

    models = _load(cell.split(","), root, device)
    first = models[0]
    if type(first.task).read_bags is Task.read_bags:
        if len(models) > 1:
            raise UsageError(
                f"predictions of several cells are averaged for bags: {first.task.name} has pictures"
            )
        _read_pictures(first, images, out, decoder, scale, positions, sensitivity, invert)
        return 0
    picture_options = {
        "--decoder": decoder,
        "--scale": scale != 1,
        "--sensitivity": sensitivity,
        "--invert": invert,
    }
    for option, value in picture_options.items():
        if value:
            raise UsageError(
                f"{option} is for pictures: {images[0]} holds bags, of which a table is written"
            )
    _write_predicted_bags(models, images, out, positions=positions)
    return 0


def _read_pictures(
    model: Trained, images: Sequence[Path], out: Path, decoder: Decoder | None, scale: float,
    positions: bool, sensitivity: bool, invert: bool,
) -> None:  # fmt: skip
    """Write the files of every picture and print a table of them; all are checked before the first is written."""
    from milbench._utils.console import console, table_of
    from milbench._utils.images import unique_stems
    from milbench.inference.overlay import prediction_figure, sensitivity_figure
    from milbench.inference.predict_picture import (
        as_json,
        label_set_text,
        notes,
        read_picture,
        reading_text,
    )

    names = unique_stems(images)
    figures = {".png": prediction_figure} | (
        {"-sensitivity.png": sensitivity_figure} if sensitivity else {}
    )
    _refuse_overwriting(
        images, out, [out / (name + ending) for name in names for ending in (".json", *figures)]
    )
    for path in images:
        _prepared(model, path, scale, invert)
    with as_usage():
        out.mkdir(parents=True, exist_ok=True)
    rows = []
    for path, name in zip(images, names, strict=True):
        image = _prepared(model, path, scale, invert)
        resized, reading = read_picture(model, image, scale, decoder)
        about = as_json(model, path, image.size, resized.size, reading, positions=positions)
        text = json.dumps(about, indent=None if positions else 1) + "\n"
        pages = {
            out / (name + ending): draw(model, resized, reading) for ending, draw in figures.items()
        }
        with as_usage():
            write_atomically(
                out / f"{name}.json", partial(Path.write_text, data=text, encoding="utf-8")
            )
            for file, page in pages.items():
                _save(file, page)
        rows.append((
            str(path), f"{resized.width}x{resized.height}",
            f"{reading_text(model, reading) or 'nothing'} ({reading.decoder})", label_set_text(model, reading.labels),
            f"{about['label_set_probability']:.3g}", f"{out / name}{', '.join(('.json', *figures))}",
        ))  # fmt: skip
    headings = "image", "read at", "reads", "label set", "probability", "written"
    console.print(table_of(f"{model.name}, cell {model.cell.id}", headings, rows), markup=False)
    options.say(*notes(model), then=("open", f"{out / names[0]}.png"))


def _write_predicted_bags(
    models: Sequence[Trained], paths: Sequence[Path], out: Path, *, positions: bool
) -> None:
    """Write the predictions for bags in files to a table, those of positions to another, and print the first rows."""
    import pandas as pd

    from milbench._utils.console import console
    from milbench.data.table_files import check_kind, is_table, write_table
    from milbench.inference.predict_bags import bag_table, position_table
    from milbench.inference.predict_picture import notes

    table = out if is_table(out) and not out.is_dir() else out / f"{paths[0].resolve().stem}.csv"
    check_kind(table)
    position_file, maps = (
        table.with_stem(f"{table.stem}-positions"),
        table.with_name(f"{table.stem}-maps"),
    )
    _refuse_overwriting(paths, out, [table, position_file])
    tables, places = [], []
    for batch in _predictions(models, paths):
        tables.append(bag_table(batch))
        if positions:
            places.append(position_table(batch))
    predictions = pd.concat(tables, ignore_index=True)
    lines = [
        *(line for model in models for line in notes(model)),
        f"wrote {len(predictions):,} bags to {table}",
    ]
    with as_usage():
        write_table(predictions, table)
        if places:
            write_table(pd.concat(places, ignore_index=True), position_file)
            lines[-1] += f", their positions to {position_file}"
    console.print(_summary(models, predictions), markup=False)
    if positions:  # all bags can be read
        lines.append(_draw_bags(models, paths, maps))
    options.say(*lines, then=("open", str(table)))


def _predictions(models: Sequence[Trained], paths: Sequence[Path]) -> Iterator[BagPredictions]:
    """Yield what is found in bags, batch by batch: all together may not fit into memory."""
    from milbench.inference.predict_bags import predict_bags

    for batches in zip(
        *(model.task.read_bags(paths, model.format, model.network) for model in models), strict=True
    ):
        yield predict_bags(models, batches)


def _draw_bags(models: Sequence[Trained], paths: Sequence[Path], folder: Path) -> str:
    """Draw where the classes are in each bag as NAME.png; say where the pictures are, or why there are none."""
    from milbench._utils.images import unique_stems
    from milbench.inference.bag_pictures import draw

    names: list[Path] = []
    for predictions in _predictions(models, paths):
        names += map(Path, predictions.batch.names)
        for bag, stem in enumerate(unique_stems(names)[-len(predictions.labels) :]):
            if (page := draw(predictions, bag)) is None:
                return _why_no_picture(models[0].task)
            with as_usage():
                folder.mkdir(parents=True, exist_ok=True)
                _save(folder / f"{stem}.png", page)
    return f"drew where the classes are into {folder}"


def _why_no_picture(task: Task) -> str:
    """Say why bags without places were not drawn."""
    text = "drew no pictures: the table does not say where the instances are in the plane"
    if task.name == "feature-bags":
        text += "; with -p task.coords='x;y', milbench run reads it from the columns x and y"
    return text


def _summary(models: Sequence[Trained], predictions: pd.DataFrame) -> object:
    from milbench._utils.console import table_of

    kind = str(predictions.columns[0])
    title = f"{models[0].name}, cell {models[0].cell.id}"
    if len(models) > 1:
        seeds = ", ".join(str(model.cell.seed) for model in models)
        title = f"{models[0].name.rpartition(', seed')[0]}, the average of seeds {seeds}"
    first = predictions[[kind, "labels", "probability"]].head(SHOWN).itertuples(index=False)
    rows = [
        (str(bag), f"{{{labels.replace(';', ', ')}}}", f"{probability:.3g}")
        for bag, labels, probability in first
    ]
    table = table_of(title, (kind, "label set", "probability"), rows)
    if len(predictions) > SHOWN:
        table.caption = f"and {len(predictions) - SHOWN:,} more"
    return table


def _load(references: Sequence[str], root: Path, device: str) -> list[Trained]:
    """Return the trained cells of references. Raises UsageError where they differ in more than their seeds."""
    from milbench._utils.devices import resolve
    from milbench.inference.trained import load_trained

    target = resolve(device)
    folders = {folder.id: folder for folder in map(Root(root).find, references)}
    models = [load_trained(folder, target) for folder in folders.values()]
    first = models[0].cell
    for cell in (model.cell for model in models[1:]):
        if cell.variant_key != first.variant_key or cell.task.data != first.task.data:
            raise UsageError(
                f"cells {first.id} ({first}) and {cell.id} ({cell}) differ in more than their seeds"
            )
    return models


def _prepared(model: Trained, path: Path, scale: float, invert: bool) -> Image:
    """Return an image, or its negative. Raises UsageError where it cannot be read, by this network or at all."""
    from PIL import ImageOps

    from milbench._utils.images import open_image
    from milbench.inference.predict_picture import size_at

    image = open_image(path)
    model.task.instances_from(image.resize((1, 1)))
    try:
        size_at(model, image.size, scale)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return ImageOps.invert(image) if invert else image


def _refuse_overwriting(inputs: Sequence[Path], out: Path, outputs: Sequence[Path]) -> None:
    for place in outputs:
        if place.resolve() in {path.resolve() for path in inputs}:
            raise UsageError(f"--out {out}: {place} is one of the inputs and would be overwritten")


def _save(path: Path, figure: Figure) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # the name of a class may have any letters
        write_atomically(
            path, lambda temporary: figure.savefig(temporary, format="png", bbox_inches="tight")
        )
