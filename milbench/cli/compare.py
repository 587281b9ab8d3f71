"""`milbench compare`: what changed between two comparisons, beyond noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from milbench.cli import options
from milbench.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

    from milbench.report.changes import Changes, Row
    from milbench.report.tables import Entry

_COLOURS = {"good": "green", "bad": "red"}


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="NAME, NAME@COMMIT, NAME@LAUNCH, or the file of an export.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same: what is compared with A.")],
    metric: Annotated[str | None, typer.Option(help="Test metric; default: the leading one of each task.")] = None,
    margin: Annotated[
        float | None, typer.Option(min=0, help="Largest difference that counts as none: 0.01 is one point.")
    ] = None,
    fail_on: Annotated[
        Literal["worse"] | None, typer.Option("--fail-on", help="Exit with 1 if a loss is worse beyond noise.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for index.html, compare.md and compare.csv.")] = None,
    root: options.RootOption = options.HERE,
    root_a: Annotated[Path | None, typer.Option(help="Folder with the store of A; default: --root.")] = None,
    root_b: Annotated[Path | None, typer.Option(help="Folder with the store of B; default: --root.")] = None,
) -> int:
    """Show what changed from A to B: which losses are better or worse beyond noise, on which task."""
    from milbench._utils.console import console
    from milbench.comparison.changes import changes as found_changes
    from milbench.report.changes_page import changes_sentence, write_changes

    changes = found_changes(a, b, metric=metric, margin=margin, root=root, root_a=root_a, root_b=root_b)
    if fail_on is not None:
        _check_judged(changes)
    console.print(_table(changes))
    console.print(changes_sentence(changes), soft_wrap=True, highlight=False, markup=False)
    if out is not None:
        console.print(f"wrote {write_changes(changes, out)}", soft_wrap=True, highlight=False, markup=False)
    return int(fail_on is not None and bool(changes.worse))


def _check_judged(changes: Changes) -> None:
    """Raise UsageError where nothing could come out as worse: a test that cannot fail tests nothing."""
    if any(row.is_judged or row.is_lost or row.failed_seeds for row in changes.rows):
        return
    row = changes.rows[0]
    raise UsageError(
        f"--fail-on worse cannot judge anything: the first of {len(changes.rows)}, {row.b.label}, has {_seeds(row)}; "
        "an interval needs three seeds with a result in A and in B, which are not all the same"
    )


def _seeds(row: Row) -> str:
    from milbench.report.formatting import counted

    counts = [len(place.sample(row.name).by_seed) for place in (row.a, row.b)]
    return f"{counted(counts[0], 'seed')} in A and {counts[1]} in B"


def _table(changes: Changes) -> RichTable:
    """Return the table of the page without what only a page has room for."""
    from rich.table import Table

    from milbench.report.changes_page import changes_table

    shown = changes_table(changes)
    table = Table(title=_text(shown.title, "italic"))
    columns = [n for n, head in enumerate(shown.columns) if head != "what differs"]
    for n in columns:
        table.add_column(shown.columns[n], overflow="fold")
    for name, lines in shown.groups:
        table.add_section()
        table.add_row(_text(name, "bold"))
        for line in lines:
            table.add_row(*(_field(line[n]) for n in columns[:-1]), _text(_with_detail(line[-1]), ""))
    return table


def _field(entry: Entry) -> Text:
    return _text(entry.text, _COLOURS.get(entry.tone, ""))


def _with_detail(entry: Entry) -> str:
    return f"{entry.text}: {entry.detail}" if entry.detail else entry.text


def _text(text: str, style: str) -> Text:
    from rich.text import Text

    from milbench._utils.console import plain

    return Text(plain(text), style)
