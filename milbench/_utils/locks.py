"""What one process does at a time, such as to compute a cell: advisory locks that die with their holder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock, a file or a folder, for the block; yield False, without waiting, if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder for the block, after a wait for it; yield False where its file system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    """Try for a moment: somebody may only be looking whether the lock is held."""
    for _ in range(5):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False


def is_locked(path: Path) -> bool:
    """Say whether some process holds the lock now."""
    if not path.exists():
        return False
    with try_lock(path) as free:
        return not free
