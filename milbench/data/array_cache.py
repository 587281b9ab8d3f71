"""Caches of arrays that take long to make: a folder each, written atomically and memory-mapped.

A cache keeps a record: arrays, and data that JSON can hold, by names. Each array is a file
NAME.npy; everything else is in cache.json, with the size and the SHA-256 of every array and a
digest of itself. A cache may be removed at any time. It is used only where it is whole, and else
made anew. Nothing is unpickled.

To read a large cache in every cell would take long, so the digest of an array is remembered until
the file changes (see `milbench._utils.digests`). Whoever writes to a file changes its times, even
by writing zeros or flipping one bit, and the array is read again. A disk that silently returns
other bits than were written is found only when the array is read in full, at the first use on a
machine and by each user.
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
"""Version of the records: raise it when the same files give another record."""
DESCRIPTION = "cache.json"
MOST_DESCRIPTION = 1 << 30
"""Bytes. No description is longer; a longer one is not read."""
Fields = dict[str, Any]
"""The fields of a record by their names: arrays, and data that JSON can hold."""
DeclareInputs = Callable[[Sequence[str]], None]
"""Declares the files that arrays are made from, by their paths from a folder; called before they are read."""
Write = Callable[[Path, DeclareInputs], Fields]
"""Makes a record, given an empty folder for large arrays."""
Mode = Literal["r", "c"]
"""How arrays are mapped: to be read, or to be changed in memory alone."""


def cached_arrays(place: Path, folder: Path, write: Write, mode: Mode = "r") -> Fields:
    """Return the record in the cache `place`, its arrays mapped.

    Where there is none, or a file of `folder` that it was made from has changed, `write` makes a
    new one. It puts arrays that memory does not hold into the new folder itself, as NAME.npy. One
    process writes, and others wait; an error leaves nothing.
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
        # Where the first cache of a folder failed, the folder is empty. `rmdir` leaves others
        # alone.
        with suppress(OSError):
            place.parent.rmdir()
    return record


def _write_record(new: Path, folder: Path, write: Write) -> dict[str, Any]:
    """Write a record into a new folder; return its description."""
    states: list[list[Any]] = []

    def declare(names: Sequence[str]) -> None:
        states.extend(_file_states(folder, names))

    in_description: Fields = {}
    for name, value in write(new, declare).items():
        if isinstance(value, np.ndarray):
            np.save(new / f"{name}.npy", value)
        else:
            in_description[name] = value
    # These arrays, and those that `write` has put into the folder itself.
    arrays = {}
    for path in sorted(new.glob("*.npy")):
        arrays[path.stem] = [path.stat().st_size, digests.read_digest(path, "sha256")]
    made = {"format": FORMAT, "states": states, "known": in_description, "arrays": arrays}
    # As it will be read: JSON has no tuples.
    description: dict[str, Any] = json.loads(json.dumps(made))
    content = json.dumps(description | {"digest": _digest(description)})
    (new / DESCRIPTION).write_text(content)
    return description


def _move(new: Path, place: Path, old: Path) -> None:
    """Move a new cache to its place, and what was there to `old`."""
    # Without this the loss of the machine may leave empty files under valid names.
    flush_tree(new)
    if os.path.lexists(place):
        place.rename(old)
    new.rename(place)
    flush_folder(place.parent)


def _map_written(place: Path, description: dict[str, Any], mode: Mode) -> Fields:
    """Return a record that this process has written, without reading its arrays once more."""
    try:
        return _map_arrays(place, description, mode)
    except (ValueError, EOFError):
        raise UsageError(f"cannot keep {place}: what was written cannot be read") from None


def _find_record(place: Path, folder: Path, mode: Mode) -> Fields | None:
    """Return the record; None if there is none, it is not whole, or the files of `folder` have changed."""
    # Files of a damaged cache may hold anything. An array that is shorter than its header claims is
    # a ValueError, an empty one an EOFError.
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
    # The size comes first: a file of another one is not read.
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
    """Return the name of each file, with its size and times if it exists: they change when it is written to."""
    states: list[list[Any]] = [[name] for name in names]
    for state in states:
        with suppress(OSError, ValueError):
            stat = (folder / state[0]).stat()
            state += [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return states


def write_header(out: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the header of a .npy file, to which arrays are then appended in parts.

    It has the same length for any number of rows, so that it can be written again when the number
    is known.
    """
    # Where the disk is full, appending raises an error, while writing to mapped memory would kill
    # the process.
    np.lib.format.write_array_header_1_0(
        out, {"descr": dtype.str, "fortran_order": False, "shape": shape}
    )


def cache_place(path: Path, kind: str) -> Path:
    """Return the folder for caches of a kind of what is at `path`.

    It is below MILBENCH_CACHE if that is set, else hidden beside `path`. Where that is read-only,
    it is below the user's cache folder.
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
    # Folders of the same name in other places are kept apart.
    return root / kind / hashlib.sha256(str(parent.resolve()).encode()).hexdigest()[:16]


def _is_writable(folder: Path) -> bool:
    """Return whether there is a folder that may be written to. Where nobody has the right, not even by root."""
    if not folder.is_dir():
        return False
    # For root the system would say yes to any folder.
    has_right_to_write = bool(folder.stat().st_mode & 0o222)
    return has_right_to_write and os.access(folder, os.W_OK)
