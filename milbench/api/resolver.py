"""Import what a user names by a file, a module or a class, and add it to its registry."""

import hashlib
import importlib
import inspect
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from milbench._utils.code import Code, code_of, forget_namesakes
from milbench._utils.files import file_and_member
from milbench.api.registry import REGISTRIES, Classes, Registry, RegistryEntry, check_name, importing
from milbench.errors import UsageError, as_usage, closest, unknown

T = TypeVar("T")
_LOCAL = "this session's "  # what the origin of an entry begins with that no file or module holds


def resolve(registry: Registry[Any], given: str) -> str:
    """Return the name in a registry of what a user has given: a name, a path in .py or a module, each also :MEMBER.

    A file or a module is imported, once, and its only member of this kind, or that of the name, is added. Raises
    UsageError where there is no such thing, or it cannot be imported.
    """
    path, member = file_and_member(given)
    is_module = (
        given not in registry.entries and re.fullmatch(r"[A-Za-z_][\w.]*(:\w+)?", given) and re.search("[.:]", given)
    )
    if path or is_module:
        return _add(registry, given, path, member).name
    return registry.entry(given).name


def add_object(registry: Registry[T], given: Any, code: Code | None = None) -> str:
    """Register a class or function that a user of Python gives, and return its name, or its module if one holds it.

    One that was defined in a notebook or a script is copied to workers, with the `code` that it depends on there.
    Raises UsageError if it is of another kind, or its source cannot be found.
    """
    if not _suits(registry, given):
        function = "" if isinstance(registry, Classes) else " or a function that returns one"
        expected = f"a name, a path or a subclass of {registry.base().__name__}{function}"
        raise UsageError(f"{registry.kind} = {given!r}: expected {expected}")
    home = given.__module__
    held = getattr(sys.modules.get(home), given.__qualname__, None)
    # Of a module that was edited it is the class of before, and what counts is what the module holds now.
    if code is None and home != "__main__" and getattr(held, "__qualname__", "") == given.__qualname__:
        of_module = (entry for entry in registry.entries.values() if not entry.source and entry.module == home)
        own = (entry for entry in registry.entries.values() if entry.origin == "milbench" and entry.load() is held)
        entry = next(own if not isinstance(registry, Classes) else of_module, None)
        return entry.name if entry else f"{home}:{given.__qualname__}"
    if getattr(given, "__closure__", None):
        raise UsageError(
            f"{given.__name__} depends on values of the function around it: make them parameters of its own"
        )
    name = _name(registry, given, f"the {registry.kind} {given.__name__}")
    try:
        found = code or code_of(given)
    except (OSError, SyntaxError):
        raise UsageError(f"the source of {given.__name__} cannot be found: put it into a file, NAME.py") from None
    origin = f"{_LOCAL}{given.__name__}"
    if name in registry.entries and registry.entries[name].origin == origin:
        del registry.entries[name]  # defined anew
    registry.add(RegistryEntry(name, origin, lambda: given, given.__module__, find_code=lambda: found))
    return name


def local_object(registry: Registry[T], name: str) -> T | None:
    """Return the class or function that `add_object` has registered under a name, None for any other name."""
    entry = registry.entries.get(name)
    return entry.load() if entry is not None and entry.origin.startswith(_LOCAL) else None


def read_edited() -> None:
    """Read edited files again, and what imports them; forget those that are gone, or cannot be imported any more.

    Called where a user begins something, and not by the workers of a launch: they go on with the code of the plan.
    """
    entries = [(registry, entry) for registry in REGISTRIES for entry in registry.entries.values()]
    edited = [(registry, entry) for registry, entry in entries if not entry.is_current()]
    for _, entry in edited:
        entry.code.forget()
    for registry, entry in edited:
        if entry.source:
            del registry.entries[entry.name]
            with suppress(UsageError):  # whoever names the file is told
                resolve(registry, entry.source)
        elif not entry.origin.startswith(_LOCAL):
            registry.entries[entry.name] = replace(entry)  # its code is found anew


def _only_member(registry: Registry[Any], module: Any) -> Any:
    """Return the only class of a registry's kind that a module defines, or its only function where it may be one."""
    base = registry.base()
    defined = [v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__ and n[0] != "_"]
    members: list[Any] = [v for v in defined if inspect.isclass(v) and issubclass(v, base)]
    if len(members) == 1 and inspect.isabstract(members[0]):
        lacking = ", ".join(sorted(members[0].__abstractmethods__))
        raise UsageError(f"the class {members[0].__name__} of {module.__file__} lacks the method {lacking}")
    members = [cls for cls in members if not inspect.isabstract(cls)]
    if not members and not isinstance(registry, Classes):
        members = [v for v in defined if inspect.isfunction(v)]
    if len(members) != 1:
        names = ", ".join(member.__name__ for member in members) or "none"
        raise UsageError(f"{module.__file__} must hold exactly one {base.__name__}, found: {names}")
    return members[0]


def _add(registry: Registry[Any], given: str, path: str, wanted: str) -> RegistryEntry[Any]:
    """Import the file or module that a user has named, once, and register its only member, or that of a name."""
    place = path or given.partition(":")[0]
    source = f"{Path(path).resolve()}{f':{wanted}' * bool(wanted)}" if path else given
    if entry := next((entry for entry in registry.entries.values() if entry.source == source), None):
        return entry
    if path:
        module, code = _import_file(registry, Path(path))
    else:
        with importing(f"the {registry.kind} module {place}", place):
            module = importlib.import_module(place)
        code, wanted = code_of(place), given.partition(":")[2]
    member = getattr(module, wanted, None) if wanted else _only_member(registry, module)
    if member is None:
        own = [n for n, v in vars(module).items() if _suits(registry, v) and v.__module__ == module.__name__]
        raise unknown(f"{registry.kind} in {place}", wanted, own)
    name = _name(registry, member, f"the {registry.kind} in {place}")
    earlier = registry.entries.get(name)
    is_copy = earlier and earlier.is_file and earlier.code.digest == code.digest
    if path and earlier and is_copy and file_and_member(earlier.source)[1] == wanted:
        return earlier
    entry = RegistryEntry(name, source, lambda: member, module.__name__, source, lambda: code)
    registry.add(entry)
    return entry


def _import_file(registry: Registry[Any], path: Path) -> tuple[ModuleType, Code]:
    with as_usage():
        if not path.is_file():
            close = closest(path.stem, [file.stem for file in path.parent.glob("*.py") if file.is_file()])
            beside = f"; did you mean {str(path.parent / f'{close}.py')!r}?" if close else ""
            beside = beside if path.parent.is_dir() else f": there is no folder {path.parent}"
            raise UsageError(f"no file {path} to load a {registry.kind} from{beside}")
        content = path.read_bytes()
        forget_namesakes(path.parent)
    origin = str(path.resolve())
    name = f"milbench_file_{hashlib.sha256(origin.encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        with importing(f"the {registry.kind} file {path}", name):
            exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))  # noqa: S102 as an import does
    except BaseException:
        del sys.modules[name]
        raise
    return module, code_of(Path(origin), content)


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
    if inspect.isclass(given):
        return issubclass(given, registry.base())
    return inspect.isfunction(given) and not isinstance(registry, Classes)
