"""Folders of arrays that took long to make: written whole or not at all, and memory-mapped afterwards.

A cache may be removed at any time; it is made anew where it is outdated or cut short. Nothing is unpickled.
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

FORMAT = 2
"""Version of what is kept, to be raised when the same files are kept in another way."""
RECENT = 2.0
"""Seconds; a file that changed so shortly before it was read may have changed again before a clock shows it."""
Known = dict[str, Any]
"""Arrays, and what else is known of them as data that JSON can hold, by their names."""
Uses = Callable[[Sequence[str]], None]
"""Says which files arrays are made from, by their paths from a folder; to be called before they are read."""


def cached_arrays(
    place: Path, folder: Path, write: Callable[[Path, Uses], Known], mode: Literal["r", "c"] = "r"
) -> Known:
    """Return what the cache `place` holds, its arrays mapped ("c": to be changed in memory).

    Where there is none, or a file of `folder` that it was made from has changed, `write` returns what is to be kept; it
    may itself put NAME.npy into the new folder that it is given, for arrays that memory does not hold. Of several
    processes one writes; an error leaves nothing. Raises UsageError where the disk refuses.
    """
    if (found := _mapped(place, folder, mode)) is not None:
        return found
    try:
        with scratch_folder(place.parent, place.name) as temporary:
            found = _mapped(place, folder, mode)  # another process may have made it while this one waited
            if found is None:
                new = temporary / "new"
                new.mkdir()
                states: list[list[Any]] = []
                about: Known = {"format": FORMAT, "begun": time.time_ns(), "states": states}
                known = write(new, lambda names: states.extend(_states(folder, names)))
                for name in [name for name, value in known.items() if isinstance(value, np.ndarray)]:
                    np.save(new / f"{name}.npy", known.pop(name))
                about |= {"known": known, "arrays": [path.stem for path in new.glob("*.npy")]}
                (new / "cache.json").write_text(json.dumps(about))
                if place.exists():
                    place.rename(temporary / "old")
                new.rename(place)
                found = _mapped(place, None, mode)
    except OSError as error:
        elsewhere = "the environment variable MILBENCH_CACHE names a folder elsewhere"
        raise UsageError(f"cannot keep {place}: {error.strerror or error}; {elsewhere}") from error
    finally:
        with suppress(OSError):
            place.parent.rmdir()  # which is empty where the first cache was refused
    if found is None:
        raise UsageError(f"cannot keep {place}: what was written cannot be read")
    return found


def _mapped(place: Path, folder: Path | None, mode: Literal["r", "c"]) -> Known | None:
    """Return what is kept, unless it is damaged or, where a `folder` is given, no longer what its files are."""
    try:
        about = json.loads((place / "cache.json").read_bytes())
        if folder and not _is_current(about, folder):
            return None
        # An array that is shorter than its header claims is a ValueError.
        arrays = {name: np.load(place / f"{name}.npy", mode, allow_pickle=False) for name in about["arrays"]}
        return arrays | dict(about["known"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_current(about: Known, folder: Path) -> bool:
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

    The last is for a read-only folder, as is one whose permissions allow nobody to write: root could, but should not.
    """
    parent = path.parent
    own = hashlib.sha256(str(parent.resolve()).encode()).hexdigest()[:16]
    if elsewhere := os.environ.get("MILBENCH_CACHE"):
        return Path(elsewhere).absolute() / kind / own
    if parent.is_dir() and parent.stat().st_mode & 0o222 and os.access(parent, os.W_OK):
        return parent / f".{kind}"
    from platformdirs import user_cache_path

    return user_cache_path("milbench", appauthor=False) / kind / own
