"""The record of the import of a plug-in: the user's files and the packages that it needs.

The import is recorded in a process of its own, so that nothing that it does reaches the launch.
What the plug-in imports later, such as inside a training step, is in no record: see
`milbench.plugins.late`.

The user's own files are those that belong to no installed package: see `milbench.plugins.owners`.
"""

import builtins
import functools
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from milbench._utils.digests import file_digest, read_digest
from milbench.errors import UsageError, message
from milbench.plugins.importing import (
    file_module,
    import_failure,
    import_file,
    importing,
)
from milbench.plugins.owners import (
    SYSTEM,
    file_of,
    foreign_distributions,
    is_milbench,
    is_milbench_file,
    is_own_file,
    is_own_module,
    is_site_file,
    version_of,
)
from milbench.processes.fresh import ProcessDied, TookTooLong, call_fresh

LIMIT = 60.0
"""The most seconds that the import of a plug-in may take."""
LARGE = 10_000_000
"""The bytes of a file above which its digest is kept, since computing it for each cell is slow."""
SOURCES = (".py", ".pyw")
"""The endings of files with Python code, which the import system reads to run it."""

_is_recording = False
"""Whether this process records the import of a plug-in."""


@dataclass(frozen=True)
class ImportRecord:
    """The user's own files and the installed packages that the import of a plug-in brought in."""

    digest: str = ""
    """A digest of the contents of the files and the versions of the packages.

    It stays the same when the files are moved together. It is "" for milbench's own code.
    """
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> SHA-256, for modules of the user's own and files that they read when imported."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """Name -> version, for the installed packages, without those that milbench requires."""

    def first_change(self, *, elsewhere: bool = False) -> str:
        """Return the first file or package that is not as it was recorded, "" if there is none.

        With `elsewhere` files may be missing, since this may not be the machine of the record.
        """
        for file, digest in self.files.items():
            if elsewhere and not Path(file).exists():
                continue
            try:
                current = _digest(file)
            except OSError:
                return file
            if current != digest:
                return file
        for name, version in self.distributions.items():
            if version_of(name) != version:
                return f"{name} {version}"
        return ""


@dataclass(frozen=True)
class Target:
    """What is to be imported: a file, or modules by their names."""

    subject: str
    """What messages call it, such as "the loss file mine.py"."""
    file: str = ""
    modules: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The name of the module that is made from the file, or of the first module."""
        return file_module(Path(self.file)) if self.file else self.modules[0]

    def run(self) -> None:
        """Import it."""
        if self.file:
            import_file(Path(self.file))
        for name in self.modules:
            importlib.import_module(name)


def record_import(target: Target) -> ImportRecord:
    """Import a plug-in in a process of its own, and return the record of the import.

    Raises UsageError where the import fails, ends that process or takes longer than `LIMIT`.
    """
    if _is_recording:
        # A plug-in loads another one while it is imported: the files of both come into its record.
        return ImportRecord()
    try:
        return call_fresh(_record, target, limit=LIMIT)
    except ProcessDied as died:
        how = str(died)
        if isinstance(died, TookTooLong):
            how = f"it took longer than {LIMIT:g} seconds"
        raise UsageError(f"cannot import {target.subject} in a process of its own: {how}") from None


def _record(target: Target) -> ImportRecord:
    """Import a plug-in in this fresh process, and return the record of the import."""
    global _is_recording  # noqa: PLW0603 of the process, which ends with the call
    _is_recording = True
    before = set(sys.modules)
    opened = _OpenedFiles()
    sys.addaudithook(opened.note)
    imported = _watch_imports()
    try:
        with importing(target.subject, target.module):
            target.run()
    except UsageError as error:
        # The cause may be an error of a class of the plug-in, which the launcher cannot unpickle.
        raise UsageError(message(error)) from None
    except KeyboardInterrupt as error:
        # Ctrl-C does not reach this process, so the plug-in has raised the error itself.
        raise import_failure(target.subject, target.module, error) from None
    opened.is_noting = False
    imported |= set(target.modules)
    return _make_record(target, set(sys.modules) - before, imported, opened.files())


def _watch_imports() -> set[str]:
    """Return a set that gets the names of modules that the user's own code imports from now on.

    To notice them, functions of Python are replaced. That does no harm, since this process ends
    with the record. A finder in `sys.meta_path` would not do: Python does not ask it for modules
    that the process has imported before.
    """
    imported: set[str] = set()

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watching(name: str, *arguments: Any, **named: Any) -> Any:
            importer = importing_frame(frame_of_caller())
            if importer is not None and is_own_frame(importer):
                imported.add(name)
            return function(name, *arguments, **named)

        return watching

    builtins.__import__ = watched(builtins.__import__)
    importlib.import_module = watched(importlib.import_module)
    return imported


def frame_of_caller() -> FrameType | None:
    """Return the frame that called the caller of this function."""
    here = inspect.currentframe()
    if here is None or here.f_back is None:
        return None
    return here.f_back.f_back


def importing_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside the import system, from a frame outwards."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] != "importlib":
            return frame
        frame = frame.f_back
    return None


def _make_record(
    target: Target, modules: Iterable[str], imported: Iterable[str], opened: Iterable[str]
) -> ImportRecord:
    """Return the record of an import.

    Args:
        target: what was imported.
        modules: the names of the modules that are new in this process.
        imported: the names of all modules that the user's own code imports, including modules that
            this process had imported before.
        opened: the files that the user's own code has read.
    """
    folder = _folder(target)
    files: dict[str, str] = {}
    # The digest is made of these lines. None of them contains the path of the folder, so that the
    # folder may be moved.
    lines: set[str] = set()
    for name in sorted(modules):
        file = module_file(name)
        if file and is_own_module(name, file):
            files[file] = _digest(file)
            lines.add(f"{_module_label(target, name, file, folder)} {files[file]}")
    # If milbench is installed as editable, its losses and tasks lie outside its package folder.
    milbench_files = {module_file(name) for name in sys.modules if is_milbench(name)}
    for file in sorted(opened):
        if file not in files and file not in milbench_files:
            files[file] = _digest(file)
            lines.add(f"file {_short_path(file, folder)} {files[file]}")
    distributions: dict[str, str] = {}
    for package in sorted({name.partition(".")[0] for name in imported}):
        if is_site_file(module_file(package)) and not is_milbench(package):
            distributions |= foreign_distributions(package)
    lines |= {f"package {name} {version}" for name, version in distributions.items()}
    return ImportRecord(digest_of_lines(lines), files, distributions)


def _digest(file: str) -> str:
    path = Path(file)
    if path.stat().st_size > LARGE:
        # `file_digest` reads a file again only if its size or times have changed.
        return file_digest(path, "sha256")
    return read_digest(path, "sha256")


def digest_of_lines(lines: Iterable[str]) -> str:
    """Return a digest of lines that does not depend on their order."""
    text = "\n".join(sorted(lines))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def module_file(name: str) -> str:
    """Return the path of the file of an imported module, "" where there is none.

    For a module in a zip archive it is the archive.
    """
    file = file_of(sys.modules.get(name))
    if not file:
        return ""
    full_path = Path(file).absolute()
    for path in (full_path, *full_path.parents):
        if path.is_file():
            return str(path)
    return ""


def _folder(target: Target) -> Path:
    """Return the folder of the file or package, whose path the digest leaves out."""
    if target.file:
        return Path(target.file).resolve().parent
    top = target.modules[0].partition(".")[0]
    file = module_file(top)
    if not file:
        return Path.cwd()
    folder = Path(file).resolve().parent
    is_package = hasattr(sys.modules[top], "__path__")
    return folder.parent if is_package else folder


def _module_label(target: Target, name: str, file: str, folder: Path) -> str:
    """Return the name of a module in the digest, which does not depend on where the folder is."""
    if name == target.module and target.file:
        return "plug-in"
    if name == file_module(Path(file)):
        # The name of a module that was made from a file contains a digest of the path.
        return f"file {_short_path(file, folder)}"
    return f"module {name}"


def _short_path(file: str, folder: Path) -> str:
    """Return the path of a file relative to a folder, or its name if it lies elsewhere."""
    path = Path(file).resolve()
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return path.name


class _OpenedFiles:
    """Notes the files that the user's own code opens for reading, by an audit hook."""

    def __init__(self) -> None:
        self.is_noting = True
        self._read: set[str] = set()
        self._written: set[str] = set()

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of an audit event of Python, if it opens a file."""
        if event != "open" or not self.is_noting:
            return
        path, mode, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike):
            # It is the descriptor of a file that is open already.
            return
        full_path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 it follows no links
        if _is_for_writing(mode, flags):
            self._written.add(full_path)
        elif self._is_of_user(full_path, frame_of_caller()):
            self._read.add(full_path)

    def files(self) -> list[str]:
        """Return the files that were read, without those that were also written."""
        read = self._read - self._written
        return sorted(path for path in read if Path(path).is_file() and _is_data_of_user(path))

    def _is_of_user(self, path: str, frame: FrameType | None) -> bool:
        """Return whether code of the user's own has asked for a file that a frame opens.

        The files that a library reads when it is imported do not count: the version of the library
        stands for them. Python code that the import system reads counts, since code of the user's
        own may load it by its path.
        """
        if frame is not None and _is_import_system(frame):
            return path.endswith(SOURCES)
        caller = frame
        while caller is not None and not _is_import_system(caller):
            # The frames outside this one belong to the recording, not to the plug-in.
            if caller.f_globals.get("__name__") == __name__:
                return False
            if is_own_frame(caller):
                return True
            caller = caller.f_back
        return False


def _is_import_system(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith("<frozen importlib")


def is_own_frame(frame: FrameType) -> bool:
    """Return whether a frame runs code of the user's own."""
    name = str(frame.f_globals.get("__name__"))
    return not is_milbench(name) and is_own_file(frame.f_code.co_filename)


def _is_for_writing(mode: str | None, flags: int) -> bool:
    """Return whether a file is opened for writing.

    `open` gives a mode such as "w". `os.open` gives flags, and None for the mode.
    """
    if mode is not None:
        return not {"w", "a", "x", "+"}.isdisjoint(mode)
    access = flags & os.O_ACCMODE
    return access != os.O_RDONLY


def _is_data_of_user(path: str) -> bool:
    """Return whether a file belongs neither to a library, nor to the system or a cache."""
    from platformdirs import user_cache_path

    resolved = Path(path).resolve()
    excluded = (*SYSTEM, user_cache_path().resolve())
    if path.endswith(".pyc") or any(resolved.is_relative_to(folder) for folder in excluded):
        return False
    return is_own_file(path) and not is_milbench_file(path)
