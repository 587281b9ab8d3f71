"""`milbench report`, `status` and `list`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import TINY, Milbench

BASE = ("run", "--loss", "exact", "--task", TINY)


def test_lists(milbench: Milbench) -> None:
    losses = milbench("list", "losses")
    assert losses.code == 0
    for name in ("exact", "max-pooling", "one-vs-rest", "noisy-or", "normalization=bag"):
        assert name in losses.out
    tasks = milbench("list", "tasks")
    assert tasks.code == 0
    for name in ("extended-digits", "extended-mnist", "synthetic-bags"):
        assert name in tasks.out
    specs = milbench("list", "specs")
    assert specs.code == 0
    assert "demo" in specs.out
    milbench(*BASE, "--name", "mine")
    runs = milbench("list", "runs")
    assert runs.code == 0
    assert "mine" in runs.out


def test_a_run_and_its_report(milbench: Milbench, root: Path) -> None:
    name = "n" * 200  # the longest that is accepted
    assert milbench("run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-1", "--name", name).code == 0
    assert milbench("report").code == 0
    folder = root / "reports" / name
    page = (folder / "index.html").read_text()
    csv = (folder / "results.csv").read_text()
    for run_id in collect(StoreReader(Workspace(root)), name).cells.run_id:
        assert run_id in page
        assert run_id in csv
    assert "noisy-or" in (folder / "report.md").read_text()


def test_the_report_is_rendered_without_torch(milbench: Milbench, root: Path) -> None:
    milbench(*BASE)
    code = f"""
import sys
sys.argv = ["milbench", "report", "--root", {str(root)!r}]
from milbench.cli.main import main
try:
    main()
except SystemExit as stop:
    print("code", stop.code)
print("torch", "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("code 0\ntorch False\n")
