"""Advisory file locks, released when the process exits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_NB, LOCK_SH, flock
from pathlib import Path

from filelock import FileLock, Timeout

from milbench.errors import UsageError

NOW = 0.1
"""Seconds after which a lock counts as held: another process that asks `is_locked` keeps it busy for less than that."""


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold a lock for the block if it is free, without waiting for it; yield False if another process holds it.

    The path is a file, or a folder: then a hidden file in it. It is created, and removed afterwards. Raises UsageError
    where the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path, NOW) as held:
        if held is None:
            problem = (
                "no file locks, which keep two processes apart; choose a folder on another one"
            )
            raise UsageError(f"the file system of {path.parent} has {problem}")
        yield held


def is_locked(path: Path) -> bool:
    """Return whether some process, this one included, holds the lock of a file or folder."""
    try:
        # A named pipe in the place of the file would else hold up whoever opens it.
        number = os.open(_lock_file(path), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # nobody has made the file
        return False
    try:
        # Shared: two processes that ask at once do not meet each other.
        flock(number, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        return False
    finally:
        os.close(number)
    return False


@contextmanager
def lock(path: Path, timeout: float = -1) -> Iterator[bool | None]:
    """Hold a lock as `try_lock`, after so many seconds at most, -1: any; yield whether it is held, None: none exist."""
    file = _lock_file(path)
    # Users may share a folder: a lock file that one of them has left must not keep the others out.
    file_lock = FileLock(file, mode=0o666, fallback_to_soft=False)
    held: bool | None = True
    try:
        file_lock.acquire(timeout=timeout, poll_interval=0.02)
    except Timeout:
        held = False
    except OSError as error:
        if (
            error.filename is not None
        ):  # the file cannot be opened; errors of the lock itself name no file
            raise
        held = None
    try:
        yield held
    finally:
        if held:
            # Before the release: a waiting process finds that the file it has opened is gone, and creates a new one.
            with suppress(OSError):
                file.unlink(missing_ok=True)
        file_lock.release()


def _lock_file(path: Path) -> Path:
    return path / ".lock" if path.is_dir() else path
