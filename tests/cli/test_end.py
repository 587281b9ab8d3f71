"""A command ends when its work is done, even if a plug-in has started something that goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests._helpers.command_line import SMALL, TINY
from tests._helpers.project import Project, loss_text

PATIENCE = 240
"""Seconds after which a test gives up. What the plug-ins start would go on for an hour."""


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of milbench in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "milbench", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


STARTS_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
"""
HAS_EXIT_HANDLER = """
import atexit, time
atexit.register(time.sleep, 3600)
"""


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param(STARTS_THREAD, id="thread"),
        pytest.param(HAS_EXIT_HANDLER, id="exit handler"),
    ],
)
def test_what_a_plug_in_starts_does_not_delay_the_end(tmp_path: Path, starts: str) -> None:
    path = Project(tmp_path).write("mine.py", loss_text(starts))
    words = ["run", "--loss", str(path), "--task", TINY, *SMALL, "--dry-run"]
    ran = run_command(*words, "--root", str(tmp_path / "root"))
    assert ran.returncode == 0, ran.stderr
    assert "dry run: nothing was started" in ran.stdout


def test_a_plug_in_that_exits_with_a_text_fails_the_command(tmp_path: Path) -> None:
    constructor = "    def __init__(self):\n        sys.exit('no licence')\n"
    path = Project(tmp_path).write("mine.py", loss_text("import sys\n") + constructor)
    words = ["run", "--loss", str(path), "--task", TINY, *SMALL, "--dry-run"]
    ran = run_command(*words, "--root", str(tmp_path / "root"))
    assert ran.returncode == 1
    assert "no licence" in ran.stderr


def test_a_mistake_in_a_command_ends_with_exit_code_2() -> None:
    ran = run_command("run", "--loss", "nowhere.py", "--task", TINY)
    assert ran.returncode == 2
    assert ran.stderr.startswith("milbench: no file nowhere.py")
