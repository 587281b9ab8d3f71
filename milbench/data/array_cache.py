"""Caches of records whose arrays take long to make: a folder each, written atomically and memory-mapped.

A cache may be removed at any time; one that is outdated or truncated is rebuilt. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from milbench._utils.files import scratch_folder
from milbench.errors import UsageError

FORMAT = 3
"""Version of the cached records: raise it when the same files give another record."""
RECENT = 2.0
"""Seconds; a file that changed this shortly before it was read may have changed again within the clock's resolution."""
Fields = dict[str, Any]
"""Of a record, by their names: arrays, and data that JSON can hold."""
DeclareInputs = Callable[[Sequence[str]], None]
"""Declares the files that arrays are made from, by their paths from a folder; called before they are read."""


def cached_arrays(
    place: Path, folder: Path, write: Callable[[Path, DeclareInputs], Fields], mode: Literal["r", "c"] = "r"
) -> Fields:
    """Return the record in the cache `place`, its arrays mapped ("c": to be changed in memory).

    Where there is none, or a file of `folder` that it was made from has changed, `write` returns a new one; it may
    itself put NAME.npy into the new folder that it is given, for arrays that memory does not hold. Of several processes
    one writes; an error leaves nothing. Raises UsageError where the disk refuses.
    """
    if (record := _mapped(place, folder, mode)) is not None:
        return record
    try:
        with scratch_folder(place.parent, place.name) as temporary:
            record = _mapped(place, folder, mode)  # another process may have made it while this one waited
            if record is None:
                new = temporary / "new"
                new.mkdir()
                states: list[list[Any]] = []
                about: Fields = {"format": FORMAT, "begun": time.time_ns(), "states": states}
                written = write(new, lambda names: states.extend(_states(folder, names)))
                for name in [name for name, value in written.items() if isinstance(value, np.ndarray)]:
                    np.save(new / f"{name}.npy", written.pop(name))
                about |= {"known": written, "arrays": [path.stem for path in new.glob("*.npy")]}
                (new / "cache.json").write_text(json.dumps(about))
                if place.exists():
                    place.rename(temporary / "old")
                new.rename(place)
                record = _mapped(place, None, mode)
    except OSError as error:
        elsewhere = "the environment variable MILBENCH_CACHE names a folder elsewhere"
        raise UsageError(f"cannot keep {place}: {error.strerror or error}; {elsewhere}") from error
    finally:
        with suppress(OSError):
            place.parent.rmdir()  # which is empty where the first cache was refused
    if record is None:
        raise UsageError(f"cannot keep {place}: what was written cannot be read")
    return record


def _mapped(place: Path, folder: Path | None, mode: Literal["r", "c"]) -> Fields | None:
    """Return the record; None if it is damaged or, where a `folder` is given, its files have changed."""
    try:
        about = json.loads((place / "cache.json").read_bytes())
        if folder and not _is_current(about, folder):
            return None
        # An array that is shorter than its header claims is a ValueError.
        arrays = {name: np.load(place / f"{name}.npy", mode, allow_pickle=False) for name in about["arrays"]}
        return arrays | dict(about["known"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_current(about: Fields, folder: Path) -> bool:
    newest = max((time for _, *state in about["states"] for time in state[1:]), default=0)
    trusted = about["format"] == FORMAT and about["begun"] - newest > RECENT * 1e9
    return bool(trusted and _states(folder, [name for name, *_ in about["states"]]) == about["states"])


def _states(folder: Path, names: Sequence[str]) -> list[list[Any]]:
    return [[name, *file_state(folder / name)] for name in names]


def file_state(path: Path) -> list[int]:
    """Return size and times of a file, which change with it; an empty list where there is none."""
    with suppress(OSError, ValueError):
        stat = path.stat()
        return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return []


def write_header(out: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the header of a .npy file, which is as long for any number of rows.

    Arrays are appended to it in parts: a full disk is then an error that can be caught, while writing to mapped memory
    would kill the process.
    """
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)


def cache_place(path: Path, kind: str) -> Path:
    """Return the folder for caches of a kind: in MILBENCH_CACHE, else hidden beside `path`, else the user's.

    The last is for a read-only folder, also for root, where permissions allow nobody to write.
    """
    parent = path.parent
    name = hashlib.sha256(str(parent.resolve()).encode()).hexdigest()[:16]
    if elsewhere := os.environ.get("MILBENCH_CACHE"):
        return Path(elsewhere).absolute() / kind / name
    if parent.is_dir() and parent.stat().st_mode & 0o222 and os.access(parent, os.W_OK):
        return parent / f".{kind}"
    from platformdirs import user_cache_path

    return user_cache_path("milbench", appauthor=False) / kind / name
