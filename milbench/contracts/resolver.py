"""Import what a user names by a file, a module or a class, and add it to its registry."""

import importlib
import inspect
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from milbench._utils.files import file_and_member
from milbench.contracts.registry import REGISTRIES, Registry, RegistryEntry, check_name
from milbench.errors import UsageError, as_usage, closest, unknown
from milbench.plugins.importing import forget_modules, import_file, importing
from milbench.plugins.planned import record_for
from milbench.plugins.record import ImportRecord, Target
from milbench.plugins.session import holder, record_session_object

T = TypeVar("T")
_LOCAL = "this session's "
"""The beginning of the origin of an entry that was defined in a notebook or a script."""
_MODULE = r"[A-Za-z_]\w*(\.\w+)*(:\w+)?"
"""The pattern of a module's name, perhaps with :MEMBER."""


def resolve(registry: Registry[Any], reference: str) -> str:
    """Return the name of the entry that a user refers to, and register the entry if needed.

    The reference is a name in the registry, a path that ends in .py, or a module; a path or a
    module may be followed by :MEMBER. A file or module is imported, once. Then the member, or the
    only class or function of the registry's kind, is added to the registry. Raises UsageError where
    there is no such thing, or it cannot be imported.
    """
    path, member = file_and_member(reference)
    if path:
        return _add(registry, path, member, is_file=True)
    if reference not in registry.entries and re.fullmatch(_MODULE, reference):
        module, colon, member = reference.partition(":")
        # A single word is no module, but the name of an entry, perhaps misspelt.
        if colon or "." in module:
            return _add(registry, module, member, is_file=False)
    return registry.entry(reference).name


def add_object(registry: Registry[T], value: Any, record: ImportRecord | None = None) -> str:
    """Return a reference to a class or function that a user passes from Python.

    A class or function that a module holds is not registered here: the result is its name, if it
    has an entry, or else MODULE:NAME for `resolve`. What was defined in a notebook or a script is
    registered, and the result is its name. It is copied to workers, with the `record` of what it
    uses. Raises UsageError if the value is not of the registry's kind, or depends on variables of a
    function around it.
    """
    if not _suits(registry, value):
        expected = f"a name, a path or a subclass of {registry.base().__name__}"
        if registry.takes_functions:
            expected += " or a function that returns one"
        raise UsageError(f"{registry.kind} = {value!r}: expected {expected}")
    if record is None:
        reference = _importable(registry, value)
        if reference:
            return reference
    if getattr(value, "__closure__", None):
        # Only the source is copied to workers, without the values of these variables.
        raise UsageError(
            f"{value.__name__} depends on values of the function around it: "
            "make them parameters of its own"
        )
    name = _name(registry, value, f"the {registry.kind} {value.__name__}")
    own_record = record or record_session_object(value)
    origin = f"{_LOCAL}{value.__name__}"
    if name in registry.entries and registry.entries[name].origin == origin:
        # The user has defined it again, for example by running a cell of a notebook twice.
        del registry.entries[name]
    entry = RegistryEntry(
        name, origin, lambda: value, value.__module__, find_record=lambda: own_record
    )
    registry.add(entry)
    return name


def local_object(registry: Registry[T], name: str) -> T | None:
    """Return what `add_object` has registered under a name, None for any other name."""
    entry = registry.entries.get(name)
    if entry is None or not entry.origin.startswith(_LOCAL):
        return None
    return entry.load()


def reload_edited_plugins() -> None:
    """Import edited plug-ins again, and remove entries whose files are gone or fail to import.

    Functions that a user calls do this first. The workers of a launch do not: they keep the code
    with which the launch was planned.
    """
    edited: list[tuple[Registry[Any], RegistryEntry[Any]]] = []
    for registry in REGISTRIES:
        entries = registry.entries.values()
        edited += [(registry, entry) for entry in entries if not entry.is_current()]
    # All modules are forgotten before any is imported again. Otherwise two plug-ins that share a
    # helper could get different versions of it.
    for _, entry in edited:
        forget_modules(entry.record.files)
    for registry, entry in edited:
        if entry.source:
            del registry.entries[entry.name]
            # If the import fails, the user sees the error when naming the file the next time.
            with suppress(UsageError):
                resolve(registry, entry.source)
        elif not entry.origin.startswith(_LOCAL):
            # A copy of the entry has no record yet. It is made when the plug-in is next used.
            registry.entries[entry.name] = replace(entry)


def _importable(registry: Registry[Any], value: Any) -> str:
    """Return the name of the entry of a class or function, or MODULE:NAME if it has no entry.

    Returns "" where no module holds it.
    """
    module = holder(value)
    # A dot means that it is defined inside a class or function.
    if not module or "." in value.__qualname__:
        return ""
    # The module may have been edited and imported again since. What it holds now counts.
    current = getattr(importlib.import_module(module), value.__qualname__)
    name = getattr(current, "name", None)
    for entry in registry.entries.values():
        if registry.takes_functions:
            is_value = entry.origin == "milbench" and entry.load() is current
        else:
            # The module may hold several classes of this kind, so the name is compared too.
            is_of_module = not entry.source and entry.module == module
            is_value = is_of_module and entry.name == name
        if is_value:
            return entry.name
    return f"{module}:{value.__qualname__}"


def _add(registry: Registry[Any], place: str, member: str, *, is_file: bool) -> str:
    """Import a file or module, register one of its members, and return the name of the entry.

    An empty `member` means the only class or function of the registry's kind. What was registered
    before is not imported again.
    """
    # Users may give different paths to one file.
    full_place = str(Path(place).resolve()) if is_file else place
    source = f"{full_place}:{member}" if member else full_place
    for entry in registry.entries.values():
        if entry.source == source:
            return entry.name
    if is_file:
        _check_file(registry, Path(place))
        target = Target(f"the {registry.kind} file {place}", file=full_place)
    else:
        target = Target(f"the {registry.kind} module {place}", modules=(place,))
    record = record_for(registry.kind, source, target)
    module = _import(target)
    change = record.first_change()
    if change:
        raise UsageError(
            f"{change} was changed while {place} was imported; run the same command again"
        )
    value = _member(registry, module, member, place)
    name = _name(registry, value, f"the {registry.kind} in {place}")
    twin = registry.entries.get(name)
    if twin is not None and _is_copy(twin, record, member):
        if twin.is_current():
            return name
        # The file of the present entry is gone, or was edited.
        del registry.entries[name]
    entry = RegistryEntry(
        name, source, lambda: value, module.__name__, source, find_record=lambda: record
    )
    registry.add(entry)
    return name


def _check_file(registry: Registry[Any], path: Path) -> None:
    """Raise UsageError where there is no file. The message suggests a file with a similar name."""
    with as_usage():
        if path.is_file():
            return
        if not path.parent.is_dir():
            raise UsageError(
                f"no file {path} to load a {registry.kind} from: there is no folder {path.parent}"
            )
        others = [file.stem for file in path.parent.glob("*.py") if file.is_file()]
        similar = closest(path.stem, others)
        hint = f"; did you mean {str(path.parent / f'{similar}.py')!r}?" if similar else ""
        raise UsageError(f"no file {path} to load a {registry.kind} from{hint}")


def _import(target: Target) -> ModuleType:
    """Import a recorded file or module into this process, and return the module."""
    with importing(target.subject, target.module):
        if target.file:
            return import_file(Path(target.file))
        return importlib.import_module(target.module)


def _is_copy(twin: RegistryEntry[Any], record: ImportRecord, member: str) -> bool:
    """Return whether a new file with this record is a copy of the file of an entry."""
    is_same_member = file_and_member(twin.source)[1] == member
    return twin.is_file and is_same_member and twin.record.digest == record.digest


def _member(registry: Registry[Any], module: ModuleType, name: str, place: str) -> Any:
    """Return the class or function of a name in a module; "": the only one of this kind."""
    if name:
        return _named_member(registry, module, name, place)
    members = _members(registry, module)
    # Next to a class, a function most likely is a helper of the class.
    classes = {key: value for key, value in members.items() if inspect.isclass(value)}
    candidates = classes or members
    if not candidates:
        raise _no_member(registry, _definitions(module).values(), "", place)
    if len(candidates) > 1:
        choices = " or ".join(f"{place}:{member}" for member in candidates)
        raise UsageError(
            f"{place} holds {len(candidates)} {registry.kind} entries: name one of them, {choices}"
        )
    (only,) = candidates.values()
    return only


def _named_member(registry: Registry[Any], module: ModuleType, name: str, place: str) -> Any:
    """Return the class or function of a name in a module, which may have imported it."""
    if not hasattr(module, name):
        raise unknown(f"{registry.kind} in {place}", name, _members(registry, module))
    value = getattr(module, name)
    if not _suits(registry, value):
        raise _no_member(registry, _definitions(module).values(), f" {name}", place)
    return value


def _members(registry: Registry[Any], module: ModuleType) -> dict[str, Any]:
    """Return the public classes and functions of a module that can be entries, by name."""
    members = {}
    for key, value in _definitions(module).items():
        is_public = not key.startswith("_")
        if is_public and _suits(registry, value) and not inspect.isabstract(value):
            members[key] = value
    return members


def _definitions(module: ModuleType) -> dict[str, Any]:
    """Return what a module defines itself, by name, without what it imports."""
    return {
        key: value
        for key, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
    }


def _no_member(
    registry: Registry[Any], values: Iterable[Any], named: str, place: str
) -> UsageError:
    """Return the error that a module holds nothing of the registry's kind.

    Its message says what the classes of the module lack.

    Args:
        registry: the registry in which a member of the module should have an entry.
        values: what the module defines.
        named: the name of the member that the user wants, with a space before it; "" for none.
        place: the file or module, as the user names it.
    """
    base = registry.base()
    expected = f"expected a class that inherits milbench.{base.__name__}"
    if registry.takes_functions:
        expected += ", or a function that returns one"
    unfinished = ""
    for cls in filter(inspect.isclass, values):
        if not issubclass(cls, base):
            expected += f", not {cls.__name__}"
        elif inspect.isabstract(cls):
            methods = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            unfinished = f"its class {cls.__name__} lacks the method {methods}"
    # A subclass that lacks a method is most likely what the user means, so it is named first.
    problem = unfinished or expected
    return UsageError(f"{place} holds no {registry.kind}{named}: {problem}")


def _name(registry: Registry[Any], value: Any, context: str) -> str:
    """Return the name that a class or function has in the registry.

    It is its `name`. In a registry that takes functions, a value without `name` gets its Python
    name with hyphens. Raises UsageError where there is no name, or it is not valid.
    """
    name = getattr(value, "name", None)
    if name is None and registry.takes_functions:
        # WideMlp and wide_mlp become wide-mlp.
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", value.__name__).lower().strip("-")
    if not isinstance(name, str):
        raise UsageError(f"{context}: its class {value.__name__} has no `name`")
    check_name(name, f"{context}: ")
    return name


def _suits(registry: Registry[Any], value: Any) -> bool:
    """Return whether a value can be an entry of the registry.

    It is a class of the registry's kind, or any function if the registry takes functions.
    """
    if inspect.isclass(value):
        return issubclass(value, registry.base())
    return inspect.isfunction(value) and registry.takes_functions
