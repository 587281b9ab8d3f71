"""The command line in tests: what a call returns, and how it is started as a process."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
LOSS = REPOSITORY / "milbench" / "templates" / "my_loss.py"
"""The template of a loss, from which somebody outside the project begins."""
PLUGINS = Path(__file__).parent / "plugins"
TINY = str(PLUGINS / "tiny_task.py")
HOSTILE = str(PLUGINS / "hostile_loss.py")
SMALL = (
    "-p",
    "recipe.epochs=1",
    "-p",
    "recipe.steps_per_epoch=2",
    "-p",
    "recipe.evaluation_bags=16",
)
"""The settings of a cell that is computed in a blink."""


@dataclass(frozen=True)
class Ran:
    """The result of a command: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    def done(self) -> str:
        """Return what the command has printed; check that it succeeded."""
        assert self.code == 0, self
        return self.out

    def complaint(self) -> str:
        """Return the line with which the command was refused.

        Check that the exit code is 2, that there is no traceback, and that this line is all that
        stands on standard error.
        """
        assert self.code == 2, self
        assert "Traceback" not in self.err + self.out
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert len(lines) == 1, lines
        assert lines[0].startswith("milbench: ")
        return lines[0].removeprefix("milbench: ")


Milbench = Callable[..., Ran]
"""Type of the fixture `milbench`, which takes the words of a command line."""


def process(*words: str, **named: Any) -> subprocess.Popen[str]:
    """Start a command of milbench as a process, in a session of its own.

    `named` are further arguments of Popen.
    """
    command = [sys.executable, "-m", "milbench", *words]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **named,
    )


def wait_for(running: subprocess.Popen[str], path: Path, pattern: str) -> None:
    """Wait until a running command has made a file below a path; fail if it ends too early."""
    while not list(path.glob(pattern)):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)


def assignments(values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command that set values by -p."""
    words = []
    for key, value in values.items():
        words += ["-p", f"{key}={value}"]
    return words
