"""A folder of arrays that took long to make: made once, and memory-mapped afterwards.

A cache is a folder of .npy files and `cache.json`, which holds what is known of the arrays and of what they were made
from, and the SHA-256 of every array. It is written to a temporary folder and moved to its place when it is complete. It
may be removed at any time, and is made anew where it is outdated or damaged. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from milbench._utils import digests
from milbench._utils.files import scratch_folder
from milbench.errors import UsageError

Known = dict[str, Any]
"""What is known of arrays, as data that JSON can hold."""
LARGE = 1 << 26
"""Bytes; of an array that is larger the length alone is checked, as to read it would take longer than to use it."""


@dataclass(frozen=True, slots=True)
class ArrayCache:
    """One cache.

    Args:
        place: its folder.
        version: of the layout.
        mode: how arrays are mapped: "r", to be read alone, or "c", to be changed in memory.
    """

    place: Path
    version: int
    mode: Literal["r", "c"] = "r"

    def load(
        self, is_current: Callable[[Known], bool], write: Callable[[Path], Known]
    ) -> tuple[dict[str, NDArray[Any]], Known]:
        """Return the arrays, mapped into memory, and what is known of them.

        Args:
            is_current: whether a cache of which this is known is still that of the files it was made from.
            write: writes NAME.npy for every array into a folder, and returns what is known of them. It is called where
                there is no current cache, and what it refuses leaves no trace. When several processes ask at once, one
                of them writes.

        Raises:
            OSError: a file cannot be written or read; nothing is left of a new cache then.
        """
        if (found := self._current(is_current)) is not None:
            return found
        try:
            with scratch_folder(self.place.parent, self.place.name) as temporary:
                found = self._current(is_current)  # another process may have made it while this one waited
                if found is None:
                    self._replace(write, temporary)
        except BaseException:
            with suppress(OSError):
                self.place.parent.rmdir()  # which is empty where this was the first cache
            raise
        return found or self._mapped()

    def _current(self, is_current: Callable[[Known], bool]) -> tuple[dict[str, NDArray[Any]], Known] | None:
        """Return arrays and what is known of them, None if there is no current cache that is whole."""
        try:
            arrays, known = self._mapped()
            return (arrays, known) if is_current(known) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _mapped(self) -> tuple[dict[str, NDArray[Any]], Known]:
        """Map the arrays after their digests are checked; raise any of the errors above where one is damaged."""
        document = json.loads((self.place / "cache.json").read_bytes())
        about: Known = document["about"]
        if document["sha256"] != _digest_of(about) or about["format"] != self.version:
            raise ValueError("damaged, or of another version")
        arrays = {}
        for name, seal in about["files"].items():
            path = self.place / f"{name}.npy"
            if seal is not None and digests.file_digest(path, "sha256") != seal:
                raise ValueError("damaged")
            arrays[name] = np.load(path, mmap_mode=self.mode, allow_pickle=False)
        return arrays, about["known"]

    def _replace(self, write: Callable[[Path], Known], temporary: Path) -> None:
        """Put a new cache into its place, and an outdated or damaged one out of the way."""
        new = temporary / "new"
        new.mkdir()
        known = write(new)
        about = {"format": self.version, "known": known, "files": {p.stem: _seal(p) for p in new.glob("*.npy")}}
        (new / "cache.json").write_text(json.dumps({"about": about, "sha256": _digest_of(about)}))
        if self.place.exists():
            self.place.rename(temporary / "old")
        new.rename(self.place)


def cache_place(path: Path, kind: str) -> Path:
    """Return the folder of caches: beside a file or folder, or in the user's cache folder if that is read-only.

    A folder whose permissions allow nobody to write is read-only for root as well. The environment variable
    MILBENCH_CACHE names another place for all of them.

    Args:
        path: what the arrays are made from.
        kind: such as "crops", the name of the folder, which is hidden beside the path.
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


def _seal(path: Path) -> str | None:
    return digests.read_digest(path, "sha256") if path.stat().st_size <= LARGE else None


def _digest_of(about: Known) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
