"""Locks between processes: each test has a second process, or a file system without locks."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milbench import UsageError
from milbench._utils import locks
from milbench._utils.files import folder_digest

START = """
import sys
from pathlib import Path
from milbench._utils import locks
folder = Path(sys.argv[1])
"""
HOLD = """
with locks.try_lock(folder) as held:
    print(held, flush=True)
    sys.stdin.read()
"""
COUNT = """
for _ in range(20):
    with locks.lock(folder):
        count = int((folder / "count").read_text())
        (folder / "count").write_text(str(count + 1))
"""


def process(code: str, path: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", START + code, str(path)], text=True, stdin=pipe, stdout=pipe
    )


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_is_released_when_its_process_is_killed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    assert not locks.is_locked(path)
    with process(HOLD, path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
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
    digest = folder_digest(tmp_path)
    with locks.lock(tmp_path):
        assert folder_digest(tmp_path) == digest, "the lock is no data"


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locks.lock(tmp_path) as held:
        assert not held
    (tmp_path / "cell.lock").touch()
    assert not locks.is_locked(tmp_path / "cell.lock")
    with (
        pytest.raises(UsageError, match="has no file locks"),
        locks.try_lock(tmp_path / "cell.lock"),
    ):
        pass
