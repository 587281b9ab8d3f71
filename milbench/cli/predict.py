"""`milbench predict` and `milbench figure`: what a trained network reads in pictures, and finds in other bags."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from milbench._utils.files import write_atomically
from milbench.cli import options
from milbench.engine.folders import Root
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    from PIL.Image import Image

    from milbench.api.decoder import Decoder
    from milbench.inference.load import Trained
    from milbench.inference.scale_search import Scale

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
    from milbench.inference.scale_search import parse_scale

    model = _load(cell, root, device, data_dir, needs_data=calibrate)
    if not are_bags(images, model.task):
        if calibrate:
            raise UsageError("--calibrate is for tables, files and folders of bags: pictures have no temperature")
        pictures = Pictures(model, out, decoder, parse_scale(model, scale), positions, sensitivity, invert)
        _read_pictures(pictures, images, _truth(model, truth, images))
        return 0
    of_pictures = {
        "--decoder": decoder, "--scale": scale, "--truth": truth, "--sensitivity": sensitivity, "--invert": invert,
    }  # fmt: skip
    for option, value in of_pictures.items():
        if value:
            raise UsageError(f"{option} is for pictures: {images[0]} holds bags, of which a table is written")
    write_predicted_bags(model, images, out, positions=positions, calibrate=calibrate)
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
    _save(out, page)
    print_lines([*notes, f"wrote {out}"])
    return 0


@dataclass(frozen=True)
class Pictures:
    """How pictures are read, and where what is read in them goes."""

    model: Trained
    out: Path
    decoder: Decoder | None
    scale: Scale
    positions: bool
    sensitivity: bool
    invert: bool

    def outputs(self, name: str) -> list[Path]:
        """Return the files that are written for the image of that name."""
        endings = (".png", ".json", SENSITIVITY) if self.sensitivity else (".png", ".json")
        return [self.out / (name + ending) for ending in endings]

    def open(self, path: Path) -> Image:
        """Return an image, or its negative. Raises UsageError if it cannot be read or the task has no images."""
        from PIL import ImageOps

        from milbench._utils.images import open_image

        image = open_image(path)
        self.model.task.instances_from(image.resize((1, 1)))
        return ImageOps.invert(image) if self.invert else image

    def check_size(self, path: Path) -> None:
        """Refuse an image that cannot be opened, or is too small for the network at every scale."""
        from milbench.inference.scale_search import candidate_sizes

        image = self.open(path)
        try:
            candidate_sizes(self.model, image.size, self.scale)
        except UsageError as error:
            raise UsageError(f"{path} is too small at this scale, {error}") from None

    def write(self, path: Path, name: str, truth: str | None) -> tuple[list[str], str]:
        """Write the files of one image; return its row of the table and the string that is read."""
        from milbench.inference.overlay import prediction_page, sensitivity_page
        from milbench.inference.predict import as_json, label_set_text, reading_text
        from milbench.inference.scale_search import predict_best_scale

        image, model = self.open(path), self.model
        seen, found = predict_best_scale(model, image, self.scale, self.decoder)
        about = as_json(model, path, image.size, seen.size, found, positions=self.positions)
        reading = reading_text(model, found)
        reads = f"{reading or 'nothing'} ({found.decoder})"
        if truth is not None:
            about["truth"] = truth
            reads += " ✓" if reading == truth else f" ✗ {truth}"
        page = prediction_page(model, seen, found)
        text = json.dumps(about, indent=None if self.positions else 1) + "\n"
        with as_usage():
            write_atomically(self.out / f"{name}.json", lambda temporary: temporary.write_text(text, "utf-8"))
        _save(self.out / f"{name}.png", page)
        if self.sensitivity:
            _save(self.out / (name + SENSITIVITY), sensitivity_page(model, seen, found))
        label_set, probability = label_set_text(model, found.labels), f"{about['label_set_probability']:.3g}"
        first, *others = self.outputs(name)
        written = ", ".join([str(first), *(place.name.removeprefix(name) for place in others)])
        return [str(path), f"{seen.width}x{seen.height}", reads, label_set, probability, written], reading


def print_lines(lines: Sequence[str]) -> None:
    """Print lines as they are."""
    from milbench._utils.console import console

    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _read_pictures(pictures: Pictures, images: list[Path], truth: dict[str, str]) -> None:
    """Write the files of every image and print a table of them; all images are checked before the first is written."""
    from rich.table import Table

    from milbench._utils.console import console
    from milbench._utils.images import unique_stems
    from milbench.inference.predict import notes

    names, model = unique_stems(images), pictures.model
    with as_usage():
        _check_out(pictures, images, names)
    for path in images:
        pictures.check_size(path)
    headings = "image", "read at", "reads", "label set", "probability", "written"
    table = Table(*headings, title=f"{model.name}, cell {model.cell_id}", title_justify="left")
    correct = []
    for path, name in zip(images, names, strict=True):
        row, reading = pictures.write(path, name, truth.get(path.name))
        table.add_row(*row)
        correct.append(reading == truth.get(path.name))
    console.print(table, markup=False)
    print_lines([*notes(model), *([_share(correct)] if truth else [])])


def _load(cell: str, root: Path, device: str, data_dir: Path | None, *, needs_data: bool = False) -> Trained:
    from milbench._utils.devices import resolve
    from milbench.inference.load import load_trained

    return load_trained(Root(root), cell, resolve(device), data_dir, needs_data=needs_data)


def _truth(model: Trained, truth: Path | None, images: list[Path]) -> dict[str, str]:
    """Return the true string of each image by its file name, from a digitStruct.mat; empty if none is given."""
    from milbench.data import digit_struct

    if truth is None:
        return {}
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
    import numpy as np

    from milbench.api.outcomes import Outcomes
    from milbench.report.statistics.intervals import share_interval

    bounds = share_interval(Outcomes(np.array(correct), np.ones(len(correct)), "images"))
    share, low, high = (100 * v for v in (sum(correct) / len(correct), *bounds))
    count = f"{sum(correct)} of {len(correct)} read correctly"
    return f"{count}: {share:.1f} % (Wilson's 95 % interval {low:.1f} to {high:.1f} %)"


def _check_out(pictures: Pictures, images: list[Path], names: list[str]) -> None:
    """Refuse an `--out` that is no folder, cannot be written, or where an output would replace an image or another."""
    out = pictures.out
    _check_folder(out, out)
    inputs = {path.resolve() for path in images}
    taken: set[str] = set()
    for place in (place for name in names for place in pictures.outputs(name)):
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


def _save(path: Path, page: Image) -> None:
    with as_usage():
        write_atomically(path, lambda temporary: page.save(temporary, format="PNG"))
