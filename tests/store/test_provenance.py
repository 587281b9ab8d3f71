from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from milbench.store.provenance import code_version


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit and the three folders whose code computes something."""
    for folder in ("milbench", "losses", "tasks", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("1\n")
    run(tmp_path, "init", "-q")
    run(tmp_path, "add", ".")
    run(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "one")
    return tmp_path


def run(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("folder", ["milbench", "losses", "tasks"])
@pytest.mark.parametrize("name", ["a.py", "new.py"])
def test_changed_code_is_called_changed(checkout: Path, folder: str, name: str) -> None:
    assert code_version(checkout / "milbench") == (run(checkout, "rev-parse", "HEAD"), "no")
    (checkout / folder / name).write_text("2\n")
    assert code_version(checkout / "milbench")[1] == "yes"


def test_a_changed_text_changes_no_result(checkout: Path) -> None:
    (checkout / "docs" / "a.py").write_text("2\n")
    assert code_version(checkout / "milbench")[1] == "no"


def test_nothing_is_said_of_a_folder_in_somebody_elses_checkout(checkout: Path) -> None:
    inner = checkout / "docs" / "milbench"
    inner.mkdir()
    assert code_version(inner) == ("", "")
