"""Folders of arrays that took long to make: written whole or not at all, and memory-mapped afterwards.

A cache may be removed at any time; it is made anew where it is outdated or cut short. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from milbench._utils.files import scratch_folder
from milbench.errors import UsageError

Known = dict[str, Any]
"""What is known of arrays, as data that JSON can hold."""
Arrays = dict[str, NDArray[Any]]


def cached_arrays(
    place: Path, is_current: Callable[[Known], bool], write: Callable[[Path], Known], mode: Literal["r", "c"] = "r"
) -> tuple[Arrays, Known]:
    """Return the arrays of the cache `place`, mapped ("c": to be changed in memory), and what is known of them.

    Where there is none, or `is_current` refuses what is known of it, `write` puts NAME.npy for every array into a
    folder and returns what is known. Of several processes one writes; an error leaves nothing. Raises UsageError where
    the disk refuses.
    """
    if (found := _mapped(place, is_current, mode)) is not None:
        return found
    try:
        with scratch_folder(place.parent, place.name) as temporary:
            found = _mapped(place, is_current, mode)  # another process may have made it while this one waited
            if found is None:
                new = temporary / "new"
                new.mkdir()
                about = {"known": write(new), "arrays": [path.stem for path in new.glob("*.npy")]}
                (new / "cache.json").write_text(json.dumps(about))
                if place.exists():
                    place.rename(temporary / "old")
                new.rename(place)
                found = _mapped(place, lambda _: True, mode)
    except OSError as error:
        raise UsageError(f"cannot keep {place}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            place.parent.rmdir()  # which is empty where the first cache was refused
    if found is None:
        raise UsageError(f"cannot keep {place}: what was written cannot be read")
    return found


def _mapped(place: Path, is_current: Callable[[Known], bool], mode: Literal["r", "c"]) -> tuple[Arrays, Known] | None:
    try:
        about = json.loads((place / "cache.json").read_bytes())
        known: Known = about["known"]
        if not is_current(known):
            return None
        # An array that is shorter than its header claims is a ValueError.
        arrays = {name: np.load(place / f"{name}.npy", mode, allow_pickle=False) for name in about["arrays"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return arrays, known


def file_state(path: Path) -> list[int]:
    """Return size and times of a file, which change with it; an empty list where there is none."""
    with suppress(OSError, ValueError):
        stat = path.stat()
        return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return []


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


def check_room(folder: Path, needed: int, what: str) -> None:
    """Raise UsageError where the disk of a folder has too little room for arrays of `needed` bytes."""
    if needed > (free := shutil.disk_usage(folder).free):
        raise UsageError(
            f"{what} need {needed:,} bytes in {folder.parent.parent}, where {free:,} are free; the environment "
            "variable MILBENCH_CACHE names a folder elsewhere"
        )
