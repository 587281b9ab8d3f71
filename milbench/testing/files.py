"""Where the file is that a test names."""

from __future__ import annotations

import inspect
from pathlib import Path


def beside(test: type, name: str) -> str:
    """Return the name of a loss or task, or the path of its file, which is relative to the file of the test class."""
    return str(Path(inspect.getfile(test)).parent / name) if name.endswith(".py") else name
