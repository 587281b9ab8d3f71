"""Caches of records whose arrays take long to make: a folder each, written atomically and memory-mapped.

A cache may be removed at any time; one that is outdated or truncated is rebuilt. Nothing is unpickled.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from milbench._utils.files import scratch_folder
from milbench.errors import UsageError

FORMAT = 5  # version of the cached records: raise it when the same files give another record
Fields = dict[str, Any]  # of a record, by their names: arrays, and data that JSON can hold
DeclareInputs = Callable[[Sequence[str]], None]
"""Declares the files that arrays are made from, by their paths from a folder; called before they are read."""


def cached_arrays(
    place: Path,
    folder: Path,
    write: Callable[[Path, DeclareInputs], Fields],
    mode: Literal["r", "c"] = "r",
) -> Fields:
    """Return the record in the cache `place`, its arrays mapped ("c": to be changed in memory).

    Where there is none, or a file of `folder` that it was made from has changed, `write` returns a new one; arrays that
    memory does not hold it puts into the new folder itself, as NAME.npy. One process writes; an error leaves nothing.
    """
    if (record := _map_record(place, folder, mode)) is not None:
        return record
    try:
        with scratch_folder(place.parent, place.name) as temporary:
            record = _map_record(
                place, folder, mode
            )  # another process may have made it while this one waited
            if record is None:
                new = temporary / "new"
                new.mkdir()
                states: list[list[Any]] = []
                written = write(new, lambda names: states.extend(_file_states(folder, names)))
                for name in [
                    name for name, value in written.items() if isinstance(value, np.ndarray)
                ]:
                    np.save(new / f"{name}.npy", written.pop(name))
                arrays = [path.stem for path in new.glob("*.npy")]
                about = {"format": FORMAT, "states": states, "known": written, "arrays": arrays}
                (new / "cache.json").write_text(json.dumps(about))
                if place.exists():
                    place.rename(temporary / "old")
                new.rename(place)
                record = _map_record(place, None, mode)
    except OSError as error:
        elsewhere = "the environment variable MILBENCH_CACHE names a folder elsewhere"
        raise UsageError(f"cannot keep {place}: {error.strerror or error}; {elsewhere}") from error
    finally:
        with suppress(OSError):
            place.parent.rmdir()  # which is empty where the first cache was refused
    if record is None:
        raise UsageError(f"cannot keep {place}: what was written cannot be read")
    return record


def _map_record(place: Path, folder: Path | None, mode: Literal["r", "c"]) -> Fields | None:
    """Return the record; None if it is damaged or, where a `folder` is given, its files have changed."""
    try:
        about = json.loads((place / "cache.json").read_bytes())
        names = [name for name, *_ in about["states"]]
        if folder and (about["format"] != FORMAT or _file_states(folder, names) != about["states"]):
            return None
        # An array that is shorter than its header claims is a ValueError.
        arrays = {
            name: np.load(place / f"{name}.npy", mode, allow_pickle=False)
            for name in about["arrays"]
        }
        return arrays | dict(about["known"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
