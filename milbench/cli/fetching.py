"""Fetching the built-in data sets that a comparison lacks, before anything of it is planned or printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from milbench._utils.console import console
from milbench.cli import options
from milbench.errors import UsageError, as_usage

if TYPE_CHECKING:
    from milbench.data.catalog import Dataset, DatasetStatus
    from milbench.engine.spec import Spec

ASK_ABOVE = 100_000_000
"""Bytes; a larger download needs a yes."""


def fetch_missing(spec: Spec, *, download: bool | None, dry_run: bool) -> None:
    """Fetch the data sets that a spec needs and that are missing, if the user agrees.

    `download` is what the user said: yes, no, or nothing. Raises UsageError, before anything is fetched, where data are
    missing and may not be fetched, or where a library that reads them is not installed. In a dry run missing data are
    fetched only where `download` is yes; otherwise a line says that they are missing.
    """
    from milbench.data import catalog
    from milbench.engine.data_needs import needed_datasets

    needed = needed_datasets(spec)
    if not needed:
        return
    for dataset in needed:
        dataset.check_extra()
    root = catalog.data_dir(spec.run.data_dir)
    missing = [dataset for dataset in needed if dataset.missing(root)]
    if not missing:
        return
    if dry_run and not download:
        options.say(f"{_described(missing, root)}; a dry run downloads nothing without --download")
        return
    for dataset in missing:
        if not _may_fetch(dataset, download):
            raise UsageError(_refusal(missing, root))
    for dataset in missing:
        fetch(dataset.name, root)


def fetch(name: str, root: Path) -> DatasetStatus:
    """Fetch a data set, and print what it is, that it was checked and where it is. Raises UsageError."""
    from milbench.data import catalog

    dataset = catalog.named(name)
    if dataset.missing(root):
        options.say(f"fetching {name} into {root} ({dataset.about})")
    with as_usage():
        status = catalog.fetch(name, root)
    checked = "; its checksums are as published" if dataset.size else ""
    options.say(f"{name} is {status.state} in {status.path}{checked}")
    return status


def _may_fetch(dataset: Dataset, download: bool | None) -> bool:
    """Return whether a data set may be fetched: as the user said, or answers to a question about a large one."""
    if download is not None:
        return download
    if not has_terminal():
        return False
    if dataset.size <= ASK_ABOVE:
        return True
    return typer.confirm(f"fetch {dataset.name} ({dataset.about})?")


def has_terminal() -> bool:
    """Return whether there is somebody to ask."""
    return sys.stdin.isatty() and console.is_terminal


def _refusal(missing: list[Dataset], root: Path) -> str:
    from milbench.data.catalog import ENVIRONMENT

    place = missing[0].parts[0].path.partition("/")[0]
    return (
        f"{_described(missing, root)}; add --download to get what is missing, or point --data-dir or "
        f"{ENVIRONMENT} at a folder with {place}"
    )


def _described(missing: list[Dataset], root: Path) -> str:
    names = ", ".join(f"{dataset.name} ({dataset.about})" for dataset in missing)
    return f"not in {root}: {names}"
