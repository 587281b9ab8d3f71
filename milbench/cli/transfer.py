"""`milbench export` and `milbench import`: move a comparison from one store to another, as a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from milbench._utils.files import write_atomically
from milbench.cli import options
from milbench.engine.folders import Root, results
from milbench.errors import UsageError, as_usage


def export(
    out: Annotated[Path, typer.Option(help="File to write: .zip for milbench import, .csv or .json for a table.")],
    name: options.ComparisonArgument = None,
    no_weights: Annotated[bool, typer.Option("--no-weights", help="Leave out the trained networks.")] = False,
    no_gallery: Annotated[bool, typer.Option("--no-gallery", help="Leave out the galleries of test bags.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write a comparison to a .zip file, or its metrics to a table.

    The .zip file is for `milbench import`. A cell that was stopped takes its checkpoint along and can be continued on
    the other machine.

    Example: milbench export demo --out demo.zip
    """
    from milbench._utils.console import console
    from milbench.engine import archive

    if out.suffix.lower() in (".csv", ".json"):
        if no_weights or no_gallery:
            raise UsageError("--no-weights and --no-gallery are for a .zip file, and not for a table")
        frame = results(root, name).frame
        csv, json = partial(frame.to_csv, index=False), partial(frame.to_json, orient="records", lines=True)
        with as_usage():
            write_atomically(out, csv if out.suffix.lower() == ".csv" else json)
        summary = f"wrote {len(frame):,} rows of {frame['cell'].nunique():,} cells to {out}"
        console.print(summary, soft_wrap=True, markup=False)
        return 0
    if out.suffix.lower() != ".zip" and not out.is_dir():
        raise UsageError(f"--out {out}: expected a name that ends in .zip, .csv or .json")
    left_out = ["weights.safetensors"] * no_weights + ["gallery.npz"] * no_gallery
    console.print(archive.export(Root(root), name, out, left_out), soft_wrap=True, markup=False)
    return 0


def import_(
    file: Annotated[Path, typer.Argument(help="A .zip file that milbench export wrote.")],
    root: options.RootOption = options.HERE,
) -> int:
    """Add the cells of an export to the store.

    All of them are added, or none if the file is damaged. Cells that are done in the store stay as they are.

    Example: milbench import demo.zip
    """
    from milbench._utils.console import console
    from milbench.engine import archive

    console.print(archive.import_(file, Root(root)), soft_wrap=True, markup=False)
    return 0
