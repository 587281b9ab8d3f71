"""Digests of files, remembered until a file changes: every plan and every cell needs those of gigabytes of data.

What is remembered lies in the user's cache folder, one small file for each digest. It is never needed: where it cannot
be read or written, or is damaged, the files are read again.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from milbench._utils.files import write_atomically
from milbench._version import __version__

RECENT = 10.0
"""Seconds; a file that changed later than that is not remembered: it may change again before a clock shows it."""


def file_digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file by an algorithm of hashlib; it is read only if it has changed since."""
    return remembered(algorithm, [path], lambda: read_digest(path, algorithm))


def read_digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file, which is read now. Raises OSError if it cannot be."""
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()


def remembered(kind: str, paths: Sequence[Path], compute: Callable[[], str]) -> str:
    """Return the result of `compute` for these files, remembered while none of them has changed.

    Results of two kinds, and of two versions of milbench, are kept apart. A file is known by its path, size and times.
    """
    from platformdirs import user_cache_path

    try:
        before = _states(paths)
    except OSError:
        return compute()
    key = json.dumps([__version__, kind, *(str(path.resolve()) for path in paths)])
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    place = user_cache_path("milbench", appauthor=False) / "digests" / name
    with contextlib.suppress(Exception):  # the file may hold anything
        stored = json.loads(place.read_bytes())
        if stored["files"] == before:
            return str(stored["value"])
    value = compute()
    with contextlib.suppress(OSError):
        newest = max(moment for _, *times in before for moment in times)
        if _states(paths) == before and time.time_ns() - newest > RECENT * 1e9:
            text = json.dumps({"files": before, "value": value})
            write_atomically(place, lambda temporary: temporary.write_text(text))
    return value


def _states(paths: Sequence[Path]) -> list[list[int]]:
    stats = [path.stat() for path in paths]
    return [[stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
