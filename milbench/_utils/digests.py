"""Digests of files, remembered until a file changes.

Every plan and every cell needs digests of the data, and to read gigabytes takes long. So each
digest is remembered in a record, a small file in the user's cache folder. Nothing depends on the
records: if one cannot be read or written, or is damaged, the data are read again. A record has a
digest of its own, by which damage is noticed.

A file counts as unchanged while its path, size, inode and times are the same. Whatever writes to a
file changes one of them. Only a failing disk may return other bits than were written while all of
them stay the same. This is not noticed until the file is read again.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from milbench._utils.files import open_file, read_file, write_atomically
from milbench._version import __version__

RECENT = 10.0
"""Seconds for which a file must not have changed before its digest is kept.

The clocks of some disks are coarse: a file that has just changed may change again and have the same
time.
"""


def file_digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file by an algorithm of hashlib, such as "md5".

    The digest is remembered: the file is read only if it has changed since it was last read.
    """
    return remembered(algorithm, [path], lambda: read_digest(path, algorithm))


def read_digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file, which is read now.

    Raises OSError, WrongFile or Unreadable if the file cannot be read.
    """

    def new() -> Any:
        # MD5 serves to find damage here; some systems forbid it otherwise.
        return hashlib.new(algorithm, usedforsecurity=False)

    with open_file(path) as file:
        return hashlib.file_digest(file, new).hexdigest()


def remembered(kind: str, paths: Sequence[Path], compute: Callable[[], str]) -> str:
    """Return the result of `compute` for these files, remembered while none of them has changed.

    Results are kept apart by `kind`, which says what `compute` does, and by the version of
    milbench, since another version may compute something else.
    """
    # Few commands need it, so it is imported only here.
    from platformdirs import user_cache_path

    try:
        before = _states(paths)
    except OSError:
        # A file cannot be read. `compute` raises the error that the caller expects.
        return compute()
    key = json.dumps([__version__, kind, *(str(path.resolve()) for path in paths)])
    # Half of the 64 digits are enough to tell records apart.
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    record = user_cache_path("milbench", appauthor=False) / "digests" / name
    stored = _read_record(record, before)
    if stored is not None:
        return stored
    value = compute()
    with contextlib.suppress(OSError):
        # A file that changed while it was read may have given a digest of neither its old nor its
        # new content.
        if _are_settled(before) and _states(paths) == before:
            _write_record(record, before, value)
    return value


def _are_settled(states: list[list[int]]) -> bool:
    """Return whether no file has changed recently, see `RECENT`; the states are of `_states`."""
    now = time.time_ns()
    for _size, _inode, content_changed, metadata_changed in states:
        age = now - max(content_changed, metadata_changed)
        if age <= RECENT * 1e9:
            return False
    return True


def _write_record(record: Path, states: list[list[int]], value: str) -> None:
    """Write the result for files in these states to a record."""
    content = {"files": states, "value": value, "digest": _record_digest(states, value)}
    text = json.dumps(content)
    write_atomically(record, lambda temporary: temporary.write_text(text))


def _read_record(record: Path, states: list[list[int]]) -> str | None:
    """Return the result in a record for files in these states.

    It is None if there is no record, or it is damaged, or the files have changed.
    """
    # A damaged record may hold anything, so that reading it may raise any error.
    with contextlib.suppress(Exception):
        stored = json.loads(read_file(record))
        value = stored["value"]
        is_whole = stored["digest"] == _record_digest(stored["files"], value)
        if is_whole and stored["files"] == states:
            return str(value)
    return None


def _record_digest(states: list[list[int]], value: str) -> str:
    """Return the digest by which a damaged record is recognised."""
    return hashlib.sha256(json.dumps([states, value]).encode()).hexdigest()


def _states(paths: Sequence[Path]) -> list[list[int]]:
    """Return the state of each file, by which a change is noticed.

    It is size, inode, and the times of the last change of content and of metadata in nanoseconds.
    """
    stats = [path.stat() for path in paths]
    return [[stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
