"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from milbench.api.decoder import Decoder
from milbench.errors import UsageError

SeveralNames = Annotated[str | None, typer.Option(help="Names, or paths of Python files, separated by commas.")]
RootOption = Annotated[Path, typer.Option("--root", help="Folder with runs/ (the store) and reports/.")]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", envvar="MILBENCH_DATA", help="Folder of the data sets.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
DevicesOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda (every GPU) or cuda:N.")]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Cells computed at a time; default: one per core, or one per GPU.")
]
JobsPerDeviceOption = Annotated[
    int | None, typer.Option("--jobs-per-device", min=1, help="Cells computed at a time on each GPU; default: 1.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Threads per cell; default: cores / jobs.")]
InProcessOption = Annotated[
    bool, typer.Option("--in-process", help="Compute in this very process, one cell at a time: for a debugger.")
]
TimeoutOption = Annotated[float | None, typer.Option(min=1, max=10_000_000, help="Seconds after which a cell fails.")]
RerunOption = Annotated[
    Literal["missing", "failed", "all"], typer.Option("--rerun", help="Which cells to compute again.")
]
GalleryOption = Annotated[bool, typer.Option("--gallery/--no-gallery", help="Show test bags in the report.")]
ComparisonArgument = Annotated[
    str | None, typer.Argument(help="Name of the comparison; default: the one launched last.")
]
TrainedRunOption = Annotated[
    str, typer.Option("--run", help="Run id or cell id (see milbench status), or its first characters.")
]
DecoderOption = Annotated[
    Decoder | None,
    typer.Option("--decoder", help="How strings are read; default: the decoder chosen by the run, else the task's."),
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


def refuse_timeout_in_process(timeout: float | None, *, in_process: bool) -> None:
    """Raise UsageError where both are given: a cell that takes too long is ended with its process."""
    if timeout is not None and in_process:
        raise UsageError(
            "--timeout and --in-process exclude each other: a cell is ended with its process; use --jobs 1"
        )


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
