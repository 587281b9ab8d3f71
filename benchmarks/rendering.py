"""How long reports take: their imports, reading what was computed, and drawing and writing the page."""

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
"""What the command imports before it reads anything."""


def main(
    reports: Annotated[
        list[str] | None,
        typer.Argument(help="Folders of published reports, or comparisons under --root."),
    ] = None,
    root: Annotated[Path, typer.Option("--root", help="Folder of runs/.")] = Path(),
    quick: QuickOption = False,
) -> None:
    """Measure how long reports take.

    Seconds of the processor, since other work on the machine disturbs them less than those of a
    clock: the least of 5 repetitions (--quick: 2).

    Example: python benchmarks/rendering.py reports/counts
    """
    repeats = 2 if quick else 5
    names = reports or list(DEFAULT)
    rows = [_row(name, root, repeats) for name in names]
    show(pd.DataFrame(rows), "reports: seconds of the processor, and what they make")
    imports = min(_seconds_of_process(["-c", IMPORTS]) for _ in range(repeats))
    show(pd.DataFrame([{"imports": imports}]), "\nimports of the command: seconds of the processor")


def _row(name: str, root: Path, repeats: int) -> dict[str, Any]:
    """Return what a report takes and has."""
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
    """Return the results of a published report, or of a comparison of that name."""
    folder = Path(name)
    if (folder / published_reports.PLAN).is_file():
        return published_reports.read(folder)
    return results_of(root, name)


def _least_seconds(fn: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the processor of the quickest of some calls."""
    taken = []
    for _ in range(repeats):
        begun = time.process_time()
        fn()
        taken.append(time.process_time() - begun)
    return min(taken)


def _seconds_of_process(words: list[str]) -> float:
    """Return the seconds of the processor that Python takes for some words of its command line."""
    process = subprocess.Popen([sys.executable, *words])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise UsageError(f"python {' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    start(main)
