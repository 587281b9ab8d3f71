"""Fetching the built-in data sets that a comparison lacks, before it is planned."""

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
    from milbench.experiment.launch_settings import Launch
    from milbench.experiment.spec import Spec

ASK_ABOVE = 100_000_000
"""The size in bytes above which the user is asked before a download."""


def fetch_missing(spec: Spec, launch: Launch, *, download: bool | None) -> None:
    """Fetch the data sets that a spec needs and that are missing, if the user agrees.

    `download` is True with the flag `--download`, False with `--no-download`, and None without
    either. A dry run fetches only with `--download`, and otherwise prints a line that says what is
    missing. Raises UsageError if some of the missing data may not be fetched, or if a library that
    reads them is not installed. Nothing is fetched then.
    """
    from milbench.data import catalog
    from milbench.running.data_needs import needed_datasets

    needed = needed_datasets(spec)
    if not needed:
        return
    # Some data sets are read by a library that is not installed with milbench itself.
    for dataset in needed:
        dataset.check_extra()
    root = catalog.data_dir(launch.execution.data_dir)
    missing = [dataset for dataset in needed if dataset.missing(root)]
    if not missing:
        return
    if launch.dry_run and not download:
        options.say(f"{_described(missing, root)}; a dry run downloads nothing without --download")
        return
    # Ask about all data sets before fetching the first one, which may take long.
    for dataset in missing:
        if not _is_allowed(dataset, download):
            raise UsageError(_refusal(missing, root))
    for dataset in missing:
        fetch_and_report(dataset.name, root)


def fetch_and_report(name: str, root: Path) -> DatasetStatus:
    """Fetch a data set, and print where it is and how it was checked.

    Raises UsageError if the data set cannot be fetched.
    """
    from milbench.data import catalog

    dataset = catalog.named(name)
    if dataset.missing(root):
        options.say(f"fetching {name} into {root} ({dataset.about})")
    with as_usage():
        status = catalog.fetch(name, root)
    checked = status.note or "its checksums are as published"
    options.say(f"{name} is {status.state} in {status.path}; {checked}")
    return status


def _is_allowed(dataset: Dataset, download: bool | None) -> bool:
    """Return whether a data set may be fetched. The user may be asked.

    The flag `download` decides. Without the flag nothing is fetched unless there is a terminal. On
    a terminal a small data set is fetched, and the user is asked about a large one, see ASK_ABOVE.
    """
    if download is not None:
        return download
    if not has_terminal():
        return False
    if dataset.size <= ASK_ABOVE:
        return True
    return typer.confirm(f"fetch {dataset.name} ({dataset.about})?")


def has_terminal() -> bool:
    """Return whether a user can read a question and answer it."""
    return sys.stdin.isatty() and console.is_terminal


def _refusal(missing: list[Dataset], root: Path) -> str:
    """Return the message that data are missing and may not be fetched, with remedies."""
    from milbench.data.catalog import ENVIRONMENT

    # A part is a file or folder of a data set. Its path is relative to the data folder, and begins
    # with the folder of the data set.
    folders = [dataset.parts[0].path.partition("/")[0] for dataset in missing]
    # Two data sets may be in one folder.
    needed = " and ".join(dict.fromkeys(folders))
    return (
        f"{_described(missing, root)}; add --download to get what is missing, "
        f"or point --data-dir or {ENVIRONMENT} at a folder with {needed}"
    )


def _described(missing: list[Dataset], root: Path) -> str:
    """Say where data sets are missing, and what each of them is."""
    names = ", ".join(f"{dataset.name} ({dataset.about})" for dataset in missing)
    return f"not in {root}: {names}"
