"""Folders of pictures in SVHN's format below a data directory: train, test and perhaps extra, each with its records.

`manifest.json` has the digest of every part that milbench fetched or made. Others are accepted and never replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milbench._utils.files import folder_digest, write_atomically
from milbench.data.digit_struct import FILE
from milbench.errors import UsageError

MANIFEST = "manifest.json"
PARTS = ("train", "test", "extra")


@dataclass(frozen=True)
class NumberPictures:
    """A data set of such folders; `fetch` downloads or makes below a data directory what is missing."""

    name: str
    fetch: Callable[[Path], None]

    def place(self, root: Path) -> Path:
        """Return the folder of the parts."""
        return root / self.name

    def missing(self, root: Path) -> list[str]:
        """Return the missing records of train and test; extra is optional."""
        needed = [f"{self.name}/{part}/{FILE}" for part in ("train", "test")]
        return [path for path in needed if not (root / path).exists()]

    def problems(self, root: Path, *, remembered: bool = False) -> list[str]:  # noqa: ARG002
        """Read every file; return one message for each part that changed since it was fetched or made."""
        place = self.place(root)
        found = (changed(place, part) for part in manifest(place)["sha256"] if (place / part).is_dir())
        return [problem for problem in found if problem]

    def identity(self, root: Path) -> str:
        """Return a digest of the parts that were fetched or made, "" if there are none."""
        known = manifest(self.place(root))["sha256"]
        return hashlib.sha256("".join(known.values()).encode()).hexdigest()[:16] if known else ""

    def remark(self, root: Path) -> str:
        """Return the number of pictures of each part, and which of them milbench neither fetched nor made."""
        place = self.place(root)
        about = manifest(place)
        parts = [f"seed {about['seed']}"] if "seed" in about else []
        for part in PARTS:
            if (place / part).is_dir():
                own = "" if part in about["sha256"] else " (not by milbench)"
                parts.append(f"{len([*(place / part).glob('*.png')]):,} {part}{own}")
        return ", ".join(parts)


def manifest(place: Path) -> dict[str, Any]:
    """Return the manifest, without a digest where there is none. Raises UsageError if it is damaged."""
    path = place / MANIFEST
    try:
        about: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"sha256": {}}
        about["sha256"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return about


def add(place: Path, folder: Path, **more: Any) -> None:
    """Move a complete part into its place, after its digest was written into the manifest, with what else is known."""
    about = manifest(place) | more
    about["sha256"][folder.name] = folder_digest(folder)
    write_atomically(place / MANIFEST, lambda path: path.write_text(json.dumps(about, indent=1) + "\n"))
    folder.rename(place / folder.name)


def changed(place: Path, part: str) -> str:
    """Return what is wrong with a part that was fetched or made, "" if nothing is."""
    expected, now = manifest(place)["sha256"][part], folder_digest(place / part)
    return "" if now == expected else f"{place / part} is damaged: expected SHA-256 {expected}, found {now}"
