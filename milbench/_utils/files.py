"""Files that are whole or not there, and the folder that a project of milbench lives in."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from milbench._utils import locks


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step. An OSError names the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk is met in the middle of a file, and tells none
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def staged(parent: Path, name: str) -> Iterator[Path]:
    """Yield an empty folder, gone after the block, for what is moved to `parent/name` when it is whole.

    One process at a time has one in `parent`, others wait: look then whether what is to be made is there. What a killed
    process left of such a folder is removed.
    """
    parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{name}-"
    with locks.lock(parent) as alone:
        for left in parent.glob(f"{prefix}*") if alone else ():
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=prefix, ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def folder_digest(folder: Path) -> str:
    """Return a SHA-256 over names and contents of all files below a folder but hidden ones, whatever their dates."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()
