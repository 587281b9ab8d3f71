"""Locks between processes, tested with other processes and with a file system without locks."""

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

# What other processes run: START, and then HOLD or COUNT. HOLD prints whether it got the lock, and
# holds it until the process is killed, since nothing closes its standard input before.
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
    """Start a process that runs code, in which `folder` is the path."""
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
            assert not held, "another process holds it"
        other.kill()
    assert not locks.is_locked(path)
    with locks.try_lock(path) as held:
        assert held
        assert locks.is_locked(path)
    assert not locks.is_locked(path)


def test_a_folder_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    others = [process(COUNT, tmp_path) for _ in range(3)]
    assert [other.wait() for other in others] == [0, 0, 0]
    # Each of three processes adds 1 twenty times. Without locks some additions would be lost.
    assert count.read_text() == "60"
    assert list(tmp_path.iterdir()) == [count], "no lock file is left"


def test_the_digest_of_a_folder_leaves_out_its_lock(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("data")
    before = folder_digest(tmp_path)
    with locks.lock(tmp_path):
        assert folder_digest(tmp_path) == before


@pytest.fixture(params=[errno.ENOSYS, errno.ENOLCK], ids=["ENOSYS", "ENOLCK"])
def without_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, which refuses every lock with one of two errors."""

    # Has the arguments of `fcntl.flock`.
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("without_locks")
def test_whoever_waits_for_a_lock_goes_on_without_locks(tmp_path: Path) -> None:
    # The block runs without a lock. None says that nothing keeps other processes out of it.
    with locks.lock(tmp_path) as held:
        assert held is None


@pytest.mark.usefixtures("without_locks")
def test_nothing_is_locked_without_locks(tmp_path: Path) -> None:
    file = tmp_path / "cell.lock"
    file.touch()
    assert not locks.is_locked(file)


@pytest.mark.usefixtures("without_locks")
def test_whoever_tries_a_lock_gets_a_usage_error_without_locks(tmp_path: Path) -> None:
    # By trying its lock a process learns whether another one is computing a cell. Without locks
    # there is no answer, and both would write into one folder.
    with (
        pytest.raises(UsageError, match="has no file locks"),
        locks.try_lock(tmp_path / "cell.lock"),
    ):
        pass
