"""What a reader is told to try next, and what a report says first in a terminal and in a pipe."""

from __future__ import annotations

import html
import io
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from milbench._utils import console as consoles
from milbench.cli import tour
from tests._helpers.command_line import REPOSITORY, TINY, Milbench, Ran


@pytest.fixture
def alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    """What `milbench` without a word prints."""
    from milbench.cli.main import main

    monkeypatch.setattr(sys, "argv", ["milbench"])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    return Ran(int(str(stop.value.code or 0)), out, err)


def test_milbench_alone_names_three_commands_and_the_way_to_help(alone: Ran) -> None:
    assert alone.code == 0
    assert alone.err == ""
    lines = alone.out.splitlines()
    assert len([line for line in lines if line.startswith("  milbench ")]) == 3
    assert lines[-1] == "Every command: milbench --help"
    assert max(map(len, lines)) <= 80


def test_the_three_commands_run_one_after_the_other_as_they_are_printed(
    alone: Ran, root: Path, milbench: Milbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder; two steps with one seed, and no browser."""
    root.mkdir()
    monkeypatch.chdir(root)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    shorter = {
        "run": ["-p", "recipe.epochs=1", "-p", "recipe.steps_per_epoch=2", "--seeds", "0"], "report": ["--no-gallery"],
    }  # fmt: skip
    for line in alone.out.splitlines():
        if line.startswith("  milbench "):
            words = shlex.split(line)[1:]
            ran = milbench(*words, *shorter.get(words[0], []))
            assert ran.code == 0, (line, ran)
    page = root / "reports" / "extended-digits" / "index.html"
    assert opened == [page.as_uri()]
    assert "my-loss" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("called", "on_the_path", "shown"),
    [
        ("bin/milbench", True, "milbench"),
        ("bin/milbench", False, "bin/milbench"),
        ("a folder/milbench", False, "'a folder/milbench'"),
        ("milbench/__main__.py", True, "python -m milbench"),
    ],
)
def test_the_commands_begin_as_the_reader_can_type_them(
    called: str, on_the_path: bool, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin" / "milbench"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent) if on_the_path else str(tmp_path))
    assert (shutil.which("milbench") is not None) == on_the_path
    monkeypatch.setattr(sys, "argv", [called])
    assert tour.program() == shown


def test_a_report_ends_with_its_sentence_and_where_its_page_is(milbench: Milbench, root: Path) -> None:
    milbench("run", "--loss", "exact,noisy-or", "--task", TINY, "--seeds", "0-1", "--name", "two")
    ran = milbench("report", "two")
    page = root / "reports" / "two" / "index.html"
    sentences = re.findall(r'<p class="answer">(.*?)</p>', page.read_text("utf-8"))
    assert ran.out.splitlines()[-1] == " ".join([*map(html.unescape, sentences), str(page)])
    assert "\x1b" not in ran.out, "a pipe gets no colours"


def test_a_terminal_gets_colours(milbench: Milbench, monkeypatch: pytest.MonkeyPatch) -> None:
    milbench("run", "--loss", "exact", "--task", TINY, "--seeds", "0", "--name", "one")
    terminal = _terminal()
    monkeypatch.setattr(consoles, "console", terminal)
    assert milbench("report", "one").code == 0
    assert "\x1b[" in terminal.file.getvalue()
    assert "index.html" in terminal.file.getvalue()


def _terminal() -> Any:
    """A console that takes its file for a terminal with colours."""
    found: Any = consoles.PlainConsole(width=200)
    found.file, found._force_terminal, found._color_system = io.StringIO(), True, 1
    return found


def test_make_demo_ends_with_the_report() -> None:
    rules = (REPOSITORY / "Makefile").read_text("utf-8").split("\n\n")
    (demo,) = (rule for rule in rules if rule.startswith("demo:"))
    assert demo.index("milbench run demo") < demo.index("milbench report demo && exit")
