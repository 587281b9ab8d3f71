"""Digests of files, remembered until a file changes: every plan and every cell needs those of gigabytes of data.

What is remembered lies in the user's cache folder, one small file for each digest, with a digest of its own. It is
never needed: where it cannot be read or written, or is damaged, the files are read again.

A file is known by its path, size, inode and times. Whatever writes to it changes one of them. What changes none is not
noticed until the file is read again: a disk that returns other bits than were written to it.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from milbench._utils.files import open_file, read_file, write_atomically
from milbench._version import __version__

RECENT = 10.0
"""Seconds; a file that changed later than that is not remembered: it may change again before a clock shows it."""


def file_digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file by an algorithm of hashlib; it is read only if it has changed since."""
    return remembered(algorithm, [path], lambda: read_digest(path, algorithm))


def read_digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file, which is read now. Raises OSError, WrongFile or Unreadable if it cannot be."""
    with open_file(path) as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()


def remembered(kind: str, paths: Sequence[Path], compute: Callable[[], str]) -> str:
    """Return the result of `compute` for these files, remembered while none of them has changed.

    Results of two kinds, and of two versions of milbench, are kept apart.
    """
    from platformdirs import user_cache_path

    try:
        before = _states(paths)
    except OSError:
        return compute()
    key = json.dumps([__version__, kind, *(str(path.resolve()) for path in paths)])
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    place = user_cache_path("milbench", appauthor=False) / "digests" / name
    stored = _recall(place, before)
    if stored is not None:
        return stored
    value = compute()
    with contextlib.suppress(OSError):
        newest = max(max(state[-2:]) for state in before)
        is_settled = time.time_ns() - newest > RECENT * 1e9
        if is_settled and _states(paths) == before:
            record = {"files": before, "value": value, "digest": _own_digest(before, value)}
            text = json.dumps(record)
            write_atomically(place, lambda temporary: temporary.write_text(text))
    return value


def _recall(place: Path, states: list[list[int]]) -> str | None:
    """Return what is remembered for files in these states; None if nothing is, or it is not whole."""
    with contextlib.suppress(Exception):  # the file may hold anything
        stored = json.loads(read_file(place))
        value = stored["value"]
        is_whole = stored["digest"] == _own_digest(stored["files"], value)
        if is_whole and stored["files"] == states:
            return str(value)
    return None


def _own_digest(states: list[list[int]], value: str) -> str:
    return hashlib.sha256(json.dumps([states, value]).encode()).hexdigest()


def _states(paths: Sequence[Path]) -> list[list[int]]:
    """Return size, inode and the times of change of each file."""
    stats = [path.stat() for path in paths]
    return [[stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
