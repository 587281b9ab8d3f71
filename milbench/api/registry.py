"""Registries: what there is by name, of milbench itself, of installed packages and of the user's own.

A name is known before its module is imported (the file `max_pooling.py` holds `max-pooling`), so that names can be
listed and suggested without importing torch, and a broken plug-in does not affect the others. What a user names by a
file, a module or a class is imported and added by `milbench.api.resolver`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from milbench._utils.files import file_and_member
from milbench.api.imports import import_errors
from milbench.api.parameters import check_params
from milbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from milbench.api.loss import Loss
    from milbench.api.task import Task

T = TypeVar("T")

_NAME, _LONGEST = r"[a-z][a-z0-9]*(-[a-z0-9]+)*", 60


def check_name(name: str, where: str = "") -> None:
    """Raise UsageError, with the closest valid name, where an entry may not have this name; `where` begins it."""
    suggestion = re.sub("[^a-z0-9]+", "-", re.sub(r"\.py$", "", name).lower()).strip("-")
    if not re.fullmatch(_NAME, name) or len(name) > _LONGEST:
        hint = (
            f"; did you mean {suggestion!r}?" if re.fullmatch(_NAME, suggestion) and len(suggestion) <= _LONGEST else ""
        )
        raise UsageError(
            f"{where}a name has lower-case letters, digits and hyphens, begins with a letter and is at most {_LONGEST} "
            f"long, got {name[:_LONGEST]!r}{hint}"
        )


@dataclass(frozen=True)
class RegistryEntry(Generic[T]):
    """The name and origin of what a registry holds, which may not be imported yet.

    Args:
        name: of the loss, task, network or optimiser.
        origin: "milbench", a package with its version, or the path of a file; messages name it.
        load: imports and returns the class or function.
        module: the name of the module that holds it.
        source_digest: identifies the code of what is not milbench's own: the SHA-256 of a file, or " of " with the name
            and version of a package.
        source: the path of a file or the name of a module by which a user has named it, "" for built-in and installed
            ones.
    """

    name: str
    origin: str
    load: Callable[[], T]
    module: str
    source_digest: str = ""
    source: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it comes from a file given by its path."""
        return bool(file_and_member(self.source)[0])


class Registry(Generic[T]):
    """The classes or functions of one kind by name.

    Args:
        kind: such as "loss", for messages.
        plural: such as "losses"; `milbench.losses` is the group of entry points.
        base: returns the base class of what it holds, a function so that a registry can be made without importing
            torch; None: it holds functions.
        built_in: the entries of milbench itself.

    Raises:
        UsageError: two entries have the same name.
    """

    def __init__(
        self,
        kind: str,
        plural: str,
        built_in: Iterable[RegistryEntry[T]],
        base: Callable[[], type[Any]] | None = None,
    ) -> None:
        self.kind, self.base = kind, base
        self.entries: dict[str, RegistryEntry[T]] = {}
        for entry in built_in:
            self.add(entry)
        for point in entry_points(group=f"milbench.{plural}"):
            origin = f"{point.dist.name} {point.dist.version}" if point.dist else "an installed package"
            self.add(RegistryEntry(point.name, origin, point.load, point.module, source_digest=f" of {origin}"))

    def names(self) -> list[str]:
        """Return every name, in alphabetical order."""
        return sorted(self.entries)

    def entry(self, name: str) -> RegistryEntry[T]:
        """Return the entry of a name. Raises UsageError, with the closest name, where there is none."""
        if name not in self.entries:
            raise unknown(self.kind, name, self.entries)
        return self.entries[name]

    def add(self, entry: RegistryEntry[T]) -> None:
        """Add an entry. Raises UsageError where its name is taken."""
        if entry.name in self.entries:
            origins = f"one from {self.entries[entry.name].origin}, one from {entry.origin}"
            raise UsageError(f"two {self.kind} entries are named {entry.name!r}: {origins}")
        self.entries[entry.name] = entry

    def get(self, name: str) -> T:
        """Return the class or function of a name. Raises UsageError if there is none, or it cannot be imported."""
        entry = self.entry(name)
        with import_errors(f"{self.kind} {entry.name!r} from {entry.origin}", entry.module):
            entry_point = entry.load()
        if not callable(entry_point):
            raise UsageError(
                f"{self.kind} {name!r} from {entry.origin} is not callable (got {type(entry_point).__name__})"
            )
        return entry_point


class Classes(Registry[type[T]]):
    """The subclasses of one base class: all losses, or all tasks, each of which names itself."""

    def __init__(self, kind: str, plural: str, base: Callable[[], type[T]]) -> None:
        package = f"milbench.{plural}"
        module_spec = importlib.util.find_spec(package)  # importing milbench.losses imports torch
        modules = pkgutil.iter_modules(module_spec.submodule_search_locations if module_spec else None)
        names = [module.name for module in modules if not module.name.startswith("_")]
        super().__init__(kind, plural, (self._built_in(f"{package}.{name}", name) for name in names), base)

    def get(self, name: str) -> type[T]:
        """Return the class of a name. Raises UsageError if there is none, or it cannot be imported."""
        entry, cls = self.entry(name), super().get(name)
        base = self.base() if self.base else object
        if not (inspect.isclass(cls) and issubclass(cls, base)) or getattr(cls, "name", None) != entry.name:
            raise UsageError(f"{self.kind} {entry.name!r} from {entry.origin} is not a {base.__name__} of that name")
        return cls

    def create(self, name: str, params: Mapping[str, Any]) -> T:
        """Return a new instance of the class of a name, with parameters checked against its constructor."""
        cls = self.get(name)
        return cls(**check_params(f"{self.kind} {name}", cls, params))

    def _built_in(self, path: str, module_name: str) -> RegistryEntry[type[T]]:
        name = module_name.replace("_", "-")

        def load() -> type[T]:
            classes = [c for c in vars(importlib.import_module(path)).values() if getattr(c, "name", None) == name]
            if not classes:
                raise UsageError(f"{path} holds no {self.kind} that is named {name!r}")
            cls: type[T] = classes[0]
            return cls

        return RegistryEntry(name, "milbench", load, path)


def own_functions(functions: Mapping[str, T]) -> list[RegistryEntry[T]]:
    """Return the entries of functions of milbench itself."""
    return [RegistryEntry(name, "milbench", partial(functions.__getitem__, name), __name__) for name in functions]


@cache
def losses() -> Classes[Loss]:
    """Return the registry of losses."""

    def base() -> type[Loss]:
        from milbench.api.loss import Loss

        return Loss

    return Classes("loss", "losses", base)


@cache
def tasks() -> Classes[Task]:
    """Return the registry of tasks."""

    def base() -> type[Task]:
        from milbench.api.task import Task

        return Task

    return Classes("task", "tasks", base)
