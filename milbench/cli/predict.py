"""`milbench predict` and `milbench figure`: what a trained network reads in pictures, and finds in other bags."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from milbench._utils.files import write_atomically
from milbench.cli import options
from milbench.engine.folders import Root
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from milbench.api.decoder import Decoder
    from milbench.inference.load import Trained

SHOWN = 10  # bags that are printed; all are written


def predict(
    images: Annotated[
        list[Path],
        typer.Argument(help="Pictures of any size; or tables, files or folders of bags, as the task reads them."),
    ],
    cell: options.TrainedCellOption,
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Folder for NAME.png and NAME.json, or NAME.csv; or a table to write.")
    ] = Path("predictions"),
    decoder: options.DecoderOption = None,
    scale: options.ScaleOption = 1.0,
    positions: Annotated[bool, typer.Option("--positions", help="Add the probabilities of every position.")] = False,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Write NAME-sensitivity.png too.")] = False,
    invert: Annotated[
        bool, typer.Option("--invert", help="Invert pictures: for dark digits, if the task has light ones.")
    ] = False,
    device: options.DeviceOption = "auto",
    root: options.RootOption = options.HERE,
) -> int:
    """Predict label sets, and where their classes are, for pictures or other bags.

    Predictions for bags become a table. Pictures of more than 1,000,000 pixels are shrunk to that size.

    Example: milbench predict photo.png --cell 3fa1
    """
    from milbench.inference.predict_bags import are_bags

    model = _load(cell, root, device)
    if not are_bags(images, model.task):
        _read_pictures(model, images, out, decoder, scale, positions, sensitivity, invert)
        return 0
    picture_options = {"--decoder": decoder, "--scale": scale != 1, "--sensitivity": sensitivity, "--invert": invert}
    for option, value in picture_options.items():
        if value:
            raise UsageError(f"{option} is for pictures: {images[0]} holds bags, of which a table is written")
    _write_predicted_bags(model, images, out, positions=positions)
    return 0


def figure(
    number: Annotated[
        Literal["1", "2", "4"],
        typer.Argument(help="1: crops of house numbers; 2: scattered digits; 4: whole house numbers."),
    ],
    cell: options.TrainedCellOption,
    out: Annotated[Path, typer.Option(metavar="FILE", help="PNG file to write.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of test images.")] = 0,
    decoder: options.DecoderOption = None,
    scale: options.ScaleOption = 1.0,
    device: options.DeviceOption = "auto",
    data_dir: options.DataDirOption = None,
    root: options.RootOption = options.HERE,
) -> int:
    """Redraw a figure of arXiv:1811.12346.

    It shows the predictions of a trained network for test images of its task.

    Example: milbench figure 2 --cell 3fa1 --out figure-2.png
    """
    from milbench.inference import paper_figures

    if out.is_dir():
        raise UsageError(f"--out {out} is a folder: name the file, such as {out / f'figure-{number}.png'}")
    if scale != 1 and number != "4":
        raise UsageError(f"--scale is for figure 4: figure {number} shows crops of one size")
    model = _load(cell, root, device)
    image, notes = paper_figures.draw_figure(number, model, seed, data_dir, decoder, scale)
    with as_usage():
        _save(out, image)
    _print([*notes, f"wrote {out}"])
    return 0


def _read_pictures(
    model: Trained, images: Sequence[Path], out: Path, decoder: Decoder | None, scale: float,
    positions: bool, sensitivity: bool, invert: bool,
) -> None:  # fmt: skip
    """Write the files of every picture and print a table of them; all are checked before the first is written."""
    from rich.table import Table

    from milbench._utils.console import console
    from milbench._utils.images import unique_stems
    from milbench.inference.overlay import prediction_figure, sensitivity_figure
    from milbench.inference.predict import as_json, label_set_text, notes, read_picture, reading_text, size_at

    names = unique_stems(images)
    endings = [".json", ".png", *(["-sensitivity.png"] if sensitivity else [])]
    _refuse_overwriting(images, out, [out / (name + ending) for name in names for ending in endings])
    for path in images:
        image = _prepared(model, path, invert)
        try:
            size_at(model, image.size, scale)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    with as_usage():
        out.mkdir(parents=True, exist_ok=True)
    headings = "image", "read at", "reads", "label set", "probability", "written"
    table = Table(*headings, title=f"{model.name}, cell {model.cell.id}", title_justify="left")
    for path, name in zip(images, names, strict=True):
        image = _prepared(model, path, invert)
        resized, reading = read_picture(model, image, scale, decoder)
        about = as_json(model, path, image.size, resized.size, reading, positions=positions)
        text = json.dumps(about, indent=None if positions else 1) + "\n"
        pages = [draw(model, resized, reading) for draw in (prediction_figure, sensitivity_figure)[: len(endings) - 1]]
        with as_usage():
            write_atomically(out / f"{name}.json", partial(Path.write_text, data=text, encoding="utf-8"))
            for ending, page in zip(endings[1:], pages, strict=True):
                _save(out / (name + ending), page)
        reads = f"{reading_text(model, reading) or 'nothing'} ({reading.decoder})"
        labels, probability = label_set_text(model, reading.labels), f"{about['label_set_probability']:.3g}"
        written = f"{out / name}{', '.join(endings)}"
        table.add_row(str(path), f"{resized.width}x{resized.height}", reads, labels, probability, written)
    console.print(table, markup=False)
    _print(notes(model))


def _write_predicted_bags(model: Trained, paths: Sequence[Path], out: Path, *, positions: bool) -> None:
    """Write the predictions for bags in files to a table, those of positions to another, and print the first rows."""
    import pandas as pd

    from milbench._utils.console import console
    from milbench.data.table_files import write_table
    from milbench.inference.predict import notes
    from milbench.inference.predict_bags import bag_table, draw_maps, position_table

    table = _table_in(out, paths)
    position_file, maps = table.with_stem(f"{table.stem}-positions"), table.with_name(f"{table.stem}-maps")
    _refuse_overwriting(paths, out, [table, position_file])
    tables, places = [], []
    for batch in model.task.read_bags(paths, model.network):  # all together may not fit into memory
        scores = model.scores(batch.bags)
        tables.append(bag_table(model, batch, scores))
        if positions:
            places.append(position_table(model, batch, scores))
            if {"instance", "x", "y"} <= {*batch.places}:
                draw_maps(places[-1], tables[-1], maps)
    predictions = pd.concat(tables, ignore_index=True)
    with as_usage():
        write_table(predictions, table)
        if places:
            write_table(pd.concat(places, ignore_index=True), position_file)
    console.print(_summary(model, predictions), markup=False)
    lines = notes(model)
    lines.append(
        f"wrote {len(predictions):,} bags to {table}" + (f", their positions to {position_file}" if positions else "")
    )
    if maps.is_dir():
        lines.append(f"drew where the classes are into {maps}")
    _print(lines)


def _table_in(out: Path, paths: Sequence[Path]) -> Path:
    """Return the table that `--out` names, or one in the folder that it names."""
    from milbench.data.table_files import check_kind, is_table

    table = out if is_table(out) and not out.is_dir() else out / f"{paths[0].resolve().stem}.csv"
    check_kind(table)
    return table


def _summary(model: Trained, predictions: pd.DataFrame) -> object:
    from rich.table import Table

    kind = str(predictions.columns[0])
    title = f"{model.name}, cell {model.cell.id}"
    table = Table(kind, "label set", "probability", title=title, title_justify="left")
    for name, labels, probability in predictions[[kind, "labels", "probability"]].head(SHOWN).itertuples(index=False):
        table.add_row(str(name), "{" + ", ".join(filter(None, labels.split(";"))) + "}", f"{probability:.3g}")
    if len(predictions) > SHOWN:
        table.caption = f"and {len(predictions) - SHOWN:,} more"
    return table


def _load(reference: str, root: Path, device: str) -> Trained:
    from milbench._utils.devices import resolve
    from milbench.inference.load import load_trained

    target = resolve(device)
    return load_trained(Root(root).find(reference), target)


def _prepared(model: Trained, path: Path, invert: bool) -> Image:
    """Return an image, or its negative. Raises UsageError if it cannot be read or the task has no images."""
    from PIL import ImageOps

    from milbench._utils.images import open_image

    image = open_image(path)
    model.task.instances_from(image.resize((1, 1)))
    return ImageOps.invert(image) if invert else image


def _refuse_overwriting(inputs: Sequence[Path], out: Path, outputs: Sequence[Path]) -> None:
    """Refuse an `--out` where an output would replace an input or another output."""
    names: set[str] = set()
    for place in outputs:
        if place.resolve() in {path.resolve() for path in inputs}:
            raise UsageError(f"--out {out}: {place} is one of the inputs and would be overwritten")
        if place.name.casefold() in names:
            raise UsageError(f"--out {out}: {place} would be written for two images; give them one at a time")
        names.add(place.name.casefold())


def _save(path: Path, figure: Figure) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the name of a class may have any letters
        write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", bbox_inches="tight"))


def _print(lines: Sequence[str]) -> None:
    from milbench._utils.console import console

    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
