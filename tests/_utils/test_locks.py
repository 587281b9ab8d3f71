"""Locks between processes: each test has a second process, or a file system without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from milbench import UsageError
from milbench._utils import locks
from milbench._utils.files import folder_digest

HOLD = """
import sys
from pathlib import Path
from milbench._utils import locks
with locks.try_lock(Path(sys.argv[1])) as held:
    print(held, flush=True)
    sys.stdin.read()
"""
COUNT = """
import sys
from pathlib import Path
from milbench._utils import locks
folder = Path(sys.argv[1])
for _ in range(20):
    with locks.lock(folder):
        count = int((folder / "count").read_text())
        (folder / "count").write_text(str(count + 1))
"""
WAIT = """
import sys
from pathlib import Path
from milbench._utils import locks
folder = Path(sys.argv[1])
print("waits", flush=True)
with locks.lock(folder) as held:
    print(held, (folder / "finished").exists(), flush=True)
"""


def process(code: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_is_released_when_its_process_is_killed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    assert not locks.is_locked(path)
    with process(HOLD, path) as other:
        assert line(other) == "True"
        assert locks.is_locked(path)
        with locks.try_lock(path) as held:
            assert not held
        other.kill()
    assert not locks.is_locked(path)
    with locks.try_lock(path) as held:
        assert held
        assert locks.is_locked(path)
    assert not locks.is_locked(path)


def test_a_folder_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    others = [process(COUNT, tmp_path) for _ in range(3)]
    assert [other.wait() for other in others] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "60"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_a_process_waits_for_the_lock_of_a_folder(tmp_path: Path) -> None:
    with locks.lock(tmp_path) as held:
        assert held
        other = process(WAIT, tmp_path)
        assert line(other) == "waits"
        time.sleep(0.2)
        (tmp_path / "finished").touch()
    assert line(other) == "True True"
    assert other.wait() == 0


def test_the_lock_of_a_folder_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    digest = folder_digest(tmp_path)
    with locks.lock(tmp_path):
        assert folder_digest(tmp_path) == digest
        assert [path.name for path in tmp_path.glob("[!.]*")] == ["data"]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locks.lock(tmp_path) as held:
        assert not held
    (tmp_path / "cell.lock").touch()
    assert not locks.is_locked(tmp_path / "cell.lock")
    with pytest.raises(UsageError, match="has no file locks"), locks.try_lock(tmp_path / "cell.lock"):
        pass


def test_a_lock_file_that_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "cell.lock"
    path.symlink_to(path)  # a loop
    with pytest.raises(OSError, match="symbolic links") as error, locks.try_lock(path):
        pass
    assert error.value.filename == str(path)


def test_a_lock_file_that_a_killed_process_has_left_is_open_to_other_users(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from milbench._utils import locks; os.umask(0o022)\n"
        "with locks.lock(Path(sys.argv[1])): os._exit(0)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
    assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o666
