"""`milbench report`: the page of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from milbench.cli import options
from milbench.errors import UsageError
from milbench.store.existing import existing_workspace


def report(
    name: options.ComparisonArgument = None,
    gallery: options.GalleryOption = "all",
    figures: options.FiguresOption = "all",
    runs: Annotated[
        bool,
        typer.Option(
            "--runs",
            help="Put the runs beside the page, for milbench import; without this, those of an earlier report go.",
        ),
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write the report of a comparison. reports/NAME then holds index.html, report.md, results.csv and figures."""
    page = write_report(name, root, gallery=gallery, figures=figures, runs=runs)
    if open_it:
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def write_report(
    name: str | None,
    root: Path,
    *,
    gallery: Literal["all", "none"],
    figures: Literal["all", "few"] = "all",
    runs: bool = False,
) -> Path:
    """Write the report of a comparison, print where its page is and what it says first, and return the page.

    Args:
        name: name of the comparison; None: the one launched last.
        root: the folder of the workspace.
        gallery: "all" draws the galleries of test bags, "none" leaves them out.
        figures: "all" draws every figure of every task, "few" every seed alone and what concerns all tasks.
        runs: whether the runs are put beside the page, in runs.zip, without trained networks and galleries.

    Returns:
        The path of the page, index.html.
    """
    from rich.text import Text

    from milbench._utils.console import console, plain
    from milbench.report.answer import answer
    from milbench.report.render import render
    from milbench.report.study import Study
    from milbench.store.collect import collect
    from milbench.store.reader import StoreReader
    from milbench.store.transfer.export import WEIGHTS_AND_GALLERY, export

    workspace = existing_workspace(root)
    store = StoreReader(workspace)
    results = collect(store, name)
    if runs and not results.cells["status"].isin(["done", "failed"]).any():
        raise UsageError(f"no cell of {results.name} is done or failed: there are no runs to put beside the report")
    out = workspace.reports / results.name
    study = Study(results)
    write_runs = (lambda path: export(store, results.name, path, WEIGHTS_AND_GALLERY)) if runs else None
    render(study, out, gallery=gallery, figures=figures, write_runs=write_runs)
    page = out / "index.html"
    console.print(Text.assemble("wrote ", (plain(str(page)), "cyan")), soft_wrap=True)
    console.print(Text(plain(answer(study)[0]), style="bold"), soft_wrap=True)
    return page
