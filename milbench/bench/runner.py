"""`milbench bench runner`: what a cell costs beyond its training, and how commands grow with the number of cells."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milbench.bench.files import Row, Seconds
from milbench.errors import UsageError

SIZES = (10, 100, 1000, 5000)
QUICK_SIZES = (10, 50)
TASK = Path(__file__).with_name("runner_task.py")
"""It is not imported here: the memory of a process that starts another counts as that of the other."""
LOSSES_COMPARED = ("exact", "max-pooling", "noisy-or", "one-vs-rest")


@dataclass(frozen=True)
class Measured:
    """A command that has ended.

    Args:
        seconds: how long it took.
        peak_bytes: the most resident memory of its process; of a system without that count 0.
    """

    seconds: float
    peak_bytes: int


def measure(jobs: int, *, quick: bool = False) -> list[dict[str, Any]]:
    """Run comparisons of cells that do next to nothing, each in a store of its own; return one row a size.

    Args:
        jobs: how many cells are computed at a time.
        quick: whether to leave out the large ones.

    Returns:
        For each number of cells: seconds of the first launch, seconds a cell, seconds a cell beyond those of the row
        before, and seconds and MiB of a dry run, a launch with nothing to do, `status` and `report`.
    """
    rows: list[dict[str, Any]] = []
    for cells in QUICK_SIZES if quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="milbench-bench-") as root:
            rows.append(_row(cells, jobs, root, rows[-1] if rows else None))
    return rows


def _row(cells: int, jobs: int, root: str, before: dict[str, Any] | None) -> dict[str, Any]:
    per_loss = -(-cells // len(LOSSES_COMPARED))
    where = ["--root", root]
    run = ["run", "--loss", ",".join(LOSSES_COMPARED), "--task", str(TASK), "--seeds", f"0-{per_loss - 1}"]
    run += ["--name", "bench", *where, "--quiet"]
    computed = per_loss * len(LOSSES_COMPARED)
    first = _measured([*run, "--jobs", str(jobs)])
    row: dict[str, Any] = {"cells": computed, "run s": first.seconds, "s a cell": first.seconds / computed}
    if before:
        row["s a further cell"] = (first.seconds - before["run s"]) / (computed - before["cells"])
    for name, words in {
        "plan": [*run, "--dry-run"],
        "nothing to do": run,
        "status": ["status", *where],
        "report": ["report", *where],
    }.items():
        measured = _measured(words)
        row[f"{name} s"], row[f"{name} MiB"] = measured.seconds, measured.peak_bytes / 2**20
    return row


def _measured(words: list[str]) -> Measured:
    """Run a command of milbench to its end. Raises UsageError if it fails."""
    begun = time.perf_counter()
    # Not on the server that the environment may name: these runs are of no use to anybody.
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    command = [sys.executable, "-m", "milbench", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    try:
        code, peak = _ended(process)
    except BaseException:  # the user's interrupt reaches this process alone where it is a signal
        process.terminate()
        process.wait()
        raise
    seconds = time.perf_counter() - begun
    if code != 0:
        raise UsageError(f"milbench {words[0]} ended with exit code {code}")
    return Measured(seconds, peak)


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Wait for a process; return its exit code and its peak of memory in bytes, 0 where the system does not tell it."""
    if not hasattr(os, "wait4"):  # on Windows
        return process.wait(), 0
    _, state, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(state)
    return process.returncode, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def as_rows(measured: list[dict[str, Any]]) -> list[Row]:
    """Return what `measure` returned as rows of a file; every command ran once, so there is no spread."""
    return [
        Row(
            f"{row['cells']} cells",
            {name.removesuffix(" s"): Seconds(row[name], row[name]) for name in row if name.endswith(" s")},
            {name.removesuffix(" MiB"): 2**20 * row[name] for name in row if name.endswith(" MiB")},
        )
        for row in measured
    ]
