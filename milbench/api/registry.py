"""Registries: losses and tasks, built in, installed or in a file given by its path, and functions by name.

A name is known before its module is imported (the file `max_pooling.py` holds `max-pooling`), so that names can be
listed and suggested without importing torch, and a broken plug-in does not affect the others.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from milbench.api.parameters import check_params
from milbench.errors import UsageError, as_usage, closest, unknown

if TYPE_CHECKING:
    from milbench.api.loss import Loss
    from milbench.api.task import Task

T = TypeVar("T")


_NAME, _LONGEST = r"[a-z][a-z0-9]*(-[a-z0-9]+)*", 60


def check_name(name: str, where: str = "") -> None:
    """Raise UsageError, with the closest valid name, where a loss or task may not have this name; `where` begins it."""
    wanted = re.sub("[^a-z0-9]+", "-", re.sub(r"\.py$", "", name).lower()).strip("-")
    if not re.fullmatch(_NAME, name) or len(name) > _LONGEST:
        hint = f"; did you mean {wanted!r}?" if re.fullmatch(_NAME, wanted) and len(wanted) <= _LONGEST else ""
        raise UsageError(
            f"{where}a name has lower-case letters, digits and hyphens, begins with a letter and is at most {_LONGEST} "
            f"long, got {name[:_LONGEST]!r}{hint}"
        )


@dataclass(frozen=True)
class RegistryEntry(Generic[T]):
    """The name and origin of what a registry holds, which may not be imported yet.

    Args:
        name: of the loss, task, optimiser or network.
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
        return self.source.endswith(".py")


class Names(Generic[T]):
    """What milbench and installed packages define by name: functions of one signature, or the classes of a `Registry`.

    Args:
        kind: such as "optimizer", for messages.
        plural: such as "optimizers"; `milbench.optimizers` is then the group of entry points.
        built_in: the entries of milbench itself.

    Raises:
        UsageError: two entries have the same name.
    """

    def __init__(self, kind: str, plural: str, built_in: Iterable[RegistryEntry[T]]) -> None:
        self.kind = kind
        self.entries: dict[str, RegistryEntry[T]] = {}
        for entry in built_in:
            self._add(entry)
        for point in entry_points(group=f"milbench.{plural}"):
            origin = f"{point.dist.name} {point.dist.version}" if point.dist else "an installed package"
            self._add(RegistryEntry(point.name, origin, point.load, point.module, source_digest=f" of {origin}"))

    def names(self) -> list[str]:
        """Return every name, in alphabetical order."""
        return sorted(self.entries)

    def entry(self, name: str) -> RegistryEntry[T]:
        """Return the entry of a name. Raises UsageError, with the closest name, where there is none."""
        if name not in self.entries:
            raise unknown(self.kind, name, self.entries)
        return self.entries[name]

    def function(self, name: str) -> T:
        """Return the function of a name. Raises UsageError if there is none, or it cannot be imported or called."""
        entry = self.entry(name)
        found = self._load(entry)
        if not callable(found):
            raise UsageError(f"{self.kind} {name!r} from {entry.origin} is not callable (got {type(found).__name__})")
        return found

    def _load(self, entry: RegistryEntry[T]) -> T:
        with _import_errors(f"{self.kind} {entry.name!r} from {entry.origin}", entry.module):
            return entry.load()

    def _add(self, entry: RegistryEntry[T]) -> None:
        if entry.name in self.entries:
            both = f"one from {self.entries[entry.name].origin}, one from {entry.origin}"
            raise UsageError(f"two {self.kind} entries are named {entry.name!r}: {both}")
        self.entries[entry.name] = entry


def own_functions(functions: Mapping[str, T]) -> list[RegistryEntry[T]]:
    """Return the entries of functions of milbench itself."""
    return [RegistryEntry(name, "milbench", partial(functions.__getitem__, name), __name__) for name in functions]


class Registry(Names[type[T]]):
    """All losses, or all tasks.

    `plural` is the name of the package below `milbench` and of the group of entry points; `base` returns the base
    class, a function so that the registry can be made without importing torch.
    """

    def __init__(self, kind: str, plural: str, base: Callable[[], type[T]]) -> None:
        self.base = base
        self._classes: dict[str, type[T]] = {}
        package = f"milbench.{plural}"
        found = importlib.util.find_spec(package)  # importing milbench.losses imports torch
        modules = pkgutil.iter_modules(found.submodule_search_locations if found else None)
        names = [module.name for module in modules if not module.name.startswith("_")]
        super().__init__(kind, plural, (self._built_in(f"{package}.{name}", name) for name in names))

    def entry(self, name: str) -> RegistryEntry[type[T]]:
        """Return the entry of a name, or of a module or path in .py that a user names, which is then imported."""
        if name.endswith(".py"):
            return self._add_file(Path(name))
        if name not in self.entries and re.fullmatch(r"[A-Za-z_][\w.]*(:\w+)?", name) and ("." in name or ":" in name):
            return self._add_module(name)
        return super().entry(name)

    def add_class(self, cls: type[T], digest: str = "") -> str:
        """Register a class that a user of Python gives, and return its name, or its module where one holds it.

        One that was defined in a notebook or a script is copied to workers, with the `digest` of its source. Raises
        UsageError if it is not such a class, or its source cannot be found.
        """
        if not (inspect.isclass(cls) and issubclass(cls, self.base())):
            raise UsageError(f"{self.kind} = {cls!r}: expected a name, a path or a subclass of {self.base().__name__}")
        module = sys.modules.get(cls.__module__)
        if not digest and cls.__module__ != "__main__" and getattr(module, cls.__qualname__, None) is cls:
            known = next((e for e in self.entries.values() if e.module == cls.__module__ and not e.source), None)
            return known.name if known else f"{cls.__module__}:{cls.__qualname__}"
        name = str(getattr(cls, "name", ""))
        check_name(name, f"the {self.kind} {cls.__name__}: ")
        try:
            digest = digest or hashlib.sha256(_source(cls).encode()).hexdigest()
        except OSError:
            raise UsageError(f"the source of {cls.__name__} cannot be found: put it into a file, NAME.py") from None
        if name in self._classes:
            del self.entries[name]
        self._classes[name] = cls
        self._add(RegistryEntry(name, f"class {cls.__name__}", lambda: cls, cls.__module__, digest))
        return name

    def local_class(self, name: str) -> type[T] | None:
        """Return a class that `add_class` has registered by its name alone, None for any other name."""
        return self._classes.get(name)

    def _add_module(self, name: str) -> RegistryEntry[type[T]]:
        """Import a module that a user has named, as MODULE or MODULE:CLASS, and register its class."""
        if entry := next((entry for entry in self.entries.values() if entry.source == name), None):
            return entry
        path, _, wanted = name.partition(":")
        with _import_errors(f"the {self.kind} module {path}", path), _torch_as_before():
            module = importlib.import_module(path)
        cls = getattr(module, wanted, None) if wanted else self._only_class(module)
        if cls is None:
            raise unknown(f"{self.kind} in {path}", wanted, [n for n, c in vars(module).items() if inspect.isclass(c)])
        digest = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
        known = str(getattr(cls, "name", ""))
        check_name(known, f"the {self.kind} in {path}: ")
        entry = RegistryEntry[type[T]](known, name, lambda: cls, path, digest, source=name)
        self._add(entry)
        return entry

    def cls(self, name: str) -> type[T]:
        """Return the class of a name or file. Raises UsageError if there is none, or it cannot be imported."""
        entry = self.entry(name)
        cls = self._load(entry)
        if not (inspect.isclass(cls) and issubclass(cls, self.base())) or getattr(cls, "name", None) != entry.name:
            raise UsageError(
                f"{self.kind} {entry.name!r} from {entry.origin} is not a {self.base().__name__} of that name"
            )
        return cls

    def create(self, name: str, params: Mapping[str, Any]) -> T:
        """Return a new instance of the class of a name or file, with parameters checked against its constructor."""
        cls = self.cls(name)
        return cls(**check_params(f"{self.kind} {cls.name}", cls, params))  # type: ignore[attr-defined]

    def read_edited(self) -> None:
        """Read files anew that were edited; forget those that are gone, or cannot be imported any more.

        Called where a user of Python begins something. The workers of a launch do not call it, and go on with the code
        that was planned with.
        """
        for entry in [entry for entry in self.entries.values() if entry.is_file]:
            file = Path(entry.origin)
            try:
                edited = hashlib.sha256(file.read_bytes()).hexdigest() != entry.source_digest
            except OSError:
                edited = True
            if edited:
                del self.entries[entry.name]
                with suppress(UsageError):  # whoever names the file is told
                    self._add_file(file)

    def _built_in(self, path: str, module_name: str) -> RegistryEntry[type[T]]:
        def load() -> type[T]:
            return self._only_class(importlib.import_module(path))

        return RegistryEntry(module_name.replace("_", "-"), "milbench", load, path)

    def _add_file(self, path: Path) -> RegistryEntry[type[T]]:
        """Import a user's file once and register the one class in it under the class's own name."""
        with as_usage():
            if not path.is_file():
                raise UsageError(f"no file {path} to load a {self.kind} from{_beside(path)}")
            source = path.read_bytes()
        origin = str(path.resolve())
        digest = hashlib.sha256(source).hexdigest()
        for entry in self.entries.values():
            if entry.origin == origin or (entry.is_file and entry.source_digest == digest):  # or a copy of that file
                return entry
        module_name = f"milbench_file_{hashlib.sha256(origin.encode()).hexdigest()[:12]}"
        loader = _Loader(module_name, str(path), source)
        module = importlib.util.module_from_spec(ModuleSpec(module_name, loader, origin=str(path)))
        module.__file__ = str(path)
        sys.modules[module_name] = module
        try:
            with _import_errors(f"the {self.kind} file {path}", module_name), _torch_as_before():
                loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
        cls = self._only_class(module)
        name = getattr(cls, "name", None)
        if not isinstance(name, str):
            raise UsageError(f"the class {cls.__name__} in {path} has no `name`")
        check_name(name, f"the {self.kind} in {path}: ")
        entry = RegistryEntry(name, origin, lambda: cls, module_name, digest, source=origin)
        self._add(entry)
        return entry

    def _only_class(self, module: Any) -> type[T]:
        base = self.base()
        own = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
        found = [c for c in own if issubclass(c, base) and not c.__name__.startswith("_")]
        if len(found) == 1 and inspect.isabstract(found[0]):
            lacking = ", ".join(sorted(found[0].__abstractmethods__))  # type: ignore[attr-defined]
            raise UsageError(f"the class {found[0].__name__} of {module.__file__} lacks the method {lacking}")
        found = [c for c in found if not inspect.isabstract(c)]
        if len(found) != 1:
            names = ", ".join(c.__name__ for c in found) or "none"
            raise UsageError(f"{module.__file__} must hold exactly one {base.__name__}, found: {names}")
        return found[0]


def _source(cls: type) -> str:
    """Return the source of a class, also of one in a notebook, which `inspect` does not find. Raises OSError."""
    with suppress(OSError, TypeError):
        return inspect.getsource(cls)
    files = {value.__code__.co_filename for value in vars(cls).values() if inspect.isfunction(value)}
    for text in ("".join(linecache.getlines(file)) for file in sorted(files)):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                return ast.get_source_segment(text, node) or text
    raise OSError("source code not available")


class _Loader(SourceFileLoader):
    """Imports the bytes of a file that were read, and no compiled file beside it, which may be of an earlier edit."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._read = source

    def get_data(self, path: str) -> bytes:  # noqa: ARG002
        return self._read

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError(f"no compiled file stands for {path}")


def _beside(path: Path) -> str:
    """Return what to take in place of a file that is missing, for the end of a message; "" where nothing is like it."""
    if not path.parent.is_dir():
        return f": there is no folder {path.parent}"
    close = closest(path.stem, [file.stem for file in path.parent.glob("*.py") if file.is_file()])
    return f"; did you mean {str(path.parent / f'{close}.py')!r}?" if close else ""


@contextmanager
def _import_errors(what: str, module: str) -> Iterator[None]:
    """Turn whatever ends the import of a plug-in, `sys.exit` included, into a UsageError with the file and line."""
    try:
        yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}".rstrip(": ")
        raise UsageError(f"cannot import {what}: {reason}{_place(error, module)}") from error


@contextmanager
def _torch_as_before() -> Iterator[None]:
    """Leave torch's default device and type as they are: a file that sets them would change the other losses."""
    import torch

    # Not by torch.get_default_device, which fails in torch 2.6 after set_default_device(None).
    device, dtype = torch.empty(0).device, torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_device(None if device == torch.device("cpu") else device)
        torch.set_default_dtype(dtype)


def _place(error: BaseException, module: str) -> str:
    """Return " (FILE, line N)", the innermost line of a plug-in's own package; "" where none was run."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    package = module.partition(".")[0]
    places = [
        f" ({frame.f_code.co_filename}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    return places[-1] if places else ""


@cache
def losses() -> Registry[Loss]:
    """Return the registry of losses."""

    def base() -> type[Loss]:
        from milbench.api.loss import Loss

        return Loss

    return Registry("loss", "losses", base)


@cache
def tasks() -> Registry[Task]:
    """Return the registry of tasks."""

    def base() -> type[Task]:
        from milbench.api.task import Task

        return Task

    return Registry("task", "tasks", base)
