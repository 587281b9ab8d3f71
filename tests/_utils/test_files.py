from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from milbench._utils.files import scratch_folder, write_atomically


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
