"""Registries of the losses, tasks and other entries that can be chosen by name.

Entries come from milbench itself, from installed packages and from users. A name is known before
its module is imported, since the file `max_pooling.py` holds `max-pooling`. So names can be listed
without importing torch, and a broken plug-in does not affect the others.
`milbench.contracts.resolver` imports the files and modules that users name.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from milbench._utils.files import file_and_member, python_files
from milbench.contracts.parameters import check_params, with_neutral
from milbench.errors import UsageError, unknown
from milbench.plugins.importing import importing
from milbench.plugins.owners import normalised
from milbench.plugins.planned import record_for
from milbench.plugins.record import ImportRecord, Target

if TYPE_CHECKING:
    from milbench.contracts.loss import Loss
    from milbench.contracts.task import Task

T = TypeVar("T")

_NAME = r"(?=.{1,60}$)[a-z][a-z0-9]*(-[a-z0-9]+)*"
"""The pattern of a valid name; the message of `check_name` says it in words."""


def check_name(name: str, context: str = "") -> None:
    """Raise UsageError where an entry must not have this name.

    The message begins with `context`, such as "loss.py: ", and suggests a valid name close to it.
    """
    if not re.fullmatch(_NAME, name):
        suggestion = re.sub("[^a-z0-9]+", "-", name.lower().removesuffix(".py")).strip("-")
        hint = f"; did you mean {suggestion!r}?" if re.fullmatch(_NAME, suggestion) else ""
        raise UsageError(
            f"{context}a name has lower-case letters, digits and hyphens, begins with a letter "
            f"and is at most 60 long, got {name[:60]!r}{hint}"
        )


INSTALLED = " of "
"""The beginning of the digest of an installed plug-in.

A whole digest is " of my-losses 1.2" for version 1.2 of the package my-losses. A cell keeps the
digest after the version of the loss, as in "1 of my-losses 1.2".
"""
REGISTRIES: WeakSet[Registry[Any]] = WeakSet()
"""All registries of this process.

`milbench.contracts.resolver` goes through them to reload plug-ins whose files were edited. The
references are weak, so that a registry that a test has made and dropped is not kept alive.
"""


@dataclass(frozen=True)
class RegistryEntry(Generic[T]):
    """What a registry knows about a class or function, which may not be imported yet."""

    name: str
    origin: str
    """Where the class or function comes from, for messages.

    It is "milbench", a package with its version, a file or module that a user has named, or "this
    session's NAME" for what was defined in a notebook or a script.
    """
    load: Callable[[], T]
    """Imports and returns the class or function."""
    module: str
    """The name of the module that holds it."""
    source: str = ""
    """The file or module by which a user has named the entry, perhaps with :MEMBER; else ""."""
    find_record: Callable[[], ImportRecord] = ImportRecord
    """Returns the record of the entry's import: which files and packages it uses.

    The record of milbench's own entries is empty.
    """

    @cached_property
    def record(self) -> ImportRecord:
        """The record of the import, made when it is first needed.

        Raises UsageError where the import fails.
        """
        return self.find_record()

    def try_import(self) -> None:
        """Make sure that the entry can be imported here. Raises UsageError where it cannot.

        A first import runs in a separate process, since a broken plug-in may hang or crash.
        """
        # The record is made by trying the import in that process.
        _ = self.record

    def is_current(self) -> bool:
        """Return whether the files of the record are unchanged; True while there is no record."""
        # The file or module that a user has named was imported, and recorded, before this entry was
        # made.
        is_named_by_user = bool(self.source)
        # A cached property is in `vars` once somebody has used it.
        has_record = is_named_by_user or "record" in vars(self)
        if not has_record:
            return True
        return not self.record.first_change()

    @property
    def is_file(self) -> bool:
        """Whether a user has named the entry by the path of a file."""
        return bool(file_and_member(self.source)[0])


class Registry(Generic[T]):
    """The classes or functions of one kind, by name.

    A new registry holds the entries of milbench itself and of installed packages.

    Args:
        kind: what messages call an entry, such as "loss".
        plural: the plural of `kind`, such as "losses". Installed packages announce their entries in
            the group of entry points `milbench.losses`.
        built_in: the entries of milbench itself.
        base: returns the base class. It is a function so that a registry can be made without
            importing torch.
    """

    takes_functions = True
    """Whether an entry may be a function.

    Unless a function has a `name`, its Python name with hyphens is the name of its entry.
    """

    def __init__(
        self,
        kind: str,
        plural: str,
        built_in: Iterable[RegistryEntry[T]],
        base: Callable[[], type[Any]] = lambda: object,
    ) -> None:
        self.kind = kind
        self.base = base
        REGISTRIES.add(self)
        self.entries: dict[str, RegistryEntry[T]] = {}
        for entry in built_in:
            self.add(entry)
        for point in entry_points(group=f"milbench.{plural}"):
            self.add(_installed_entry(kind, point))

    def names(self) -> list[str]:
        """Return every name, in alphabetical order."""
        return sorted(self.entries)

    def entry(self, name: str) -> RegistryEntry[T]:
        """Return the entry of a name.

        Raises UsageError where there is none; the message suggests the closest name.
        """
        if name not in self.entries:
            # The user may have mistyped the name of a file in the working folder, such as
            # my_loss.py, so the suggestion may be a file too.
            raise unknown(self.kind, name, self.entries, python_files())
        return self.entries[name]

    def add(self, entry: RegistryEntry[T]) -> None:
        """Add an entry. Raises UsageError where its name is taken."""
        if entry.name in self.entries:
            origins = f"one from {self.entries[entry.name].origin}, one from {entry.origin}"
            raise UsageError(f"two {self.kind} entries are named {entry.name!r}: {origins}")
        self.entries[entry.name] = entry

    def get(self, name: str) -> T:
        """Return the class or function of a name.

        Raises UsageError if there is no such entry, or it cannot be imported.
        """
        entry = self.entry(name)
        entry.try_import()
        with importing(
            f"{self.kind} {name!r} from {entry.origin}",
            entry.module,
            is_built_in=entry.origin == "milbench",
        ):
            value = entry.load()
        if not callable(value):
            raise UsageError(
                f"{self.kind} {name!r} from {entry.origin} is a {type(value).__name__}, "
                "not callable"
            )
        return value


def _installed_entry(kind: str, point: EntryPoint) -> RegistryEntry[Any]:
    """Return the entry of an installed plug-in, which is not imported yet."""
    origin = "an installed package"
    if point.dist:
        origin = f"{point.dist.name} {point.dist.version}"
    find_record = partial(_installed_record, kind, point, origin)
    return RegistryEntry(point.name, origin, point.load, point.module, find_record=find_record)


def _installed_record(kind: str, point: EntryPoint, origin: str) -> ImportRecord:
    """Return the record of an installed plug-in.

    Its digest names the package and version. The files of an editable package and further packages
    that it needs add to the digest.
    """
    target = Target(f"{kind} {point.name!r} from {origin}", modules=(point.module,))
    record = record_for(kind, point.name, target)
    if record.digest.startswith(INSTALLED):
        # In a process that computes a cell, `record_for` returns the record that came with the
        # cell. The process that planned the cell made it by this function, digest included.
        return record
    digest = f"{INSTALLED}{origin}"
    package = normalised(point.dist.name) if point.dist else ""
    if record.files or record.distributions.keys() - {package}:
        digest += f" {record.digest}"
    return replace(record, digest=digest)


class ClassRegistry(Registry[type[T]]):
    """A registry of the subclasses of one base class, such as all losses.

    Each subclass has its name as the attribute `name`.
    """

    takes_functions = False

    def __init__(self, kind: str, plural: str, base: Callable[[], type[T]]) -> None:
        package = f"milbench.{plural}"
        # Only the names of files are read, since importing milbench.losses would import torch.
        module_spec = importlib.util.find_spec(package)
        folders = module_spec.submodule_search_locations if module_spec else None
        names = [module.name for module in pkgutil.iter_modules(folders)]
        # A file such as _pooling.py is no loss, but holds code that several losses share.
        public = [name for name in names if not name.startswith("_")]
        built_in = [self._built_in(f"{package}.{name}", name) for name in public]
        super().__init__(kind, plural, built_in, base)

    def get(self, name: str) -> type[T]:
        """Return the class of a name.

        Raises UsageError if there is no such entry, it cannot be imported, or it is no subclass of
        the base class with this name.
        """
        entry = self.entry(name)
        cls = super().get(name)
        base = self.base()
        is_of_kind = inspect.isclass(cls) and issubclass(cls, base)
        if not is_of_kind or getattr(cls, "name", None) != entry.name:
            raise UsageError(
                f"{self.kind} {entry.name!r} from {entry.origin} is not a {base.__name__} "
                "of that name"
            )
        return cls

    def create(self, name: str, params: Mapping[str, Any]) -> T:
        """Return a new instance of the class of a name, after checking its parameters.

        Raises UsageError where the constructor does not take them.
        """
        cls = self.get(name)
        return cls(**check_params(f"{self.kind} {name}", cls, params))

    def create_for_cell(self, name: str, params: Mapping[str, Any]) -> T:
        """Return a new instance of the class of a name, with the parameters of a cell.

        An older cell may lack parameters that were added later. They get their neutral values.
        """
        return self.create(name, with_neutral(self.get(name), params))

    def _built_in(self, path: str, module_name: str) -> RegistryEntry[type[T]]:
        """Return the entry of the class in a module of milbench, which is not imported yet."""
        name = module_name.replace("_", "-")

        def load() -> type[T]:
            for value in vars(importlib.import_module(path)).values():
                if getattr(value, "name", None) == name:
                    return value  # type: ignore[no-any-return]
            raise UsageError(f"{path} holds no {self.kind} that is named {name!r}")

        return RegistryEntry(name, "milbench", load, path)


def built_in_functions(functions: Mapping[str, T]) -> list[RegistryEntry[T]]:
    """Return an entry for each function of milbench itself, given by name."""
    entries = []
    for name in functions:
        load = partial(functions.__getitem__, name)
        # The module is named only in messages about a failed import. These functions are imported
        # already, so the module may have any name.
        entries.append(RegistryEntry(name, "milbench", load, module=__name__))
    return entries


@cache
def losses() -> ClassRegistry[Loss]:
    """Return the registry of losses."""
    return ClassRegistry(
        "loss", "losses", lambda: pkgutil.resolve_name("milbench.contracts.loss:Loss")
    )


@cache
def tasks() -> ClassRegistry[Task]:
    """Return the registry of tasks."""
    return ClassRegistry(
        "task", "tasks", lambda: pkgutil.resolve_name("milbench.contracts.task:Task")
    )
