"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from milbench.api.decoder import Decoder

SeveralNames = Annotated[
    str | None, typer.Option(help="Names, Python files or modules (PACKAGE.MODULE:CLASS), separated by commas.")
]
RootOption = Annotated[Path, typer.Option("--root", help="Folder with runs/ (the store) and reports/.")]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", envvar="MILBENCH_DATA", help="Folder of the data sets.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
DevicesOption = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda (every GPU) or cuda:N.")]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Cells computed at a time; default: one per core, or one per GPU.")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--set",
        help="recipe.KEY=V, loss.KEY=V, loss.NAME.KEY=V or task.KEY=V, where V1,V2 makes an axis; or run.KEY=V: "
        "threads, timeout, jobs_per_device, in_process.",
    ),
]
RerunOption = Annotated[
    Literal["missing", "failed", "all"] | None, typer.Option("--rerun", help="Which cells to compute again.")
]
OutputOption = Annotated[
    Literal["text", "quiet", "json"], typer.Option("--output", help="Tables and bars, failures alone, or JSON lines.")
]
SeedsOption = Annotated[str | None, typer.Option(help="Such as 0-9 or 0,2,5.")]
PresetOption = Annotated[str | None, typer.Option(help="Preset of a spec that has several; default: the first.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show plan, recipes and expected time, and stop.")]
GalleryOption = Annotated[bool, typer.Option("--gallery/--no-gallery", help="Show test bags in the report.")]
ComparisonArgument = Annotated[
    str | None, typer.Argument(help="Name of the comparison; default: the one launched last.")
]
TrainedCellOption = Annotated[
    str,
    typer.Option("--cell", help="Id of a cell (see milbench status) or of its MLflow run, or its first characters."),
]
DecoderOption = Annotated[
    Decoder | None,
    typer.Option("--decoder", help="How strings are read; default: the decoder chosen by the cell, else the task's."),
]
ScaleOption = Annotated[
    str | None,
    typer.Option("--scale", help="Enlarge images by this factor first; auto (house numbers only): try several."),
]

HERE = Path()
"""The default of `--root`."""


def command_line() -> str:
    """Return the command as the user typed it, quoted for a shell."""
    return shlex.join(["milbench", *sys.argv[1:]])


def names(text: str | None) -> list[str] | None:
    """Split a list with commas; an empty text stays one empty name, which is then refused as unknown.

    The path of a file may have commas itself.
    """
    if text is None:
        return None
    # Path.is_file and Path.expanduser raise for some texts that name no file, which are then split as names.
    if "," in text and text.endswith(".py") and os.path.isfile(os.path.expanduser(text)):  # noqa: PTH111, PTH113
        return [text]
    names = [part.strip() for part in text.split(",") if part.strip()]
    return names or [""]
