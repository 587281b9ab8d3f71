"""What plug-ins import late: after their own import, such as inside a training step.

The record of the import of a plug-in does not have these modules, so an edit of one does not make a
new cell. The cell lists them instead, and plans and reports name them.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from milbench.plugins.owners import (
    foreign_distributions,
    is_milbench,
    is_own_module,
    is_site_file,
)
from milbench.plugins.record import (
    ImportRecord,
    frame_of_caller,
    importing_frame,
    is_own_frame,
    module_file,
)


class LateImports:
    """What plug-ins import in a block, without what is in their import records."""

    def __init__(self, records: Mapping[str, ImportRecord], plugin_files: Sequence[str]) -> None:
        """Take the records of the plug-ins by their kinds, such as loss, and their files."""
        self._records = records
        self._folders = [Path(file).parent for file in plugin_files if file.endswith(".py")]
        self._modules_before: set[str] = set()
        self._importers: dict[str, str] = {}
        """Module -> the file of the user's own code that imported it first."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what is imported in a block, where the cell has plug-ins."""
        if not self._records:
            yield
            return
        self._modules_before = set(sys.modules)
        watcher = _Watcher(self._importers)
        sys.meta_path.insert(0, watcher)
        try:
            yield
        finally:
            if watcher in sys.meta_path:
                sys.meta_path.remove(watcher)

    def found(self) -> dict[str, list[str]]:
        """Return what plug-ins imported late: "files" of the user's own, and "packages".

        "by" are the kinds of the plug-ins, such as "loss". The result is {} where nothing was
        imported late. Packages that milbench requires are left out, and so are those that only
        another package imports.
        """
        if not self._records:
            # Looking through all modules takes a second, and without plug-ins there is nothing to
            # find.
            return {}
        files: set[str] = set()
        packages: set[str] = set()
        kinds: set[str] = set()
        for name in set(sys.modules) - self._modules_before:
            file = self._late_file(name)
            if file:
                files.add(self._short(file))
                kinds |= self._kinds(name)
        for name in self._importers:
            found = self._late_packages(name)
            if found:
                packages |= found
                kinds |= self._kinds(name)
        if not kinds:
            return {}
        return {"by": sorted(kinds), "files": sorted(files), "packages": sorted(packages)}

    def _late_file(self, module: str) -> str:
        """Return the file of a module, "" if it is in a record or not the user's own."""
        file = module_file(module)
        is_recorded = any(file in record.files for record in self._records.values())
        if not file or is_recorded or not is_own_module(module, file):
            return ""
        return file

    def _late_packages(self, module: str) -> set[str]:
        """Return the installed packages of a module that are in no record, with their versions."""
        if is_milbench(module) or not is_site_file(module_file(module)):
            return set()
        recorded: set[str] = set()
        for record in self._records.values():
            recorded |= record.distributions.keys()
        found = foreign_distributions(module)
        return {f"{name} {version}" for name, version in found.items() if name not in recorded}

    def _kinds(self, module: str) -> set[str]:
        """Return the kinds of the plug-ins that import a module, or all kinds if it is unknown."""
        importer = self._importers.get(module)
        kinds = {kind for kind, record in self._records.items() if importer in record.files}
        return kinds or set(self._records)

    def _short(self, file: str) -> str:
        """Return the path of a file, relative to the folder of a plug-in if it lies in one."""
        for folder in self._folders:
            if Path(file).is_relative_to(folder):
                return Path(file).relative_to(folder).as_posix()
        return file


class _Watcher:
    """A finder for `sys.meta_path` that finds nothing, but notes what the user's code imports."""

    def __init__(self, importers: dict[str, str]) -> None:
        self._importers = importers

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Note a module and the file that imports it, if the file is the user's own."""
        importer = importing_frame(frame_of_caller())
        if importer is not None and is_own_frame(importer):
            self._importers.setdefault(name, importer.f_code.co_filename)
        return None
