"""Where the file is that a test names."""

from __future__ import annotations

import inspect
from pathlib import Path


def beside(test: type, name: str) -> str:
    """Return the name of a loss, task or network, or its file, FILE.py or FILE.py:NAME, which is beside the test's."""
    is_file = name.partition(":")[0].endswith(".py")
    return str(Path(inspect.getfile(test)).parent / name) if is_file else name
