"""Advisory file locks, released when the process exits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

NOW = 0.1
"""Seconds after which a lock counts as held by another process; `is_locked` holds a lock for less than that."""
FOREVER = -1.0


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold a lock for the block if it is free, without waiting for it.

    Args:
        path: The lock file, which is created and left there, or a folder: then a hidden file in it, removed afterwards.

    Yields:
        False if another process holds the lock, or if the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path, NOW) as held:
        yield held


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a folder, or a lock file as in `try_lock`, for the block; wait until it is free.

    Yields:
        False if the file system has no locks.
    """
    with _locked(path, FOREVER) as held:
        yield held


def is_locked(path: Path) -> bool:
    """Return whether some process, this one included, holds the lock of a file or folder."""
    if not _lock_file(path).exists():
        return False
    with _locked(path, NOW) as free:
        return not free


@contextmanager
def _locked(path: Path, timeout: float) -> Iterator[bool]:
    file = _lock_file(path)
    # Users may share a folder: a lock file that one of them has left must not keep the others out.
    file_lock = FileLock(file, mode=0o666, fallback_to_soft=False)
    held = _acquire(file_lock, timeout)
    try:
        yield held
    finally:
        if held and file != path:
            # Before the release: a waiting process finds that the file it has opened is gone, and creates a new one.
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
        file_lock.release()


def _acquire(file_lock: FileLock, timeout: float) -> bool:
    try:
        file_lock.acquire(timeout=timeout, poll_interval=0.02)
    except OSError as error:  # a timeout is one of them
        if error.filename is not None:  # the file cannot be opened; errors of the lock itself name no file
            raise
        return False
    return True


def _lock_file(path: Path) -> Path:
    return path / ".lock" if path.is_dir() else path
