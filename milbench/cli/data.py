"""What the commands of `milbench data` do, behind the command line's parsing."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from milbench.cli.commands import console
from milbench.errors import as_usage


def status(data_dir: Path | None, strict: bool) -> int:
    """Print the state of every data set."""
    from milbench.data import catalog

    with as_usage():
        rows = catalog.status(catalog.data_dir(data_dir))
    table = Table()
    for heading in ("data", "state", "where", "digest", "note"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row.dataset, row.state, str(row.path), row.digest, row.note)
    console.print(table)
    return 1 if strict and any(row.state == "damaged" for row in rows) else 0


def fetch(name: str, data_dir: Path | None) -> int:
    """Download a data set."""
    from milbench.data import catalog

    with as_usage():
        row = catalog.fetch(name, data_dir or catalog.data_dir(None))
    console.print(f"{name} is {row.state} in {row.path}", soft_wrap=True)
    return 0


def make(name: str, data_dir: Path | None, seed: int, train: int, test: int) -> int:
    """Render a data set."""
    from milbench.data import catalog
    from milbench.data.rendering import generate

    with as_usage():
        root = data_dir or catalog.data_dir(None)
        place = generate.make(root, seed, train, test)
        about = catalog.DATASETS[name].remark(root)
    console.print(f"{name} is present in {place}: {about}", soft_wrap=True)
    return 0
