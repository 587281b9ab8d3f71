"""Text of users, files and plug-ins in a terminal: it is shown, and controls nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests._helpers.command_line import TINY, Milbench, Ran

HOSTILE_TEXT = "[/b] [red]x[/red] :smile: \x1b[2J\x1b]0;t\x07\x9b5m\u202eb"
"""A text with markup of the library rich, and with control characters.

They would clear a terminal, rename its window and reverse the direction of text.
"""
SHOWN = r"[/b] [red]x[/red] :smile: \x1b[2J\x1b]0;t\x07\x9b5m\u202eb"
"""The text above as it must be printed, with control characters escaped."""


def unharmed(ran: Ran) -> str:
    """Return all that was printed, and check that no character in it controls a terminal."""
    printed = ran.out + ran.err
    assert "Traceback" not in printed
    control_characters = {char for char in printed if not char.isprintable()}
    assert control_characters <= {"\n"}
    return printed


def test_a_plan_shows_parameters_as_they_are(milbench: Milbench) -> None:
    given = "task.fault=a\x1b[2J\x07\u202eb,:smile:,[b],[red]"
    ran = milbench("run", "--loss", "exact", "--task", TINY, "-p", given, "--dry-run")
    assert ran.code == 0
    printed = unharmed(ran)
    for value in (r"a\x1b[2J\x07\u202eb", ":smile:", "[b]", "[red]"):
        assert f"fault={value}" in printed


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A folder whose name is the hostile text, without slashes."""
    folder = tmp_path / HOSTILE_TEXT.replace("/", "")
    folder.mkdir()
    return folder


SHOWN_NAME = SHOWN.replace("/", "")


def test_a_table_shows_paths_as_they_are(milbench: Milbench, hostile_folder: Path) -> None:
    ran = milbench("data", "list", "--data-dir", str(hostile_folder))
    assert ran.code == 0
    # The table breaks the path into lines. The first line has at least these characters.
    beginning = SHOWN_NAME[:12]
    assert beginning in unharmed(ran)


def test_an_error_shows_paths_as_they_are(milbench: Milbench, hostile_folder: Path) -> None:
    ran = milbench("status", "--root", str(hostile_folder))
    assert SHOWN_NAME in ran.complaint()
    unharmed(ran)


def test_an_error_shows_names_as_they_are(milbench: Milbench) -> None:
    ran = milbench("run", "--loss", f"{HOSTILE_TEXT}.py", "--task", TINY)
    assert f"no file {SHOWN}.py" in ran.complaint()
    unharmed(ran)


def test_an_error_of_a_plug_in_is_shown_as_it_is(milbench: Milbench, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(f"raise ValueError({HOSTILE_TEXT!r})\n")
    ran = milbench("run", "--loss", str(broken), "--task", TINY)
    assert SHOWN in ran.complaint()
    unharmed(ran)


@pytest.mark.parametrize(
    ("columns", "width"),
    [pytest.param("70", 70, id="by COLUMNS"), pytest.param("", 200, id="by default")],
)
def test_tables_in_a_pipe_are_as_wide_as_columns_says(columns: str, width: int) -> None:
    words = [sys.executable, "-m", "milbench", "list", "settings"]
    variables = os.environ | {"COLUMNS": columns}
    ran = subprocess.run(words, env=variables, capture_output=True, text=True, check=True)
    table = [line for line in ran.stdout.splitlines() if line.startswith(("┏", "│"))]
    widest = max(map(len, table))
    assert width // 2 < widest <= width
