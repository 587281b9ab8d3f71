"""`milbench predict` and `milbench figure`: what a trained network reads in pictures, and finds in other bags."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from milbench._utils.files import write_atomically
from milbench.cli import options
from milbench.engine.folders import Root
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    from PIL.Image import Image

    from milbench.api.decoder import Decoder
    from milbench.inference.load import Trained
    from milbench.inference.predict import Prediction

SENSITIVITY = "-sensitivity.png"


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
    scale: options.ScaleOption = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Their digitStruct.mat: count what is read correctly.")
    ] = None,
    positions: Annotated[bool, typer.Option("--positions", help="Add the probabilities of every position.")] = False,
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Write NAME-sensitivity.png too.")] = False,
    invert: Annotated[
        bool, typer.Option("--invert", help="Invert pictures: for dark digits, if the task has light ones.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit a temperature on validation bags, which reads the task's data.")
    ] = False,
    device: options.DeviceOption = "auto",
    data_dir: options.DataDirOption = None,
    root: options.RootOption = options.HERE,
) -> int:
    """Show what a trained network reads in pictures, or finds in bags, and where.

    What it finds in bags becomes a table. Pictures of more than 1,000,000 pixels are shrunk to that.

    Example: milbench predict photo.png --cell 3fa1
    """
    from milbench.cli.predict_bags import write_predicted_bags
    from milbench.inference.predict_bags import are_bags

    model = _load(cell, root, device, data_dir, needs_data=calibrate)
    if are_bags(images, model.task):
        of_pictures = {
            "--decoder": decoder, "--scale": scale, "--truth": truth, "--sensitivity": sensitivity, "--invert": invert
        }  # fmt: skip
        for option, value in of_pictures.items():
            if value:
                raise UsageError(f"{option} is for pictures: {images[0]} holds bags, of which a table is written")
        write_predicted_bags(model, images, out, positions=positions, calibrate=calibrate)
        return 0
    if calibrate:
        raise UsageError("--calibrate is for tables, files and folders of bags: pictures have no temperature")
    _read_pictures(model, images, out, decoder, scale, truth, positions, sensitivity, invert)
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
    scale: options.ScaleOption = None,
    device: options.DeviceOption = "auto",
    data_dir: options.DataDirOption = None,
    root: options.RootOption = options.HERE,
) -> int:
    """Draw a figure of arXiv:1811.12346 again.

    It shows what a trained network reads in test images of its task.

    Example: milbench figure 2 --cell 3fa1 --out figure-2.png
    """
    from milbench.inference import paper_figures
    from milbench.inference.scale_search import parse_scale

    with as_usage():
        if out.is_dir():
            raise UsageError(f"--out {out} is a folder: name the file, such as {out / f'figure-{number}.png'}")
        _check_folder(out.parent, out)
    if scale is not None and number != "4":
        raise UsageError(f"--scale is for figure 4: figure {number} shows crops of one size")
    model = _load(cell, root, device, data_dir)
    page, notes = paper_figures.draw_figure(number, model, seed, data_dir, decoder, parse_scale(model, scale or "1"))
    with as_usage():
        _save(out, page)
    print_lines([*notes, f"wrote {out}"])
    return 0


def print_lines(lines: Sequence[str]) -> None:
    """Print lines as they are."""
    from milbench._utils.console import console

    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _read_pictures(
    model: Trained, images: Sequence[Path], out: Path, decoder: Decoder | None, scale: str | None, truth: Path | None,
    positions: bool, sensitivity: bool, invert: bool,
) -> None:  # fmt: skip
    """Write the files of every picture and print a table of them; all are checked before the first is written."""
    from rich.table import Table

    from milbench._utils.console import console
    from milbench._utils.images import unique_stems
    from milbench.inference.predict import as_json, label_set_text, notes, reading_text
    from milbench.inference.scale_search import candidate_sizes, parse_scale, predict_best_scale

    sizes = parse_scale(model, scale)
    true = _read_truth(truth, images, model) if truth else {}
    names = unique_stems(images)
    endings = [".png", ".json", SENSITIVITY] if sensitivity else [".png", ".json"]
    with as_usage():
        _check_out(out, images, [out / (name + ending) for name in names for ending in endings])
    for path in images:  # before anything is written
        size = _prepared(model, path, invert).size
        try:
            candidate_sizes(model, size, sizes)
        except UsageError as error:
            raise UsageError(f"{path} is too small at this scale, {error}") from None
    headings = "image", "read at", "reads", "label set", "probability", "written"
    table = Table(*headings, title=f"{model.name}, cell {model.cell_id}", title_justify="left")
    correct = []
    for path, name in zip(images, names, strict=True):
        image = _prepared(model, path, invert)
        seen, found = predict_best_scale(model, image, sizes, decoder)
        about = as_json(model, path, image.size, seen.size, found, positions=positions)
        reading = reading_text(model, found)
        reads = f"{reading or 'nothing'} ({found.decoder})"
        if path.name in true:
            about["truth"] = true[path.name]
            reads += " ✓" if reading == true[path.name] else f" ✗ {true[path.name]}"
        _write_prediction(model, out / name, seen, found, about, sensitivity=sensitivity)
        labels, probability = label_set_text(model, found.labels), f"{about['label_set_probability']:.3g}"
        written = ", ".join([str(out / (name + endings[0])), *endings[1:]])
        table.add_row(str(path), f"{seen.width}x{seen.height}", reads, labels, probability, written)
        correct.append(reading == true.get(path.name))
    console.print(table, markup=False)
    print_lines([*notes(model), *([_share(correct)] if true else [])])


def _write_prediction(
    model: Trained, place: Path, seen: Image, found: Prediction, about: dict[str, Any], *, sensitivity: bool
) -> None:
    """Write the files of one image, whose names begin with `place`: what is said of it, and pictures."""
    from milbench.inference.overlay import prediction_page, sensitivity_page

    text = json.dumps(about, indent=None if "positions" in about else 1) + "\n"
    page = prediction_page(model, seen, found)
    with as_usage():
        write_atomically(place.with_name(f"{place.name}.json"), lambda temporary: temporary.write_text(text, "utf-8"))
        _save(place.with_name(f"{place.name}.png"), page)
    if sensitivity:
        heat = sensitivity_page(model, seen, found)
        with as_usage():
            _save(place.with_name(place.name + SENSITIVITY), heat)


def _load(run: str, root: Path, device: str, data_dir: Path | None, *, needs_data: bool = False) -> Trained:
    from milbench._utils.devices import resolve
    from milbench.inference.load import load_trained

    return load_trained(Root(root), run, resolve(device), data_dir, needs_data=needs_data)


def _prepared(model: Trained, path: Path, invert: bool) -> Image:
    """Return an image, or its negative. Raises UsageError if it cannot be read or the task has no images."""
    from PIL import ImageOps

    from milbench._utils.images import open_image

    image = open_image(path)
    model.task.instances_from(image.resize((1, 1)))
    return ImageOps.invert(image) if invert else image


def _read_truth(truth: Path, images: Sequence[Path], model: Trained) -> dict[str, str]:
    """Return the true string of each image by its file name, from a digitStruct.mat."""
    from milbench.data import digit_struct

    digits = [str(d) for d in range(10)]
    if model.task.class_names != digits:
        raise UsageError(f"--truth {truth}: it describes digits, {model.cell.task} has other classes")
    if not truth.is_file():
        raise UsageError(f"--truth {truth}: expected a digitStruct.mat as SVHN has it")
    records = {record.name: "".join(digits[c] for c in record.classes) for record in digit_struct.read(truth)}
    for path in images:
        if path.name not in records:
            raise UsageError(f"--truth {truth} has no record of {path.name}")
        # The training and the test part of a data set use the same file names.
        own = path.parent / digit_struct.FILE
        if own.is_file() and not own.samefile(truth):
            raise UsageError(f"--truth {truth} does not describe {path}: {own} does")
    if len({path.name for path in images}) < len(images):
        raise UsageError(f"--truth {truth}: some of the images have the same name; give them one folder at a time")
    return {path.name: records[path.name] for path in images}


def _share(correct: list[bool]) -> str:
    from milbench.report.statistics.intervals import share_interval

    bounds = share_interval(sum(correct), len(correct))
    share, low, high = (100 * v for v in (sum(correct) / len(correct), *bounds))
    count = f"{sum(correct)} of {len(correct)} read correctly"
    return f"{count}: {share:.1f} % (Wilson's 95 % interval {low:.1f} to {high:.1f} %)"


def _check_out(out: Path, images: Sequence[Path], outputs: Sequence[Path]) -> None:
    """Refuse an `--out` that is no folder, cannot be written, or where an output would replace an image or another."""
    _check_folder(out, out)
    inputs = {path.resolve() for path in images}
    taken: set[str] = set()
    for place in outputs:
        if place.resolve() in inputs:
            raise UsageError(f"--out {out}: {place} is one of the images and would be overwritten")
        if place.is_dir():
            raise UsageError(f"--out {out}: {place} is a folder")
        if place.name.casefold() in taken:
            raise UsageError(f"--out {out}: {place} would be written for two images; give them one at a time")
        taken.add(place.name.casefold())


def _check_folder(folder: Path, out: Path) -> None:
    """Refuse an `--out` whose folder cannot be created or written."""
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise UsageError(f"--out {out}: {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK):
        raise UsageError(f"--out {out}: cannot write in {nearest}")


def _save(path: Path, page: Any) -> None:
    write_atomically(path, lambda temporary: page.save(temporary, format="PNG"))
