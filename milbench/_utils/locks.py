"""Advisory file locks, released when the process exits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_NB, LOCK_SH, flock
from pathlib import Path

from filelock import FileLock, Timeout

from milbench.errors import UsageError

NOW = 0.1
"""Seconds to wait for a lock that shall be free now.

A process that calls `is_locked` holds the lock too, but for less time.
"""


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold a lock for the block if it is free, and yield whether it is held. Do not wait for it.

    The path names a lock file, or a folder, in which the lock file is hidden. The lock file is
    created, and removed afterwards. Raises UsageError if the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path, NOW) as held:
        if held is None:
            raise UsageError(
                f"the file system of {path.parent} has no file locks, "
                "which keep two processes apart; choose a folder on another one"
            )
        yield held


def is_locked(path: Path) -> bool:
    """Return whether some process, this one included, holds the lock of a file or folder."""
    try:
        # O_NONBLOCK: otherwise a named pipe in the place of the file would block whoever opens it.
        descriptor = os.open(_lock_file(path), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        # Without a lock file there is no lock.
        return False
    try:
        # A shared lock, so that two processes that ask at the same time do not see each other.
        flock(descriptor, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # The file system has no locks.
        return False
    finally:
        os.close(descriptor)
    return False


@contextmanager
def lock(path: Path, timeout: float = -1) -> Iterator[bool | None]:
    """Wait for a lock and hold it for the block.

    Yields whether it is held, or None if the file system has no locks.

    Args:
        path: a lock file or a folder, as in `try_lock`.
        timeout: how long to wait, in seconds; -1 waits for ever.
    """
    file = _lock_file(path)
    # Users may share a folder. A lock file that one of them has left must not shut out the others.
    file_lock = FileLock(file, mode=0o666, fallback_to_soft=False)
    held: bool | None = True
    try:
        file_lock.acquire(timeout=timeout, poll_interval=0.02)
    except Timeout:
        held = False
    except OSError as error:
        # Errors of the lock itself name no file. If there is a name, the file could not be opened.
        if error.filename is not None:
            raise
        held = None
    try:
        yield held
    finally:
        if held:
            # The file is removed before the release: a waiting process then notices that the file
            # it has opened is gone, and creates a new one. After the release, the file could
            # already be the one that another process holds.
            with suppress(OSError):
                file.unlink(missing_ok=True)
        file_lock.release()


def _lock_file(path: Path) -> Path:
    """Return the lock file of a folder, or the path itself."""
    return path / ".lock" if path.is_dir() else path
