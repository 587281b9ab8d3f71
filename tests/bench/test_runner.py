from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from milbench.bench import runner
from milbench.errors import UsageError
from tests._helpers.command_line import Milbench


def test_a_command_is_measured_without_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # no server for runs that mean nothing
    measured = runner._measured(["list", "specs"])
    assert measured.seconds > 0
    assert measured.peak_bytes > 10_000_000 or sys.platform == "win32"
    with pytest.raises(UsageError, match="milbench status ended with exit code 2"):
        runner._measured(["status", "--root", "/nowhere/at/all"])  # with a server it would be exit code 1


def test_the_cells_of_the_benchmark_run(milbench: Milbench) -> None:
    losses = ",".join(runner.LOSSES_COMPARED)
    ran = milbench("run", "--loss", losses, "--task", str(Path(runner.TASK)), "--seeds", "0")
    assert ran.code == 0, ran
    assert f"{len(runner.LOSSES_COMPARED)} of {len(runner.LOSSES_COMPARED)} cells done" in ran.out


def test_a_command_that_is_measured_ends_with_its_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def interrupted(process: subprocess.Popen[bytes]) -> tuple[int, int]:
        measured.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner._measured(["list", "specs"])
    assert measured[0].poll() is not None
