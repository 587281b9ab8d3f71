"""What `milbench` alone prints: three commands to try next."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NEXT = (
    ("new loss my-loss", "write my_loss.py, a loss of your own that runs as it is, and its test"),
    ("run --loss my_loss.py,exact --task extended-digits --seeds 0-2", "train with it, and with the exact likelihood"),
    ("report --open", "read which of the two learns better, and how sure that is"),
)
"""The words of each command, which run one after the other in an empty folder, and what it is for."""


def show() -> None:
    """Print the three commands and how to get help."""
    from rich.text import Text

    from milbench._utils.console import console, plain

    called = plain(program())
    console.print("Try next:", style="bold")
    for words, purpose in NEXT:
        console.print(Text.assemble("  ", (f"{called} {words}", "cyan"), f"\n      {purpose}"), soft_wrap=True)
    console.print(Text.assemble("Every command: ", (f"{called} --help", "cyan")), soft_wrap=True)


def program() -> str:
    """Return what starts this command line in the user's shell: `milbench`, or the path by which it was called."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m milbench"
    found = shutil.which("milbench")
    if found is not None and Path(found).resolve() == called.resolve():
        return "milbench"
    return shlex.quote(sys.argv[0])
