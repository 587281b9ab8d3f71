"""Files and folders that are written completely or not at all, and digests of folders."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milbench._utils import locks
from milbench.errors import UsageError


def expanded(path: Path, option: str) -> Path:
    """Return a path with `~` replaced by the home folder; `option` names it in the UsageError if there is none."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UsageError(f"{option} {path}: {str(error).rstrip('.')}") from None


@contextmanager
def reading(what: object, fault: str = "cannot be read") -> Iterator[None]:
    """Raise UsageError where the block fails to read a file: libraries have errors of their own for a damaged one."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001
        raise UsageError(f"{what} {fault}: {error}") from None


@contextmanager
def stored_arrays(kind: str, path: Path) -> Iterator[Any]:
    """Open an .npz file of a kind, such as "gallery", for a block that reads it; UsageError where that fails."""
    import numpy as np

    with reading(f"{kind} {path}"), np.load(path, allow_pickle=False) as stored:
        yield stored


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file completely or not at all: `write` fills a temporary file beside it, which then replaces it.

    Its folder is created if missing. An OSError always names a file, `path` if the system names none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # the system names none where the disk is full
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield an empty hidden folder in which `parent/name` is prepared, to be moved there when it is complete.

    The lock of `parent`, which is created if missing, is held for the block: a second process waits, and should then
    check whether `parent/name` exists by now. Scratch folders of killed processes are removed first, this one at last.
    """
    parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{name}-"
    with locks.lock(parent) as alone:
        if alone:  # without a lock, another process may be using them
            for leftover in parent.glob(f"{prefix}*"):
                shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            dir=parent, prefix=prefix, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)


def folder_digest(folder: Path, pattern: str = "*") -> str:
    """Return a SHA-256 of the paths and contents of files that match below a folder, hidden ones left out."""
    digest = hashlib.sha256()
    for path in sorted(
        p for p in folder.rglob(pattern) if p.is_file() and not p.name.startswith(".")
    ):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def python_files() -> list[str]:
    """Return the names of the Python files in the working folder."""
    return [path.name for path in Path().glob("*.py")]


def file_and_member(source: str) -> tuple[str, str]:
    """Return the path and the name in FILE.py or FILE.py:NAME; ("", "") of a source that is no file."""
    match = re.fullmatch(r"(.+\.py)(?::(\w+))?", source, re.DOTALL)
    return (match[1], match[2] or "") if match else ("", "")
