"""Import what a user names by a file, a module or a class, and add it to its registry."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import re
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, TypeVar

from milbench._utils.files import file_and_member
from milbench.api.imports import SourceLoader, import_errors, torch_as_before
from milbench.api.registry import Classes, Registry, RegistryEntry, check_name
from milbench.errors import UsageError, as_usage, closest, unknown

T = TypeVar("T")
_MODULE = r"[A-Za-z_][\w.]*(:\w+)?"


def resolve(registry: Registry[Any], given: str) -> str:
    """Return the name in a registry of what a user has given: a name, a path in .py or a module, each also :MEMBER.

    A file or a module is imported, once, and its only member of this kind, or that of the name, is added. Raises
    UsageError where there is no such thing, or it cannot be imported.
    """
    path, member = file_and_member(given)
    if path:
        return _add_file(registry, Path(path), member).name
    if given not in registry.entries and re.fullmatch(_MODULE, given) and re.search("[.:]", given):
        return _add_module(registry, given).name
    return registry.entry(given).name


def add_object(registry: Registry[T], given: Any, digest: str = "") -> str:
    """Register a class or function that a user of Python gives, and return its name, or its module if one holds it.

    One that was defined in a notebook or a script is copied to workers, with the `digest` of its source. Raises
    UsageError if it is of another kind, or its source cannot be found.
    """
    if not _suits(registry, given):
        raise UsageError(f"{registry.kind} = {given!r}: expected a name, a path or {_expected(registry)}")
    held = getattr(sys.modules.get(given.__module__), given.__qualname__, None)
    if not digest and given.__module__ != "__main__" and held is not None and held is given:
        of_module = (
            entry for entry in registry.entries.values() if not entry.source and entry.module == given.__module__
        )
        own = (entry for entry in registry.entries.values() if entry.origin == "milbench" and entry.load() is given)
        entry = next(own if not isinstance(registry, Classes) else of_module, None)
        return entry.name if entry else f"{given.__module__}:{given.__qualname__}"
    if getattr(given, "__closure__", None):
        raise UsageError(
            f"{given.__name__} depends on values of the function around it: make them parameters of its own"
        )
    name = _name(registry, given, f"the {registry.kind} {given.__name__}")
    try:
        digest = digest or hashlib.sha256(_source(given).encode()).hexdigest()
    except OSError:
        raise UsageError(f"the source of {given.__name__} cannot be found: put it into a file, NAME.py") from None
    if registry.entries.get(name) and registry.entries[name].origin == f"{_LOCAL}{given.__name__}":
        del registry.entries[name]  # defined anew
    registry.add(RegistryEntry(name, f"{_LOCAL}{given.__name__}", lambda: given, given.__module__, digest))
    return name


_LOCAL = "this session's "
"""What the origin of an entry begins with that no file or module holds."""


def local_object(registry: Registry[T], name: str) -> T | None:
    """Return the class or function that `add_object` has registered under a name, None for any other name."""
    entry = registry.entries.get(name)
    return entry.load() if entry is not None and entry.origin.startswith(_LOCAL) else None


def read_edited(registry: Registry[Any]) -> None:
    """Read edited files again; forget those that are gone, or cannot be imported any more.

    Called where a user of Python begins something. The workers of a launch do not call it, and go on with the code that
    was planned with.
    """
    for entry in [entry for entry in registry.entries.values() if entry.is_file]:
        file, member = file_and_member(entry.source)
        try:
            edited = hashlib.sha256(Path(file).read_bytes()).hexdigest() != entry.source_digest
        except OSError:
            edited = True
        if edited:
            del registry.entries[entry.name]
            with suppress(UsageError):  # whoever names the file is told
                _add_file(registry, Path(file), member)


def only_member(registry: Registry[T], module: Any) -> T:
    """Return the only class of a registry's kind that a module defines, or its only function where it may be one."""
    base = registry.base() if registry.base else object
    defined = [v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__ and n[0] != "_"]
    members: list[Any] = [v for v in defined if inspect.isclass(v) and issubclass(v, base)]
    if len(members) == 1 and inspect.isabstract(members[0]):
        lacking = ", ".join(sorted(members[0].__abstractmethods__))
        raise UsageError(f"the class {members[0].__name__} of {module.__file__} lacks the method {lacking}")
    members = [cls for cls in members if not inspect.isabstract(cls)]
    if not members and not isinstance(registry, Classes):
        members = [v for v in defined if inspect.isfunction(v)]
    if len(members) != 1:
        names = ", ".join(member_class.__name__ for member_class in members) or "none"
        raise UsageError(f"{module.__file__} must hold exactly one {base.__name__}, found: {names}")
    member: T = members[0]
    return member


def _add_module(registry: Registry[Any], given: str) -> RegistryEntry[Any]:
    """Import a module that a user has named, as MODULE or MODULE:MEMBER, and register its member."""
    if entry := next((entry for entry in registry.entries.values() if entry.source == given), None):
        return entry
    path, _, wanted = given.partition(":")
    with import_errors(f"the {registry.kind} module {path}", path), torch_as_before():
        module = importlib.import_module(path)
    digest = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    return _added(registry, module, wanted, path, RegistryEntry("", given, lambda: None, path, digest, given))


def _add_file(registry: Registry[Any], path: Path, wanted: str) -> RegistryEntry[Any]:
    """Import a user's file once and register the one class in it, or that of a name, under its own name."""
    with as_usage():
        if not path.is_file():
            raise UsageError(f"no file {path} to load a {registry.kind} from{_beside(path)}")
        content = path.read_bytes()
    origin = str(path.resolve())
    source, digest = f"{origin}:{wanted}" if wanted else origin, hashlib.sha256(content).hexdigest()
    for entry in registry.entries.values():
        same_member = file_and_member(entry.source)[1] == wanted
        if entry.source == source or (entry.is_file and entry.source_digest == digest and same_member):  # or a copy
            return entry
    name = f"milbench_file_{hashlib.sha256(origin.encode()).hexdigest()[:12]}"
    loader = SourceLoader(name, str(path), content)
    module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        with import_errors(f"the {registry.kind} file {path}", name), torch_as_before():
            loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return _added(registry, module, wanted, str(path), RegistryEntry("", origin, lambda: None, name, digest, source))


def _added(
    registry: Registry[Any], module: Any, wanted: str, place: str, entry: RegistryEntry[Any]
) -> RegistryEntry[Any]:
    """Add the member of a module to a registry; `entry` holds its other fields."""
    member = getattr(module, wanted, None) if wanted else only_member(registry, module)
    if member is None:
        own = [n for n, v in vars(module).items() if _suits(registry, v) and v.__module__ == module.__name__]
        raise unknown(f"{registry.kind} in {place}", wanted, own)
    name = _name(registry, member, f"the {registry.kind} in {place}")
    entry = RegistryEntry(name, entry.origin, lambda: member, entry.module, entry.source_digest, entry.source)
    registry.add(entry)
    return entry


def _name(registry: Registry[Any], member: Any, where: str) -> str:
    """Return the name of a class or function: its `name`, or where it need have none its Python name with hyphens."""
    name = getattr(member, "name", None)
    if name is None and not isinstance(registry, Classes):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", member.__name__).lower().strip("-")
    if not isinstance(name, str):
        raise UsageError(f"{where}: its class {member.__name__} has no `name`")
    check_name(name, f"{where}: ")
    return name


def _suits(registry: Registry[Any], given: Any) -> bool:
    base = registry.base() if registry.base else object
    if inspect.isclass(given):
        return issubclass(given, base)
    return inspect.isfunction(given) and not isinstance(registry, Classes)


def _expected(registry: Registry[Any]) -> str:
    name = registry.base().__name__ if registry.base else "class"
    return f"a subclass of {name}" + ("" if isinstance(registry, Classes) else " or a function that returns one")


def _source(given: Any) -> str:
    """Return the source of a class or function, also of one in a notebook, which `inspect` does not find.

    Raises OSError.
    """
    with suppress(OSError, TypeError):
        return inspect.getsource(given)
    functions = [value for value in vars(given).values() if inspect.isfunction(value)]
    files = {function.__code__.co_filename for function in functions}
    for text in ("".join(linecache.getlines(file)) for file in sorted(files)):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == given.__name__:
                return ast.get_source_segment(text, node) or text
    raise OSError("source code not available")


def _beside(path: Path) -> str:
    """Return what to take in place of a file that is missing, for the end of a message; "" where nothing is like it."""
    if not path.parent.is_dir():
        return f": there is no folder {path.parent}"
    close = closest(path.stem, [file.stem for file in path.parent.glob("*.py") if file.is_file()])
    return f"; did you mean {str(path.parent / f'{close}.py')!r}?" if close else ""
