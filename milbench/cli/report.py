"""`milbench report`: the page of a comparison."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milbench.cli import options
from milbench.errors import UsageError

if TYPE_CHECKING:
    from milbench.store.results import Results


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
    """Write the report of a comparison.

    The folder reports/NAME/ gets index.html, report.md, table.tex and pictures.

    Example: milbench report demo --open
    """
    if from_ is not None and (names or publish):
        raise UsageError("--from reads a published report: give neither NAME nor --publish with it")
    if from_ is None:
        page = write_report(names or [], root, gallery=gallery, publish=publish)
    else:
        page = render_published(from_, root, gallery=gallery)
    if open_it:
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def write_report(
    names: Sequence[str], root: Path, *, gallery: bool = True, publish: bool = False
) -> Path:
    """Write the report of one comparison, or of several side by side, and return its page.

    Its sentence, which says what it found, is printed. Without names, it is the report of the
    comparison launched last.
    """
    from milbench.report.combine import combine
    from milbench.report.published_reports import save
    from milbench.store.folders import Root, cell_problems
    from milbench.store.folders import results as results_of

    store = Root(root)
    chosen: Sequence[str | None] = names or [None]
    parts = [results_of(root, name) for name in chosen]
    options.say(*store.not_plans())
    for part in parts:
        options.say(*cell_problems(part.plan, store.states(part.plan.cells)))
    results = combine(parts) if len(parts) > 1 else parts[0]
    if publish:
        results = replace(results, is_published=True)
    out = store.reports / results.plan.name
    page = _write_page(results, out, gallery=gallery)
    if publish:
        save(results, out)
    _say_sentence(results, page)
    return page.resolve()


def render_published(published: Path, root: Path, *, gallery: bool = True) -> Path:
    """Write a published report again, from the files in its folder, and return its page.

    Its sentence is printed.
    """
    from milbench.report.published_reports import read
    from milbench.store.folders import Root

    results = read(published)
    out = Root(root).reports / results.plan.name
    if published.resolve() != out.resolve():
        _copy_kept_pictures(published, out)
    page = _write_page(results, out, gallery=gallery)
    _say_sentence(results, page)
    return page.resolve()


def _copy_kept_pictures(published: Path, out: Path) -> None:
    """Copy the pictures that cannot be drawn again from the published files."""
    from milbench.report.render import CANNOT_BE_DRAWN_AGAIN, PICTURES

    pictures = out / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for start in CANNOT_BE_DRAWN_AGAIN:
        for picture in (published / PICTURES).glob(f"{start}-*.png"):
            shutil.copy2(picture, pictures)


def _write_page(results: Results, out: Path, *, gallery: bool) -> Path:
    """Write a report into a folder, print its remarks on standard error and return its page."""
    from milbench._utils.console import plain, write_line
    from milbench.report.render import render

    def tell(line: str) -> None:
        # On standard error, since standard output is only for the sentence of the report.
        write_line(sys.stderr, plain(line))

    return render(results, out, gallery=gallery, tell=tell)


def _say_sentence(results: Results, page: Path) -> None:
    """Print the sentence of a report, and how to open its page."""
    from milbench.report.render import sentence

    options.say(sentence(results), style="bold", then=("open", str(page)))
