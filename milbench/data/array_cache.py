"""Caches of arrays that take long to make: each is a folder, written atomically and memory-mapped.

A cache keeps a record: arrays, and data that JSON can hold, by names. Each array is a file
NAME.npy. Everything else is in cache.json: the other data, the size and the SHA-256 of every array,
and a digest of cache.json itself. A cache may be removed at any time. A cache that is not whole is
made anew. Nothing is unpickled.

It would take long to read a large cache in full in every cell, so the digest of an array is
remembered until its file changes (see `milbench._utils.digests`). Any write to a file changes its
times, and then the array is read again. A disk that silently returns other bits than were written
is noticed only when the array is read in full: once on each machine, for each user.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from milbench._utils import digests
from milbench._utils.files import flush_folder, flush_tree, read_file, scratch_folder
from milbench.errors import UsageError

FORMAT = 5
"""Version of the records: raise it when a change of the code makes another record of a file."""
DESCRIPTION = "cache.json"
MOST_DESCRIPTION = 1 << 30
"""The most bytes that a cache.json may have. A longer file is damaged, and is not read."""
Fields = dict[str, Any]
"""The fields of a record by their names: arrays, and data that JSON can hold."""
DeclareInputs = Callable[[Sequence[str]], None]
"""Declares the files that a record is made from, by their paths from a folder.

It is called before the files are read, so that a change during the reading is noticed.
"""
Write = Callable[[Path, DeclareInputs], Fields]
"""Makes a record, given an empty folder into which it may write large arrays."""
Mode = Literal["r", "c"]
"""How numpy maps arrays: "r" to be read only, "c" to be changed in memory but not in the file."""


def cached_arrays(place: Path, folder: Path, write: Write, mode: Mode = "r") -> Fields:
    """Return the record of a cache, made first where there is no current cache; arrays are mapped.

    One process makes the cache, and others wait for it. If making it fails, no files are left.

    Args:
        place: the folder of the cache.
        folder: the folder of the files that the record is made from. If one of them has changed
            since, the cache is made anew.
        write: makes the record. It may write an array that is too large for memory into the folder
            that it is given, as NAME.npy.
        mode: how arrays are mapped.

    Raises:
        UsageError: where the cache cannot be written.
    """
    record = _find_record(place, folder, mode)
    if record is not None:
        return record
    try:
        with scratch_folder(place.parent, place.name) as temporary:
            # Another process may have made it while this one waited.
            record = _find_record(place, folder, mode)
            if record is None:
                new = temporary / "new"
                new.mkdir()
                description = _write_record(new, folder, write)
                _move(new, place, temporary / "old")
                record = _map_written(place, description, mode)
    except OSError as error:
        elsewhere = "the environment variable MILBENCH_CACHE names a folder elsewhere"
        raise UsageError(f"cannot keep {place}: {error.strerror or error}; {elsewhere}") from error
    finally:
        # If no cache could be made, the folder of caches may be empty. `rmdir` removes only
        # an empty folder.
        with suppress(OSError):
            place.parent.rmdir()
    return record


def _write_record(new: Path, folder: Path, write: Write) -> dict[str, Any]:
    """Write a record into a new folder; return its description, the content of cache.json."""
    states: list[list[Any]] = []

    def declare(names: Sequence[str]) -> None:
        states.extend(_file_states(folder, names))

    in_description: Fields = {}
    for name, value in write(new, declare).items():
        if isinstance(value, np.ndarray):
            np.save(new / f"{name}.npy", value)
        else:
            in_description[name] = value
    # The arrays written above, and those that `write` has put into the folder itself.
    arrays = {}
    for path in sorted(new.glob("*.npy")):
        arrays[path.stem] = [path.stat().st_size, digests.read_digest(path, "sha256")]
    made = {"format": FORMAT, "states": states, "known": in_description, "arrays": arrays}
    # JSON turns tuples into lists. The digest must be of what will be read.
    description: dict[str, Any] = json.loads(json.dumps(made))
    content = json.dumps(description | {"digest": _digest(description)})
    (new / DESCRIPTION).write_text(content)
    return description


def _move(new: Path, place: Path, old: Path) -> None:
    """Move a new cache to the folder `place`, and what was there before to `old`."""
    # Without this the loss of the machine may leave empty files under valid names.
    flush_tree(new)
    if os.path.lexists(place):
        place.rename(old)
    new.rename(place)
    flush_folder(place.parent)


def _map_written(place: Path, description: dict[str, Any], mode: Mode) -> Fields:
    """Return a record that this process has just written, without a check of its digests."""
    try:
        return _map_arrays(place, description, mode)
    except (ValueError, EOFError):
        raise UsageError(f"cannot keep {place}: what was written cannot be read") from None


def _find_record(place: Path, folder: Path, mode: Mode) -> Fields | None:
    """Return the record of a cache, None where the cache cannot be used.

    That is: there is no cache, it is not whole, or a file of `folder` that it was made
    from has changed.
    """
    # The files of a damaged cache may hold anything, hence the many errors below. numpy
    # raises ValueError for an array that is shorter than its header claims, and EOFError for
    # an empty file.
    try:
        description = json.loads(read_file(place / DESCRIPTION, most=MOST_DESCRIPTION))
        if description.pop("digest") != _digest(description):
            return None
        if description["format"] != FORMAT:
            return None
        names = [state[0] for state in description["states"]]
        if _file_states(folder, names) != description["states"]:
            return None
        for name, (size, digest) in description["arrays"].items():
            if not _is_whole(place / f"{name}.npy", size, digest):
                return None
        return _map_arrays(place, description, mode)
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _is_whole(path: Path, size: int, digest: str) -> bool:
    """Return whether an array is as it was written."""
    # The size is compared first, so that a file of another size need not be read.
    return path.stat().st_size == size and digests.file_digest(path, "sha256") == digest


def _map_arrays(place: Path, description: dict[str, Any], mode: Mode) -> Fields:
    """Return the fields of a record, its arrays mapped."""
    fields: Fields = dict(description["known"])
    for name in description["arrays"]:
        fields[name] = np.load(place / f"{name}.npy", mode, allow_pickle=False)
    return fields


def _digest(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _file_states(folder: Path, names: Sequence[str]) -> list[list[Any]]:
    """Return the name of each file, and if it exists its size and the times of its last changes."""
    states: list[list[Any]] = [[name] for name in names]
    for state in states:
        with suppress(OSError, ValueError):
            stat = (folder / state[0]).stat()
            state += [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return states


def write_header(out: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the header of a .npy file, to which arrays are then appended in parts.

    It has the same length for any number of rows, so that it can be written again when the
    number is known.
    """
    # numpy could also make a memory-mapped file to write to. But where the disk is full, writing to
    # mapped memory kills the process, while appending to a file raises an error.
    np.lib.format.write_array_header_1_0(
        out, {"descr": dtype.str, "fortran_order": False, "shape": shape}
    )


def cache_place(path: Path, kind: str) -> Path:
    """Return the folder for the caches of one kind that are made from the file or folder `path`.

    It is below the folder that MILBENCH_CACHE names, if that is set. Otherwise it is the
    hidden folder `.KIND` beside `path`, or below the user's cache folder where nothing may be
    written beside `path`.
    """
    from platformdirs import user_cache_path

    parent = path.parent
    elsewhere = os.environ.get("MILBENCH_CACHE")
    if elsewhere:
        root = Path(elsewhere).absolute()
    elif _is_writable(parent):
        return parent / f".{kind}"
    else:
        root = user_cache_path("milbench", appauthor=False)
    # The digest keeps apart folders of one name in different parent folders.
    return root / kind / hashlib.sha256(str(parent.resolve()).encode()).hexdigest()[:16]


def _is_writable(folder: Path) -> bool:
    """Return whether a folder exists and may be written to.

    A folder in which nobody has the right to write counts as read-only, even for root.
    """
    if not folder.is_dir():
        return False
    # `os.access` alone would allow root to write to any folder.
    has_right_to_write = bool(folder.stat().st_mode & 0o222)
    return has_right_to_write and os.access(folder, os.W_OK)
