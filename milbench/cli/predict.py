"""What `milbench predict` and `milbench figure` do, behind the command line's parsing."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from milbench._utils.files import write_atomically
from milbench.cli.commands import console, existing
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    from PIL.Image import Image

    from milbench.inference.load import Trained
    from milbench.inference.predict import Decoder, Prediction

SENSITIVITY = "-sensitivity.png"


@dataclass(frozen=True)
class PredictRequest:
    """What the user request `milbench predict` for."""

    images: list[Path]
    run: str
    out: Path
    device: str = "auto"
    decoder: Decoder | None = None
    scale: str | None = None
    truth: Path | None = None
    positions: bool = False
    sensitivity: bool = False
    invert: bool = False
    data_dir: Path | None = None

    def outputs(self, name: str) -> list[Path]:
        """Return the files that are written of the picture of that name."""
        endings = (".png", ".json", SENSITIVITY) if self.sensitivity else (".png", ".json")
        return [self.out / (name + ending) for ending in endings]


def predict(request: PredictRequest, root_path: Path) -> int:
    """Read every picture; all of them are looked at before the first file is written."""
    from milbench._utils import images
    from milbench.inference.predict import as_json, chosen_decoder, set_name, spelled
    from milbench.inference.scale_search import look, scale_of, sizes

    model = _model(request.run, root_path, request.device, request.data_dir)
    chosen_decoder(model, request.decoder)
    scale = scale_of(model, request.scale)
    truth = _truth(request, model)
    names = images.names(request.images)
    with as_usage():
        _check_out(request, names)
    for path in request.images:
        picture = _prepared(model, path, request.invert)
        try:
            sizes(model, picture.size, scale)
        except UsageError as error:
            raise UsageError(f"{path} is too small where it is looked at, {error}") from None
    table = Table(title=f"{model.cell}, run {model.run_id}", title_justify="left")
    for heading in ("picture", "seen at", "reads", "label set", "probability", "written"):
        table.add_column(heading)
    right = []
    for path, name in zip(request.images, names, strict=True):
        picture = _prepared(model, path, request.invert)
        seen, found = look(model, picture, scale, request.decoder)
        about = as_json(model, path, picture.size, seen.size, found, positions=request.positions)
        reading = spelled(model, found)
        reads = f"{reading or 'nothing'} ({found.decoder})"
        if truth:
            about["truth"] = truth[path.name]
            right.append(reading == truth[path.name])
            reads += " ✓" if right[-1] else f" ✗ {truth[path.name]}"
        page = _page(model, seen, found)
        with as_usage():
            _write(request.out / f"{name}.json", json.dumps(about, indent=None if request.positions else 1) + "\n")
            _save(request.out / f"{name}.png", page)
        if request.sensitivity:
            heat = _sensitivity_page(model, seen, found)
            with as_usage():
                _save(request.out / (name + SENSITIVITY), heat)
        sets = set_name(model, found.labels), f"{about['label_set_probability']:.3g}"
        size = f"{seen.width}x{seen.height}"
        table.add_row(*map(escape, (str(path), size, reads, *sets, _written(request, name))))
    console.print(table)
    if truth:
        console.print(_share(right), highlight=False)
    return 0


def figure(number: str, run: str, out: Path, seed: int, root_path: Path, device: str, data_dir: Path | None,
           decoder: Decoder | None, scale: str | None = None) -> int:  # fmt: skip
    """Draw a figure of the paper."""
    from milbench.inference import paper_figures
    from milbench.inference.scale_search import scale_of

    with as_usage():
        if out.is_dir():
            raise UsageError(f"--out {out} is a folder: name the file, such as {out / f'figure-{number}.png'}")
        _check_folder(out.parent, out)
    if scale is not None and number != "4":
        raise UsageError(f"--scale is for figure 4: figure {number} shows crops of one size")
    model = _model(run, root_path, device, data_dir)
    page, notes = paper_figures.draw(number, model, seed, data_dir, decoder, scale_of(model, scale or "1"))
    with as_usage():
        _save(out, page)
    for note in notes:
        console.print(escape(note), soft_wrap=True, highlight=False)
    console.print(f"wrote {escape(str(out))}", soft_wrap=True, highlight=False)
    return 0


def _model(run: str, root_path: Path, device: str, data_dir: Path | None) -> Trained:
    from milbench._utils.devices import resolve
    from milbench.inference.load import load
    from milbench.store.mlflow_store import Store

    where = resolve(device)
    return load(Store(existing(root_path)), run, where, data_dir)


def _prepared(model: Trained, path: Path, invert: bool) -> Image:
    """Return a picture as it is, or its negative. Raises UsageError where it cannot be read or the task has none."""
    from PIL import ImageOps

    from milbench._utils import images

    picture = images.open_picture(path)
    model.task.instances_from(picture.resize((1, 1)))
    return ImageOps.invert(picture) if invert else picture


def _truth(request: PredictRequest, model: Trained) -> dict[str, str]:
    """Return what each picture holds, by its file name: from a digitStruct.mat, or nothing where none is given."""
    from milbench.data import digit_struct

    if request.truth is None:
        return {}
    digits = [str(d) for d in range(10)]
    if model.task.class_names != digits:
        raise UsageError(f"--truth {request.truth}: it is about digits, {model.cell.task} has other classes")
    if not request.truth.is_file():
        raise UsageError(f"--truth {request.truth}: expected a digitStruct.mat as SVHN has it")
    records = {record.name: "".join(digits[c] for c in record.classes) for record in digit_struct.read(request.truth)}
    for path in request.images:
        if path.name not in records:
            raise UsageError(f"--truth {request.truth} has no record of {path.name}")
        # All parts of a data set name their pictures alike.
        own = path.parent / digit_struct.FILE
        if own.is_file() and not own.samefile(request.truth):
            raise UsageError(f"--truth {request.truth} is not about {path}: {own} is")
    if len({path.name for path in request.images}) < len(request.images):
        raise UsageError(
            f"--truth {request.truth}: some of the pictures have the same name; give them one folder at a time"
        )
    return {path.name: records[path.name] for path in request.images}


def _share(right: list[bool]) -> str:
    """Return how many of the pictures were read right, with Wilson's interval."""
    from scipy.stats import binomtest

    interval = binomtest(sum(right), len(right)).proportion_ci(0.95, method="wilson")
    share, low, high = (100 * v for v in (sum(right) / len(right), interval.low, interval.high))
    return f"{sum(right)} of {len(right)} read right: {share:.1f} % (Wilson's 95 % interval {low:.1f} to {high:.1f} %)"


def _check_out(request: PredictRequest, names: list[str]) -> None:
    """Refuse a folder that is none, that cannot be written, or where an output would take the place of a picture."""
    _check_folder(request.out, request.out)
    inputs = {path.resolve() for path in request.images}
    taken: set[str] = set()
    for place in (place for name in names for place in request.outputs(name)):
        if place.resolve() in inputs:
            raise UsageError(f"--out {request.out}: {place} is one of the pictures and would be overwritten")
        if place.is_dir():
            raise UsageError(f"--out {request.out}: {place} is a folder")
        if place.name.casefold() in taken:
            raise UsageError(f"--out {request.out}: {place} would be written of two pictures; give them one at a time")
        taken.add(place.name.casefold())


def _check_folder(folder: Path, out: Path) -> None:
    """Refuse a folder for `--out` that cannot be made or written."""
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise UsageError(f"--out {out}: {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK):
        raise UsageError(f"--out {out}: cannot write in {nearest}")


def _page(model: Trained, picture: Image, found: Prediction) -> Any:
    from milbench.inference.overlay import captioned, enlargement, overlay
    from milbench.inference.paper_figures import lines

    factor = enlargement(*picture.size)
    return captioned(overlay(picture, found, model.task.class_names, factor), lines(model, found))


def _sensitivity_page(model: Trained, picture: Image, found: Prediction) -> Any:
    from milbench.inference.overlay import Line, captioned, enlargement, sensitivity_overlay
    from milbench.inference.paper_figures import lines
    from milbench.inference.predict import sensitivities

    factor = enlargement(*picture.size)
    image = sensitivity_overlay(picture, found, sensitivities(model, picture, found), model.task.class_names, factor)
    meaning = Line("colour: the class that depends most on a pixel, and how much of its largest dependence", 13)
    return captioned(image, [*lines(model, found), meaning])


def _written(request: PredictRequest, name: str) -> str:
    first, *others = request.outputs(name)
    return ", ".join([str(first), *(place.name.removeprefix(name) for place in others)])


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text, "utf-8"))


def _save(path: Path, page: Any) -> None:
    write_atomically(path, lambda temporary: page.save(temporary, format="PNG"))
