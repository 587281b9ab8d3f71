from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from milbench.store.provenance import code_version, commits, tags
from tests._helpers.command_line import REPOSITORY


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


def test_the_revision_of_this_checkout_is_recorded() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("the tests do not run in a checkout")
    found = tags("cpu", 1)
    assert found["milbench.code"] == run(REPOSITORY, "rev-parse", "HEAD")
    changed = run(REPOSITORY, "status", "--porcelain", "--", "milbench", "losses", "tasks")
    assert found["milbench.dirty"] == ("yes" if changed else "no")


@pytest.mark.parametrize("foreign", [False, True], ids=["no checkout", "the checkout of another project"])
def test_no_revision_is_recorded_of_code_outside_its_checkout(checkout: Path, tmp_path: Path, foreign: bool) -> None:
    site = checkout / "site" if foreign else tmp_path.parent / f"{tmp_path.name}-site"
    shutil.copytree(REPOSITORY / "milbench", site / "milbench", ignore=shutil.ignore_patterns("__pycache__"))
    script = "from milbench.store import provenance; print(provenance.__file__, provenance.code_version())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=site, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split(maxsplit=1) == [str(site / "milbench" / "store" / "provenance.py"), "('', '')\n"]


def test_the_commits_of_a_launch_are_those_of_its_folder_and_of_its_plug_ins(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(elsewhere.parent))
    commit, file = run(checkout, "rev-parse", "HEAD"), checkout / "losses" / "a.py"
    assert commits([]) == ""
    assert commits([str(file), str(checkout / "tasks" / "a.py")]) == commit
    monkeypatch.chdir(checkout)
    assert commits([]) == commit
    (checkout / "new.py").write_text("1\n")
    assert commits([str(file)]) == commit, "a new file that the launch does not use changes nothing"
    assert commits([str(checkout / "new.py")]) == f"{commit}-dirty", "one that it uses is in no commit"
    file.write_text("2\n")
    assert commits([str(file)]) == f"{commit}-dirty"
