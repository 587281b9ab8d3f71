"""Read files, write files and folders completely or not at all, and compute digests of folders.

The last two functions concern names of Python files that a user gives.

A reader of a file tells three failures apart. The file may be missing: `FileNotFoundError`.
Something else, such as a folder or a named pipe, may be in its place: `WrongFile`. Or the system
may refuse to read it, though it may be whole: `Unreadable`.
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
"""The largest size of a text file that is read, in bytes. milbench writes no longer one."""

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
"""What may be there instead of a file: a test of the mode, and the words for a message."""

NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM)
"""Error numbers of `fsync` where a file system cannot flush a folder, or refuses to."""


class WrongFile(ValueError):  # noqa: N818 it is named for what is there
    """There is something else instead of a file, such as a folder, or the file is much too long.

    A caller treats the file as damaged. So this is a ValueError, which parsers raise for damaged
    content.
    """


class Unreadable(UsageError):  # noqa: N818 it is named for the state of the file
    """The system refuses to read a file or folder, which may be whole.

    This is a UsageError, since only the user can help. A caller must not treat the file as damaged
    and replace it.
    """

    def __init__(self, path: Path, reason: OSError | str) -> None:
        if isinstance(reason, OSError):
            reason = reason.strerror or str(reason)
        super().__init__(f"{path} cannot be read: {reason}")


class LinkToNothing(Unreadable):
    """A symbolic link points to nothing, perhaps because a disk is not mounted."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "it is a link to nothing")


def kind_of(mode: int) -> str:
    """Return what a mode of `os.stat` says is there, such as "a folder", or "" for a file."""
    for is_kind, name in KINDS:
        if is_kind(mode):
            return name
    return ""


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for a block that reads it.

    A named pipe or a device is refused, since to open it could block.

    Raises FileNotFoundError if nothing is there, WrongFile if it is no file, and Unreadable if the
    system refuses to open it or to read it in the block.
    """
    try:
        # To open a device may already do something, so the kind is checked first.
        _check_kind(path, path.stat().st_mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            # Between the check and the opening, the file may have been replaced.
            _check_kind(path, os.fstat(descriptor).st_mode)
            yield file
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise LinkToNothing(path) from None
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except OSError as error:
        raise Unreadable(path, error) from None


def _check_kind(path: Path, mode: int) -> None:
    """Raise WrongFile if a mode is not the mode of a regular file."""
    kind = kind_of(mode)
    if kind:
        raise WrongFile(f"{path.name} is {kind}")


def read_file(path: Path, *, most: int = MOST_TEXT) -> bytes:
    """Return the content of a file.

    Raises WrongFile if it has more than `most` bytes, and the errors of `open_file`.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise WrongFile(f"{path.name} has {size:,} bytes, expected at most {most:,}")
        return file.read()


def check_readable(path: Path) -> None:
    """Raise Unreadable if the system refuses to open a file.

    A missing file, or something else instead of a file, is no error here.
    """
    try:
        with open_file(path):
            pass
    except (FileNotFoundError, WrongFile):
        pass


def expanded(path: Path, option: str) -> Path:
    """Return a path with `~` replaced by the home folder.

    Raises UsageError if there is no home folder. The message begins with `option`, such as "--out",
    and the path.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UsageError(f"{option} {path}: {str(error).rstrip('.')}") from None


@contextmanager
def reading(what: object, fault: str = "cannot be read") -> Iterator[None]:
    """Turn any error of a block that reads `what` into a UsageError of one line."""
    try:
        yield
    except UsageError:
        # This is one line already, with a better explanation.
        raise
    # Any exception: each library has its own errors for a damaged file.
    except Exception as error:  # noqa: BLE001
        raise UsageError(f"{what} {fault}: {error}") from None


@contextmanager
def stored_arrays(content: str, path: Path) -> Iterator[Any]:
    """Open an .npz file for a block.

    Raises UsageError if it cannot be read; the message says what the file holds by `content`, such
    as "gallery".
    """
    import numpy as np

    with (
        reading(f"{content} {path}"),
        open_file(path) as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        yield stored


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file completely or not at all.

    `write` gets the path of a temporary file in the same folder and fills it. Then the temporary
    file is renamed to `path`. A missing folder is created. An OSError always names a file: `path`
    if the system names none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        # When the disk is full, the system names no file.
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, even if the machine loses power."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    write_atomically(path, write)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names of the files in a folder to the disk, if its file system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        # A user may have the right to write files into a folder, but not to open the folder.
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
    """Flush a file, or all files below a folder with their names, to the disk.

    Call it before a rename. Otherwise a loss of power may leave empty files under the new name.
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
    """Yield an empty hidden folder.

    The caller prepares `parent/name` inside it, and moves it there when complete:

        with scratch_folder(parent, name) as scratch:
            fill(scratch / "new")
            (scratch / "new").rename(parent / name)

    `parent` is created if missing. Its lock is held for the block: a second process waits, and
    should then check whether `parent/name` exists by now. Scratch folders that killed processes
    left behind are removed before the block. The new scratch folder is removed after the block,
    with all that is still in it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{name}-"
    with locks.lock(parent) as is_alone:
        # Without the lock, another process may be using its scratch folder.
        if is_alone:
            for leftover in parent.glob(f"{prefix}*"):
                # Only folders: `rmtree` would wait for ever at a named pipe.
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            dir=parent, prefix=prefix, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)


def folder_digest(folder: Path, pattern: str = "*") -> str:
    """Return a SHA-256 of the matching files below a folder, by their relative paths and contents.

    Hidden files are left out.
    """
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
    """Return the names of the Python files in the working folder.

    Messages about an unknown name propose the one with the closest spelling.
    """
    return [path.name for path in Path().glob("*.py")]


def file_and_member(source: str) -> tuple[str, str]:
    """Split FILE.py:NAME into path and name.

    The name is "" for FILE.py, and both are "" for any other text.
    """
    match = re.fullmatch(r"(.+\.py)(?::(\w+))?", source, re.DOTALL)
    if match is None:
        return "", ""
    return match[1], match[2] or ""
