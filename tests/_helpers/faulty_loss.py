"""A loss that returns what a loss must not, and the place in its file that a message has to name."""

from __future__ import annotations

import re
from pathlib import Path

from tests._helpers.command_line import PLUGINS

SOURCE = PLUGINS / "faulty_loss.py"


def names_the_method(complaint: str, method: str, source: Path = SOURCE) -> bool:
    """Whether the file and the line that a message names are those where the method is defined."""
    found = re.search(r"\((.*):(\d+)\)", complaint)
    assert found, complaint
    return found[1] == str(source) and f"def {method}(" in source.read_text().splitlines()[int(found[2]) - 1]
