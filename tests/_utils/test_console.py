"""What a terminal is sent: text of users, files and plug-ins is shown, never obeyed."""

import os
import subprocess
import sys
from pathlib import Path

from tests._helpers.command_line import TINY, Milbench, Ran

HOSTILE = "[/b] [red]x[/red] :smile: \x1b[2J\x1b]0;t\x07\x9b5m\u202eb"
SHOWN = r"[/b] [red]x[/red] :smile: \x1b[2J\x1b]0;t\x07\x9b5m\u202eb"


def unharmed(ran: Ran) -> str:
    """Return everything that was printed, in which no character may control a terminal."""
    printed = ran.out + ran.err
    assert "Traceback" not in printed
    assert not {char for char in printed if not char.isprintable()} - {"\n"}
    return printed


def test_a_plan_shows_parameters_as_they_are(milbench: Milbench) -> None:
    given = "task.fault=a\x1b[2J\x07\u202eb,:smile:,[b],[red]"
    ran = milbench("run", "--loss", "exact", "--task", TINY, "-p", given, "--dry-run")
    assert ran.code == 0
    printed = unharmed(ran)
    assert all(
        f"fault={value}" in printed for value in (r"a\x1b[2J\x07\u202eb", ":smile:", "[b]", "[red]")
    )


def test_paths_are_shown_as_they_are(milbench: Milbench, tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    ran = milbench("data", "list", "--data-dir", str(folder))
    assert ran.code == 0
    assert SHOWN.replace("/", "")[:12] in unharmed(ran)  # the table breaks the path
    said = milbench("status", "--root", str(folder)).complaint()
    assert SHOWN.replace("/", "") in said


def test_error_messages_are_shown_as_they_are(milbench: Milbench, tmp_path: Path) -> None:
    ran = milbench("run", "--loss", f"{HOSTILE}.py", "--task", TINY)
    assert f"no file {SHOWN}.py" in ran.complaint()
    unharmed(ran)
    broken = tmp_path / "broken.py"
    broken.write_text(f"raise ValueError({HOSTILE!r})\n")
    ran = milbench("run", "--loss", str(broken), "--task", TINY)
    assert SHOWN in ran.complaint()
    unharmed(ran)


def test_tables_in_a_pipe_are_as_wide_as_columns_says() -> None:
    words = [sys.executable, "-m", "milbench", "list", "settings"]
    for columns, most in (("70", 70), ("", 200)):
        variables = os.environ | {"COLUMNS": columns}
        ran = subprocess.run(words, env=variables, capture_output=True, text=True, check=True)
        table = [line for line in ran.stdout.splitlines() if line.startswith(("┏", "│"))]
        assert max(map(len, table)) <= most
        assert max(map(len, table)) > most // 2
