"""The command line in tests: what a call returns, and how it is started as a process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests._helpers.forked import Forked

REPOSITORY = Path(__file__).parents[2]
PLUGINS = Path(__file__).parent / "plugins"
TINY = str(PLUGINS / "tiny_task.py")


@dataclass(frozen=True)
class Ran:
    """A finished call: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    def complaint(self) -> str:
        """Return the one line of a refused command; check exit code 2, no traceback, nothing else on standard error."""
        assert self.code == 2, self
        assert "Traceback" not in self.err + self.out
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert len(lines) == 1, lines
        assert lines[0].startswith("milbench: ")
        return lines[0].removeprefix("milbench: ")


Milbench = Callable[..., Ran]
"""Type of the fixture `milbench`, which takes the words of a command line."""


def process(*words: str, unread: bool = False) -> Forked:
    """Start the command line as a separate process, in a process group of its own; `unread`: nobody reads its lines."""
    return Forked(_command, words, unread=unread)


def wait_for(running: Forked | subprocess.Popen[str], path: Path, pattern: str) -> None:
    """Wait until the process has written such a file."""
    while not list(path.glob(pattern)):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)


def _command(words: tuple[str, ...]) -> None:
    import torch

    from milbench.cli import main

    torch.set_num_threads(1)
    sys.argv = ["milbench", *words]
    main.main()
