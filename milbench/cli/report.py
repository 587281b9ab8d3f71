"""`milbench report`: the page of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from milbench.cli import options
from milbench.engine.folders import Root, results


def report(
    name: options.ComparisonArgument = None,
    gallery: options.GalleryOption = "all",
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write the report of a comparison into reports/NAME."""
    page = write_report(name, root, gallery=gallery)
    if open_it:
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def write_report(name: str | None, root: Path, *, gallery: Literal["all", "none"]) -> Path:
    """Write the report of a comparison, print where its page is and what it says first, and return the page."""
    from milbench.report.render import render

    found = results(root, name)
    return render(found, Root(root).reports / found.plan.name, gallery=gallery == "all")
