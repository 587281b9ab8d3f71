"""`milbench report`: the page of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from milbench.cli import options
from milbench.errors import UsageError


def report(
    name: options.ComparisonArgument = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="Rebuild the page of a published report in FOLDER."),
    ] = None,
    gallery: options.GalleryOption = True,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write the small files from which --from rebuilds the page.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write the report of a comparison.

    The folder reports/NAME then has index.html, report.md, table.tex and pictures.

    Example: milbench report demo --open
    """
    if from_ is not None and (name is not None or publish):
        raise UsageError("--from names what is reported: give neither NAME nor --publish with it")
    page = write_report(name, root, gallery=gallery, publish=publish, published=from_)
    if open_it:
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def write_report(
    name: str | None, root: Path, *, gallery: bool = True, publish: bool = False, published: Path | None = None
) -> Path:
    """Write the report of a comparison, or of a published folder; print its sentence and its path; return its page.

    To `publish` is to keep the small files too from which the page is made again.
    """
    from rich.text import Text

    from milbench._utils.console import console, plain
    from milbench.report.published import keep, read
    from milbench.report.render import render, sentence

    if published is not None:
        results, out = read(published), published
    else:
        from milbench.engine.folders import results as results_of

        results = results_of(root, name)
        out = root / "reports" / results.plan.name
    page = render(results, out, gallery=gallery)
    if publish:
        keep(results, out)
    line = Text.assemble((plain(sentence(results)), "bold"), " ", (plain(str(page)), "cyan"))
    console.print(line, soft_wrap=True)
    return page.resolve()
