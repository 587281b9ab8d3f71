"""Completion of commands and options by the TAB key, in a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
COMPLETE = 'COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _milbench_completion milbench; printf "%s\\n" "${COMPREPLY[@]}"'


def bash(script: str, home: Path) -> str:
    environment = {**os.environ, "HOME": str(home), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory in which completion is installed."""
    folder = tmp_path_factory.mktemp("home")
    bash("milbench --install-completion; true", folder)
    return folder


def test_the_installed_script_is_the_one_shown_and_bash_reads_it(home: Path) -> None:
    shown = bash("milbench --show-completion; true", home)
    installed = home / ".bash_completions" / "milbench.sh"
    assert installed.read_text().strip() == shown.strip()
    assert str(installed) in (home / ".bashrc").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("milbench re", {"report", "reproduce"}),
        ("milbench data ", {"list", "verify", "fetch", "check", "make", "weights"}),
        ("milbench run --sh", {"--shard"}),
        ("milbench run --rerun ", {"missing", "failed", "all"}),
        ("milbench list ta", {"tasks"}),
    ],
)
def test_words_are_completed(home: Path, words: str, expected: set[str]) -> None:
    last = "''" if words.endswith(" ") else ""
    out = bash(f"source ~/.bash_completions/milbench.sh; COMP_WORDS=({words}{last}); {COMPLETE}", home)
    assert set(out.split()) == expected
