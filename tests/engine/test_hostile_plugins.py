"""Whatever a plug-in does to its process fails its own cell, with the reason, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from milbench.store.collect import collect
from milbench.store.reader import StoreReader
from milbench.store.workspace import Workspace
from tests._helpers.command_line import PLUGINS, TINY, Milbench

HOSTILE = str(PLUGINS / "hostile_loss.py")
REASONS = {
    "exit 0": "SystemExit: 0 (hostile_loss.py:",
    "exit 5": "SystemExit: 5 (hostile_loss.py:",
    "interrupt": "KeyboardInterrupt (hostile_loss.py:",
    "leave": "its process died (EXIT(0))",
    "kill": "its process died (SIGKILL(-9))",
    "hang": "it took longer than --timeout 12 seconds, in hostile_loss.py:",
    "sleep": "it took longer than --timeout 12 seconds, in hostile_loss.py:",
    "stop": "it took longer than --timeout 12 seconds",
}


@pytest.mark.timeout(240)
def test_what_a_plug_in_does_to_its_process_fails_its_own_cell_alone(milbench: Milbench, root: Path) -> None:
    variants = ",".join(REASONS)
    ran = milbench(
        "run", "--loss", f"{HOSTILE},exact", "--task", TINY, "--jobs", "4", "-p", f"loss.hostile.how={variants}",
        "--timeout", "12",
    )  # fmt: skip
    assert ran.code == 1, ran
    assert "Traceback" not in ran.out + ran.err
    results = collect(StoreReader(Workspace(root)))
    cells = results.cells
    (exact,) = cells[cells.loss == "exact"].itertuples()
    assert exact.status == "done", exact.reason
    hostile = cells[cells.loss == "hostile"]
    assert set(hostile.status) == {"failed"}
    found = {results.params[str(cell)]["loss.how"]: reason for cell, reason in hostile.reason.items()}
    assert {how: reason[: len(REASONS[how])] for how, reason in found.items()} == REASONS


@pytest.mark.parametrize("how", ["leave", "hang"])
def test_a_plug_in_that_ends_or_blocks_the_check_before_all_cells_fails_its_cell(
    milbench: Milbench, root: Path, how: str
) -> None:
    words = ("run", "--loss", f"{HOSTILE},exact", "--task", TINY, "-p", f"loss.hostile.how={how}")
    timeout = "12" if how == "hang" else "60"
    ran = milbench(*words, "-p", "loss.hostile.strike=1", "--jobs", "1", "--timeout", timeout)
    assert ran.code == 1, ran
    cells = collect(StoreReader(Workspace(root))).cells.set_index("loss")
    assert dict(cells.status) == {"hostile": "failed", "exact": "done"}


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(["--jobs", "1"], id="jobs"),
        pytest.param(["--cluster", "local:1"], id="cluster", marks=pytest.mark.kills),  # two slow starts of a worker
    ],
)
def test_a_process_that_has_lost_its_gpu_computes_no_other_cell(
    milbench: Milbench, root: Path, where: list[str]
) -> None:
    if "--cluster" in where:
        pytest.importorskip("distributed")
    ran = milbench("run", "--loss", f"{HOSTILE},exact", "--task", TINY, "-p", "loss.hostile.how=assert", *where)
    assert ran.code == 1, ran
    results = collect(StoreReader(Workspace(root)))
    cells = results.cells.set_index("loss")
    assert dict(cells.status) == {"hostile": "failed", "exact": "done"}
    assert cells.reason["hostile"].startswith("RuntimeError: CUDA error: device-side assert triggered")
    assert len({tags["pid"] for tags in results.provenance.values()}) == 2
