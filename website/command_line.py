"""The page of the command line, as typer writes it from the commands themselves."""

import subprocess
import sys

from website import REPOSITORY


def files() -> dict[str, str]:
    """Return the page."""
    arguments = ["milbench/cli/main.py", "utils", "docs"]
    options = ["--name", "milbench", "--title", "Command line"]
    made = subprocess.run(
        [sys.executable, "-m", "typer", *arguments, *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return {"reference/command-line.md": made.stdout}
