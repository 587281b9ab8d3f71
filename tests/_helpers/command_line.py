"""The command line as tests call it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PLUGINS = Path(__file__).parent / "plugins"
TINY = str(PLUGINS / "tiny_task.py")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def complaint(self) -> str:
        """The one line of a refused command: exit code 2, no traceback, nothing else on standard error."""
        assert self.code == 2, self
        assert "Traceback" not in self.err + self.out
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert len(lines) == 1, lines
        assert lines[0].startswith("milbench: ")
        return lines[0].removeprefix("milbench: ")


Milbench = Callable[..., Ran]
"""Type of the fixture `milbench`, which takes the words of a command line."""


def process(*words: str, **kwargs: object) -> subprocess.Popen[str]:
    """Start the command line as a process of its own, in its own group."""
    return subprocess.Popen(
        [sys.executable, "-m", "milbench", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests run in the background of a shell, Ctrl-C is ignored, and children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
