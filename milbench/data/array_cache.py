"""A folder of arrays that took long to make: made once, checked, and memory-mapped afterwards.

A cache is a folder of .npy files and `cache.json`, which holds the format, a digest of the inputs, the parameters by
which the arrays were made and the SHA-256 of every array. It is written to a temporary folder and moved to its place
when it is complete. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milbench._utils import digests
from milbench._utils.files import scratch_folder
from milbench.errors import UsageError

Writer = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class ArrayCache:
    """One cache.

    Args:
        place: its folder.
        schema: the names of the arrays and their types; None: fixed-width text.
        version: of the layout; a cache of another version is refused and kept.
        remedy: what happens when a cache is removed, such as "the crops are made again", for messages.
    """

    place: Path
    schema: Mapping[str, str | None]
    version: int
    remedy: str

    def load(self, inputs: str, parameters: Any, writer: Callable[[], Writer]) -> tuple[dict[str, NDArray[Any]], str]:
        """Return the arrays, mapped into memory, and the digest of what they were made from.

        Args:
            inputs: a digest of the files that the arrays are made from, which changes with a file and may read none.
            parameters: how they are made, as data that JSON can hold.
            writer: returns the function that writes NAME.npy for every array into a folder, and returns the digest. It
                is called where there is no current cache, and what it refuses leaves no trace. When several processes
                ask at once, one of them writes.

        Raises:
            UsageError: the cache is damaged or of another version. It is kept, because another version may need it.
            OSError: a file cannot be written or read; nothing is left of a new cache then.
        """
        about = self._current(inputs, parameters) or self._made(inputs, parameters, writer())
        return self._mapped(about), about["digest"]

    def _open(self) -> dict[str, Any] | None:
        """Return the part `about` of cache.json, None if there is no cache. Raises UsageError if it is damaged."""
        path = self.place / "cache.json"
        if not path.exists():
            return None
        try:
            document = json.loads(path.read_bytes())
            about: dict[str, Any] = document["about"]
            version, whole = about["format"], document["sha256"] == _digest_of(about)
        except (ValueError, KeyError, TypeError):
            version, whole = self.version, False
        if version != self.version:
            raise UsageError(
                f"{self.place} was written by another version of milbench (format {version}, not {self.version}); "
                f"remove it, and {self.remedy}"
            )
        if not whole:
            raise UsageError(f"{path} is damaged; remove {self.place}, and {self.remedy}")
        return about

    def _current(self, inputs: str, parameters: Any) -> dict[str, Any] | None:
        """Return what `_open` returns, None also if the arrays were made from other files or with other parameters."""
        about = self._open()
        as_wanted = about is not None and (about["inputs"], about["parameters"]) == (inputs, parameters)
        return about if as_wanted else None

    def _made(self, inputs: str, parameters: Any, write: Writer) -> dict[str, Any]:
        """Put a new cache into its place, replacing an outdated one, and return its `about`."""
        with scratch_folder(self.place.parent, self.place.name) as temporary:
            if about := self._current(inputs, parameters):  # another process made it while this one waited
                return about
            new = temporary / "new"
            new.mkdir()
            digest = write(new)
            about = {
                "format": self.version,
                "inputs": inputs,
                "parameters": parameters,
                "digest": digest,
                "files": {array: digests.read_digest(new / f"{array}.npy", "sha256") for array in self.schema},
            }
            (new / "cache.json").write_text(json.dumps({"about": about, "sha256": _digest_of(about)}, indent=1))
            if self.place.exists():
                self.place.rename(temporary / "old")
            new.rename(self.place)
        return about

    def _mapped(self, about: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """Map the arrays after their digests are checked."""
        arrays = {}
        for name, dtype in self.schema.items():
            path = self.place / f"{name}.npy"
            try:
                if digests.file_digest(path, "sha256") != about["files"][name]:
                    raise ValueError("SHA-256 differs")
                array = np.load(path, mmap_mode="c", allow_pickle=False)
                if dtype is not None and array.dtype != dtype:
                    raise ValueError(f"{array.dtype} instead of {dtype}")
            except (OSError, ValueError, KeyError) as error:
                message = f"{path} is damaged ({error}); remove {self.place}, and {self.remedy}"
                raise UsageError(message) from error
            arrays[name] = array
        return arrays


def cache_place(path: Path, kind: str) -> Path:
    """Return the folder of caches: beside a file or folder, or in the user's cache folder if that is read-only.

    A folder whose permissions allow nobody to write is read-only for root as well.

    Args:
        path: what the arrays are made from.
        kind: such as "crops", the name of the folder, which is hidden beside the path.
    """
    parent = path.parent
    if parent.is_dir() and parent.stat().st_mode & 0o222 and os.access(parent, os.W_OK):
        return parent / f".{kind}"
    from platformdirs import user_cache_path

    user = user_cache_path("milbench", appauthor=False)
    return user / kind / hashlib.sha256(str(parent.resolve()).encode()).hexdigest()[:16]


def _digest_of(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
