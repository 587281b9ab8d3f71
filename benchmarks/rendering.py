"""Measure how long reports take: imports, reading the results, and making the page."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pandas as pd
import typer
from _measuring import QuickOption, show, start

from milbench.errors import UsageError
from milbench.report import published_reports
from milbench.report.render import render
from milbench.store.folders import results as results_of
from milbench.store.results import Results

DEFAULT = ("reports/counts", "reports/missing-labels", "reports/all-losses")
IMPORTS = "import milbench.report.render, milbench.store.folders"
"""The imports of `milbench report`."""


def main(
    reports: Annotated[
        list[str] | None,
        typer.Argument(help="Folders of published reports, or comparisons under --root."),
    ] = None,
    root: Annotated[Path, typer.Option("--root", help="Folder of runs/.")] = Path(),
    quick: QuickOption = False,
) -> None:
    """Measure how long reports take.

    It prints the smallest of 5 repetitions (--quick: 2), in seconds of the processor: other work on
    the machine disturbs these less than the seconds of a clock.

    Example: python benchmarks/rendering.py reports/counts
    """
    repeats = 2 if quick else 5
    names = reports or list(DEFAULT)
    rows = [_row(name, root, repeats) for name in names]
    show(pd.DataFrame(rows), "reports: seconds of the processor, and what they make")
    imports = min(_seconds_of_process(["-c", IMPORTS]) for _ in range(repeats))
    show(pd.DataFrame([{"imports": imports}]), "\nimports of the command: seconds of the processor")


def _row(name: str, root: Path, repeats: int) -> dict[str, Any]:
    """Return the row of a report: its seconds, and how large it is."""
    with TemporaryDirectory() as folder:
        out = Path(folder)
        reading = _least_seconds(lambda: _read(name, root), repeats)
        results = _read(name, root)
        rendering = _least_seconds(lambda: render(results, out), repeats)
        page = (out / "index.html").read_text("utf-8")
        return {
            "report": results.plan.name,
            "cells": len(results.plan.cells),
            "read": reading,
            "render": rendering,
            "pictures": page.count("<figure>"),
            "page (MB)": len(page.encode()) / 1e6,
        }


def _read(name: str, root: Path) -> Results:
    """Return the results of a published report, given its folder, or of a comparison by name."""
    folder = Path(name)
    if (folder / published_reports.PLAN).is_file():
        return published_reports.read(folder)
    return results_of(root, name)


def _least_seconds(fn: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the processor that the quickest of `repeats` calls takes."""
    taken = []
    for _ in range(repeats):
        begun = time.process_time()
        fn()
        taken.append(time.process_time() - begun)
    return min(taken)


def _seconds_of_process(words: list[str]) -> float:
    """Return the seconds of the processor of a Python process with these arguments."""
    process = subprocess.Popen([sys.executable, *words])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise UsageError(f"python {' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    start(main)
