"""What SECURITY.md says about reading data, as far as the rules of ruff in pyproject.toml do not look at it."""

from __future__ import annotations

import re

from tests._helpers.command_line import REPOSITORY

READERS = r"\b(?:torch\.load|np\.load)\((?:[^()]|\([^()]*\))*\)"


def test_arrays_and_tensors_are_read_without_objects_of_other_classes() -> None:
    files = [path for folder in ("milbench", "losses", "tasks") for path in (REPOSITORY / folder).rglob("*.py")]
    calls = [call for path in files for call in re.findall(READERS, path.read_text("utf-8"))]
    assert len(calls) > 8
    assert [call for call in calls if not re.search("weights_only=True|allow_pickle=False", call)] == []
