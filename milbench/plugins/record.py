"""What the import of a plug-in did: which of the user's files and which packages came in.

The import is recorded in a process of its own, where nothing that it does reaches the launch. What
is imported later, such as inside a training step, is in no record, see `milbench.plugins.late`.

The user's own files are those that belong to no installed package, see `milbench.plugins.places`.
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
from milbench.plugins.places import (
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
"""Seconds that the import of a plug-in may take."""
LARGE = 10_000_000
"""Bytes of a file that takes long to read for each cell."""
SOURCES = (".py", ".pyw")
"""The endings of files that the import system reads to run them."""

_is_recording = False
"""Whether this process records the import of a plug-in."""


@dataclass(frozen=True)
class ImportRecord:
    """The user's own files and the installed packages that the import of a plug-in brought in."""

    digest: str = ""
    """Of the contents of the files and the versions of the packages. It stays the same when the files are moved
    together, and is "" for milbench's own code."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> SHA-256 of modules of the user's own, and of files that they read during the import."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """Name -> version of the installed packages, without those that milbench requires."""

    def first_change(self, *, elsewhere: bool = False) -> str:
        """Return the first file or package that is not as it was recorded, "" where all are.

        With `elsewhere`, on another machine, files may be missing.
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
    """How messages call it, such as "the loss file mine.py"."""
    file: str = ""
    modules: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The name of the module that the file becomes, or of the first module."""
        return file_module(Path(self.file)) if self.file else self.modules[0]

    def run(self) -> None:
        """Import it."""
        if self.file:
            import_file(Path(self.file))
        for name in self.modules:
            importlib.import_module(name)


def record_import(target: Target) -> ImportRecord:
    """Import a plug-in in a process of its own, and return what came in.

    Raises UsageError where the import fails, ends that process or takes longer than LIMIT.
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
    """Import a plug-in in this process, which is a fresh one, and return what came in."""
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
        # The launcher may not know a class of the plug-in's own.
        raise UsageError(message(error)) from None
    except KeyboardInterrupt as error:
        # Nobody has pressed Ctrl-C here: it is the plug-in's own.
        raise import_failure(target.subject, target.module, error) from None
    opened.is_noting = False
    imported |= set(target.modules)
    return _make_record(target, set(sys.modules) - before, imported, opened.files())


def _watch_imports() -> set[str]:
    """Return a set that gets the names of modules that the user's own code imports from now on.

    It replaces functions of Python, which does no harm in a process that ends with the record. A
    finder would miss modules that the process has imported before, since it is not asked for them.
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
    """Return the frame of the code that has called the function that calls this one."""
    here = inspect.currentframe()
    if here is None or here.f_back is None:
        return None
    return here.f_back.f_back


def importing_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside the import system."""
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
        imported: the names of all modules that the user's own code imports, also of those that this
            process had before.
        opened: the files that the user's own code has read.
    """
    folder = _folder(target)
    files: dict[str, str] = {}
    # What the digest is made of. The path of the folder is in none of these lines.
    lines: set[str] = set()
    for name in sorted(modules):
        file = module_file(name)
        if file and is_own_module(name, file):
            files[file] = _digest(file)
            lines.add(f"{_module_label(target, name, file, folder)} {files[file]}")
    # milbench's losses and tasks lie outside its folder where it is installed as editable.
    milbench_files = {module_file(name) for name in sys.modules if is_milbench(name)}
    for file in sorted(opened):
        if file not in files and file not in milbench_files:
            files[file] = _digest(file)
            lines.add(f"file {_place(file, folder)} {files[file]}")
    distributions: dict[str, str] = {}
    for package in sorted({name.partition(".")[0] for name in imported}):
        if is_site_file(module_file(package)) and not is_milbench(package):
            distributions |= foreign_distributions(package)
    lines |= {f"package {name} {version}" for name, version in distributions.items()}
    return ImportRecord(digest_of_lines(lines), files, distributions)


def _digest(file: str) -> str:
    path = Path(file)
    if path.stat().st_size > LARGE:
        # It is read again only where its size or times have changed.
        return file_digest(path, "sha256")
    return read_digest(path, "sha256")


def digest_of_lines(lines: Iterable[str]) -> str:
    """Return a digest of lines, whatever their order."""
    text = "\n".join(sorted(lines))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def module_file(name: str) -> str:
    """Return the path of the file of an imported module, "" where there is none.

    The file of a module in a zip archive is the archive.
    """
    file = file_of(sys.modules.get(name))
    if not file:
        return ""
    place = Path(file).absolute()
    for path in (place, *place.parents):
        if path.is_file():
            return str(path)
    return ""


def _folder(target: Target) -> Path:
    """Return the folder of the file or of the top-level package, which the digest leaves out."""
    if target.file:
        return Path(target.file).resolve().parent
    top = target.modules[0].partition(".")[0]
    file = module_file(top)
    if not file:
        return Path.cwd()
    place = Path(file).resolve().parent
    is_package = hasattr(sys.modules[top], "__path__")
    return place.parent if is_package else place


def _module_label(target: Target, name: str, file: str, folder: Path) -> str:
    """Return what the digest calls a module, wherever the files lie."""
    if name == target.module and target.file:
        return "plug-in"
    if name == file_module(Path(file)):
        # The name of the module of a plug-in's file depends on the path.
        return f"file {_place(file, folder)}"
    return f"module {name}"


def _place(file: str, folder: Path) -> str:
    """Return the path of a file relative to a folder, or its name alone where it lies elsewhere."""
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
        """Take note of an event of Python."""
        if event != "open" or not self.is_noting:
            return
        path, mode, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike):
            # It is the number of a file that is open already.
            return
        place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 it follows no links
        if _is_for_writing(mode, flags):
            self._written.add(place)
        elif self._is_of_user(place, frame_of_caller()):
            self._read.add(place)

    def files(self) -> list[str]:
        """Return the files that were read, without those that the import has written itself."""
        read = self._read - self._written
        return sorted(path for path in read if Path(path).is_file() and _is_data_of_user(path))

    def _is_of_user(self, path: str, frame: FrameType | None) -> bool:
        """Return whether code of the user's own has asked for a file that a frame opens.

        What a library reads when it is imported is its own matter. The import system itself reads
        sources, also those that code of the user's own loads by their paths.
        """
        if frame is not None and _is_import_system(frame):
            return path.endswith(SOURCES)
        caller = frame
        while caller is not None and not _is_import_system(caller):
            # From here on outwards, it is this module that records the import.
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
    """Return whether a file is opened for writing: by `open` with a mode, or by `os.open` with flags."""
    if mode is not None:
        return not {"w", "a", "x", "+"}.isdisjoint(mode)
    access = flags & os.O_ACCMODE
    return access != os.O_RDONLY


def _is_data_of_user(path: str) -> bool:
    """Return whether a file belongs to no library, not to the system and to no cache."""
    from platformdirs import user_cache_path

    resolved = Path(path).resolve()
    excluded = (*SYSTEM, user_cache_path().resolve())
    if path.endswith(".pyc") or any(resolved.is_relative_to(place) for place in excluded):
        return False
    return is_own_file(path) and not is_milbench_file(path)
