"""`milbench report`: the page of a comparison."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from milbench.cli import options
from milbench.errors import UsageError


def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Comparisons, to put side by side; default: the one launched last."),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Render the published report in FOLDER again."
        ),
    ] = None,
    gallery: options.GalleryOption = True,
    publish: Annotated[
        bool,
        typer.Option("--publish", help="Also write the files from which --from rebuilds the page."),
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    root: options.RootOption = options.HERE,
) -> int:
    """Write the report of a comparison: reports/NAME/ with index.html, report.md, table.tex and pictures.

    Example: milbench report demo --open
    """
    if from_ is not None and (names or publish):
        raise UsageError("--from reads a published report: give neither NAME nor --publish with it")
    page = write_report(names or [], root, gallery=gallery, publish=publish, published=from_)
    if open_it:
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def write_report(
    names: Sequence[str],
    root: Path,
    *,
    gallery: bool = True,
    publish: bool = False,
    published: Path | None = None,
) -> Path:
    """Write the report of comparisons side by side, or of a published one; print its sentence; return its page."""
    from milbench._utils.console import plain, write_line
    from milbench.report.combine import combine
    from milbench.report.published_reports import read, save
    from milbench.report.render import KEPT, PICTURES, render, sentence
    from milbench.store.folders import Root, damaged
    from milbench.store.folders import results as results_of

    parts = (
        [read(published)]
        if published
        else [results_of(root, name) for name in names] or [results_of(root)]
    )
    if not published:
        options.say(*Root(root).not_plans())
    for part in parts if not published else ():
        options.say(*damaged(part.plan, Root(root).states(part.plan.cells)))
    results = combine(parts) if parts[1:] else parts[0]
    out = Root(root).reports / results.plan.name
    # Some pictures cannot be drawn again from what is published, so that their files are kept.
    if published is not None and published.resolve() != out.resolve():
        (out / PICTURES).mkdir(parents=True, exist_ok=True)
        for start in KEPT:
            for picture in (published / PICTURES).glob(f"{start}-*.png"):
                shutil.copy2(picture, out / PICTURES)
    # On stderr, so that what the command prints on stdout stays the answer alone.
    page = render(
        results, out, gallery=gallery, tell=lambda line: write_line(sys.stderr, plain(line))
    )
    if publish:
        save(results, out)
    options.say(sentence(results), style="bold", then=("open", str(page)))
    return page.resolve()
