"""Files and folders that are written completely or not at all, how they are read, and digests of folders.

Whoever reads a file of a store tells three cases apart. It may be missing. Something else may be in its place, such
as a folder or a named pipe: `WrongFile`. Or the system may refuse to read it, though it may be whole: `Unreadable`.
"""

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milbench._utils import locks
from milbench.errors import UsageError

MOST_TEXT = 1 << 28
"""Bytes. No text file that milbench writes is longer; a longer one is not read."""

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
"""What may be in the place of a file."""

NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM)
"""Errors of file systems on which a folder cannot be flushed, or of a folder that may be written but not read."""


class WrongFile(ValueError):  # noqa: N818 it is named for what is there
    """Something that is no file, or is much too long, is in the place of a file."""


class Unreadable(UsageError):  # noqa: N818 it is named for the state of the file
    """The system does not let us read a file or folder, which may be whole."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path} cannot be read: {error.strerror or error}")


class LinkToNothing(Unreadable):
    """A link leads to a place where nothing is, perhaps since a disk is not mounted."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, OSError(errno.ENOENT, "it is a link to nothing"))


def kind_of(mode: int) -> str:
    """Return what is in the place of a file, by its mode, such as "a folder"; "" for a file."""
    for is_kind, name in KINDS:
        if is_kind(mode):
            return name
    return ""


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for a block that reads it. Nothing waits: a named pipe or a device is not opened.

    Raises FileNotFoundError where nothing is there, WrongFile where something else than a file is, and Unreadable where
    the system refuses, also in the block.
    """
    try:
        # Opening a device may already do something, so the kind is checked before.
        _check_kind(path, path.stat().st_mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            # Something else may have come into its place between the two steps.
            _check_kind(path, os.fstat(descriptor).st_mode)
            yield file
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise LinkToNothing(path) from None
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except OSError as error:
        raise Unreadable(path, error) from None


def _check_kind(path: Path, mode: int) -> None:
    """Raise WrongFile unless a mode is that of a file."""
    kind = kind_of(mode)
    if kind:
        raise WrongFile(f"{path.name} is {kind}")


def read_file(path: Path, *, most: int = MOST_TEXT) -> bytes:
    """Return the content of a file; a longer one than `most` bytes is a WrongFile. See `open_file` for other errors."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise WrongFile(f"{path.name} has {size:,} bytes, expected at most {most:,}")
        return file.read()


def check_readable(path: Path) -> None:
    """Raise Unreadable where the system refuses to open a file; whether it is there and whole is not asked."""
    try:
        with open_file(path):
            pass
    except (FileNotFoundError, WrongFile):
        pass


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

    with (
        reading(f"{kind} {path}"),
        open_file(path) as file,
        np.load(file, allow_pickle=False) as stored,
    ):
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
        # The system names no file where the disk is full.
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that is whole, or is not there, even after the machine is lost."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    write_atomically(path, write)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, as far as its file system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            error.filename = error.filename or str(folder)
            raise
    finally:
        os.close(descriptor)


def flush_tree(path: Path) -> None:
    """Write a file, or all files below a folder and their names, to the disk.

    It belongs before a rename: else the loss of the machine may leave the new name with empty files.
    """
    if path.is_dir():
        for below in path.iterdir():
            flush_tree(below)
        flush_folder(path)
    elif path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield an empty hidden folder in which `parent/name` is prepared, to be moved there when it is complete.

    The lock of `parent`, which is created if missing, is held for the block: a second process waits, and should then
    check whether `parent/name` exists by now. Scratch folders of killed processes are removed first, this one at last.
    """
    parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{name}-"
    with locks.lock(parent) as is_alone:
        # On a disk without locks another process may be using them.
        if is_alone:
            for leftover in parent.glob(f"{prefix}*"):
                # `rmtree` would open whatever is there, and wait for ever at a named pipe.
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            dir=parent, prefix=prefix, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)


def folder_digest(folder: Path, pattern: str = "*") -> str:
    """Return a SHA-256 of the paths and contents of files that match below a folder, hidden ones left out."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob(pattern)):
        is_hidden = path.name.startswith(".")
        if is_hidden or not path.is_file():
            continue
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
    if match is None:
        return "", ""
    return match[1], match[2] or ""
