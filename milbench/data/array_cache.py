"""Caches of records whose arrays take long to make: a folder each, written atomically and memory-mapped.

A cache may be removed at any time. It is believed only where it is whole: its record, cache.json, holds the size and
the SHA-256 of every array, and a digest of itself. Whatever else is found there is made anew. Nothing is unpickled.

To read a large cache in every cell would take long, so the digest of an array is remembered until the file changes (see
`milbench._utils.digests`). Whoever writes to a file changes its times, also who writes zeros or flips one bit, and the
array is read again. One thing is out of reach: a disk that silently returns other bits than were written. That is found
only when the array is read in full, at the first use on a machine and by each user.
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

FORMAT = 5  # version of the cached records: raise it when the same files give another record
RECORD = "cache.json"
MOST_RECORD = 1 << 30
"""Bytes. No record is longer; a longer one is not read."""
Fields = dict[str, Any]  # of a record, by their names: arrays, and data that JSON can hold
DeclareInputs = Callable[[Sequence[str]], None]
"""Declares the files that arrays are made from, by their paths from a folder; called before they are read."""
Write = Callable[[Path, DeclareInputs], Fields]
Mode = Literal["r", "c"]


def cached_arrays(place: Path, folder: Path, write: Write, mode: Mode = "r") -> Fields:
    """Return the record in the cache `place`, its arrays mapped ("c": to be changed in memory).

    Where there is none, or a file of `folder` that it was made from has changed, `write` returns a new one; arrays that
    memory does not hold it puts into the new folder itself, as NAME.npy. One process writes; an error leaves nothing.
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
                about = _write_record(new, folder, write)
                _move(new, place, temporary / "old")
                record = _map_written(place, about, mode)
    except OSError as error:
        elsewhere = "the environment variable MILBENCH_CACHE names a folder elsewhere"
        raise UsageError(f"cannot keep {place}: {error.strerror or error}; {elsewhere}") from error
    finally:
        with suppress(OSError):
            place.parent.rmdir()  # which is empty where the first cache was refused
    return record


def _write_record(new: Path, folder: Path, write: Write) -> dict[str, Any]:
    """Fill a new folder with the arrays that `write` makes and their record, which is returned."""
    states: list[list[Any]] = []

    def declare(names: Sequence[str]) -> None:
        states.extend(_file_states(folder, names))

    known = write(new, declare)
    for name, value in list(known.items()):
        if isinstance(value, np.ndarray):
            np.save(new / f"{name}.npy", value)
            del known[name]
    arrays = {}
    for path in sorted(new.glob("*.npy")):
        arrays[path.stem] = [path.stat().st_size, digests.read_digest(path, "sha256")]
    about = {"format": FORMAT, "states": states, "known": known, "arrays": arrays}
    # As it will be read: JSON has no tuples.
    written: dict[str, Any] = json.loads(json.dumps(about))
    (new / RECORD).write_text(json.dumps(written | {"digest": _digest(written)}))
    return written


def _move(new: Path, place: Path, old: Path) -> None:
    """Move a new cache to its place, and what was there away."""
    # Without this the loss of the machine may leave empty files under valid names.
    flush_tree(new)
    if os.path.lexists(place):
        place.rename(old)
    new.rename(place)
    flush_folder(place.parent)


def _map_written(place: Path, about: dict[str, Any], mode: Mode) -> Fields:
    """Return a record that this process has written, without reading its arrays once more."""
    try:
        return _map_arrays(place, about, mode)
    except (ValueError, EOFError):
        raise UsageError(f"cannot keep {place}: what was written cannot be read") from None


def _find_record(place: Path, folder: Path, mode: Mode) -> Fields | None:
    """Return the record; None if there is none, it is not whole, or the files of `folder` have changed."""
    # Files of a damaged cache may hold anything. An array that is shorter than its header claims is a ValueError, an
    # empty one an EOFError.
    try:
        about = json.loads(read_file(place / RECORD, most=MOST_RECORD))
        if about.pop("digest") != _digest(about) or about["format"] != FORMAT:
            return None
        names = [state[0] for state in about["states"]]
        if _file_states(folder, names) != about["states"]:
            return None
        for name, (size, digest) in about["arrays"].items():
            if not _is_whole(place / f"{name}.npy", size, digest):
                return None
        return _map_arrays(place, about, mode)
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _is_whole(path: Path, size: int, digest: str) -> bool:
    """Return whether an array is as it was written."""
    # The size comes first: a file of another one is not read.
    return path.stat().st_size == size and digests.file_digest(path, "sha256") == digest


def _map_arrays(place: Path, about: dict[str, Any], mode: Mode) -> Fields:
    fields: Fields = dict(about["known"])
    for name in about["arrays"]:
        fields[name] = np.load(place / f"{name}.npy", mode, allow_pickle=False)
    return fields


def _digest(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _file_states(folder: Path, names: Sequence[str]) -> list[list[Any]]:
    """Return the names of files with their sizes and times, which change with them, as far as they are there."""
    states: list[list[Any]] = [[name] for name in names]
    for state in states:
        with suppress(OSError, ValueError):
            stat = (folder / state[0]).stat()
            state += [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    return states


def write_header(out: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the header of a .npy file, as long for any number of rows, to which arrays are appended in parts."""
    # A full disk is then an error that can be caught, while writing to mapped memory would kill the process.
    np.lib.format.write_array_header_1_0(
        out, {"descr": dtype.str, "fortran_order": False, "shape": shape}
    )


def cache_place(path: Path, kind: str) -> Path:
    """Return the folder for caches: in MILBENCH_CACHE, hidden beside `path`, or where that is read-only the user's."""
    from platformdirs import user_cache_path

    parent, elsewhere = path.parent, os.environ.get("MILBENCH_CACHE")
    if (
        not elsewhere
        and parent.is_dir()
        and parent.stat().st_mode & 0o222
        and os.access(parent, os.W_OK)
    ):
        return parent / f".{kind}"
    root = Path(elsewhere).absolute() if elsewhere else user_cache_path("milbench", appauthor=False)
    return root / kind / hashlib.sha256(str(parent.resolve()).encode()).hexdigest()[:16]
