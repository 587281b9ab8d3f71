"""What a reader is told to try next, and what a report says first in a terminal and in a pipe."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests._helpers.command_line import Milbench, Ran


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
