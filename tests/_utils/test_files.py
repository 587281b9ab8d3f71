from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from milbench._utils.files import copy_folder, scratch_folder, write_atomically


def test_an_error_in_the_middle_names_the_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    def fill(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "x").write_text("old")
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "x", fill)
    assert caught.value.filename == str(tmp_path / "x")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x", "old")]


def test_a_scratch_folder_is_gone_whatever_happens_in_it(tmp_path: Path) -> None:
    def interrupted() -> None:
        with scratch_folder(tmp_path / "new", "crops") as folder:
            (folder / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_folder_is_copied_as_a_whole_or_not_at_all_and_nothing_beside_it_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "new.txt").write_text("new")
    (home / ".target-3.12").mkdir(parents=True)
    (home / ".lock").write_text("mine")
    copy_folder(source, home / "target")
    assert (home / "target" / "deep" / "new.txt").read_text() == "new"
    with pytest.raises(FileExistsError):
        copy_folder(source, home / "target")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("shutil.copytree", full)
    with pytest.raises(OSError, match="full"):
        copy_folder(source, home / "other")
    assert {path.name for path in home.iterdir()} == {".target-3.12", ".lock", "target"}
