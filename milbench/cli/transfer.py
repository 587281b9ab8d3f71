"""`milbench export` and `milbench import`: move the runs of a comparison from one store to another, as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from milbench._utils.files import write_atomically
from milbench.cli import options
from milbench.errors import UsageError, as_usage
from milbench.store.existing import existing_workspace

Form = Literal["archive", "csv", "json", "parquet"]


def export(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    name: options.ComparisonArgument = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="archive: a zip file for milbench import; else a table, a row a cell and metric. Default: by the "
            "ending of the file, an archive where that is none of these.",
        ),
    ] = None,
    no_weights: Annotated[bool, typer.Option("--no-weights", help="Leave out the trained networks.")] = False,
    no_gallery: Annotated[bool, typer.Option("--no-gallery", help="Leave out the galleries of test bags.")] = False,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Add cells that were interrupted, with the checkpoints they go on from."),
    ] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write a comparison to one file: its runs, for `milbench import` on another machine, or its metrics as a table."""
    from milbench._utils.console import console
    from milbench.store.reader import StoreReader
    from milbench.store.transfer.export import WEIGHTS_AND_GALLERY
    from milbench.store.transfer.export import export as write

    endings: dict[str, Form] = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
    wanted: Form = form or endings.get(out.suffix.lower(), "archive")
    if wanted != "archive":
        if no_weights or no_gallery or unfinished:
            raise UsageError(
                "--no-weights, --no-gallery and --unfinished are for --format archive, and not for a table"
            )
        console.print(_write_table(name, root, out, wanted), soft_wrap=True, markup=False)
        return 0
    left_out = dict(zip(WEIGHTS_AND_GALLERY, (no_weights, no_gallery), strict=True))
    store = StoreReader(existing_workspace(root))
    message = write(store, name, out, [file for file, leave in left_out.items() if leave], unfinished=unfinished)
    console.print(message, soft_wrap=True, markup=False)
    return 0


def _write_table(name: str | None, root: Path, out: Path, form: Literal["csv", "json", "parquet"]) -> str:
    """Write the metrics of a comparison as a table, and return what was written in a sentence."""
    from milbench.report.study import Study
    from milbench.report.tidy import tidy_frame
    from milbench.store.collect import collect
    from milbench.store.reader import StoreReader

    if out.is_dir():
        raise UsageError(f"--out {out} is a folder: name the file, such as {out / 'metrics'}.{form}")
    frame = tidy_frame(Study(collect(StoreReader(existing_workspace(root)), name)))
    write: dict[str, Callable[[Path], object]] = {
        "csv": lambda path: frame.to_csv(path, index=False),
        "json": lambda path: frame.to_json(path, orient="records", lines=True),
        "parquet": frame.to_parquet,
    }
    with as_usage():
        write_atomically(out, write[form])
    return f"wrote {len(frame):,} rows of {frame['cell'].nunique():,} cells to {out}"


def import_(
    file: Annotated[Path, typer.Argument(help="A file that `milbench export` wrote.")],
    root: options.RootOption = options.HERE,
) -> int:
    """Add the runs of an export to the store. Either all of them are added, or none, with the reason in one line."""
    from milbench._utils.console import console
    from milbench.store.transfer.import_ import import_ as read
    from milbench.store.workspace import Workspace

    console.print(read(file, Workspace(root)), soft_wrap=True, markup=False)
    return 0
