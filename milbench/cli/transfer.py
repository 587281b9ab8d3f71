"""`milbench export` and `milbench import`: move the runs of a comparison from one store to another, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from milbench.cli import options


def export(
    out: Annotated[Path, typer.Option(help="The zip file to write.")],
    name: options.ComparisonArgument = None,
    no_weights: Annotated[bool, typer.Option("--no-weights", help="Leave out the trained networks.")] = False,
    no_gallery: Annotated[bool, typer.Option("--no-gallery", help="Leave out the galleries of test bags.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write a comparison to one file. It holds the done and failed cells, for `milbench import` on another machine."""
    from milbench.cli.console import console
    from milbench.store.reader import StoreReader
    from milbench.store.transfer.export import export as write

    left_out = {"model.safetensors": no_weights, "gallery.npz": no_gallery}
    store = StoreReader(options.existing_workspace(root))
    message = write(store, name, out, [file for file, leave in left_out.items() if leave])
    console.print(message, soft_wrap=True, markup=False)
    return 0


def import_(
    file: Annotated[Path, typer.Argument(help="A file that `milbench export` wrote.")],
    root: options.RootOption = options.HERE,
) -> int:
    """Add the runs of an export to the store. Either all of them are added, or none, with the reason in one line."""
    from milbench.cli.console import console
    from milbench.store.transfer.import_ import import_ as read
    from milbench.store.workspace import Workspace

    console.print(read(file, Workspace(root)), soft_wrap=True, markup=False)
    return 0
