"""The record of a class or function that no file holds, such as one of a notebook.

Its digest is made of its code objects: their instructions, names and constants. The classes,
functions and values of the session that they use count too. Comments, line numbers and names of
files do not count. Imported modules that it uses count by their own records.
"""

import dis
import functools
import sys
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from milbench.plugins.owners import foreign_distributions, is_milbench, is_site_file
from milbench.plugins.record import (
    ImportRecord,
    Target,
    digest_of_lines,
    module_file,
    record_import,
)

CONSTANTS = (type(None), type(...), bool, int, float, complex, str, bytes, PurePath)
"""Types whose values have the same `repr` in every process."""
HOUSEKEEPING = {
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__",
    "__annotations_cache__", "__dict__", "__doc__", "__firstlineno__", "__module__",
    "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip
"""Attributes that Python sets in every class. No result depends on them."""


def record_session_object(value: type | FunctionType) -> ImportRecord:
    """Return the record of a class or function that no file holds.

    Raises UsageError where a module that it uses cannot be imported in a process of its own.
    """
    reader = _Reader()
    description = reader.describe(value)
    modules = tuple(sorted(filter(_tells_versions_apart, reader.modules)))
    record = ImportRecord()
    if modules:
        record = record_import(Target(f"the modules of {value.__name__}", modules=modules))
    digest = digest_of_lines([f"code {description}", f"modules {record.digest}"])
    return ImportRecord(digest, record.files, record.distributions)


def holder(value: Any) -> str:
    """Return the name of the imported module that has a class or function, "" if none has it."""
    name = getattr(value, "__module__", None) or "__main__"
    if name == "__main__":
        return ""
    held: Any = sys.modules.get(name)
    for part in getattr(value, "__qualname__", "").split("."):
        held = getattr(held, part, None)
    # Compared by name, since a module that was imported anew has a new object for the same class.
    is_held = getattr(held, "__qualname__", None) == value.__qualname__
    return name if is_held else ""


def _tells_versions_apart(module: str) -> bool:
    """Return whether a module is the user's own, or from a package that milbench does not need."""
    file = module_file(module)
    if not file or is_milbench(module) or module.partition(".")[0] in sys.stdlib_module_names:
        return False
    return not is_site_file(file) or bool(foreign_distributions(module))


class _Reader:
    """Describes values by nested lists of text, and notes the modules that they come from."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        # The id of a value -> its number. A value that occurs again is described by its number, so
        # that values may contain each other.
        self._numbers: dict[int, int] = {}
        # Every numbered value is kept, so that no new value gets its id.
        self._kept: list[Any] = []

    def describe(self, value: Any) -> Any:
        """Return a description of a value that has the same `repr` in every process."""
        if isinstance(value, CONSTANTS):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, ModuleType):
            self.modules.add(value.__name__)
            return f"module {value.__name__}"
        if isinstance(value, tuple | frozenset | CodeType):
            # Such values get no number: in one process two equal ones are the same object, and in
            # another process they are not. They can contain themselves only by way of other values,
            # which are numbered.
            return self._describe_new(value)
        if id(value) in self._numbers:
            return f"value {self._numbers[id(value)]}"
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        return self._describe_new(value)

    def _describe_new(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [type(value).__name__, *map(self.describe, value)]
        if isinstance(value, set | frozenset):
            # The order of a set differs between processes.
            members = [str(self.describe(member)) for member in value]
            return [type(value).__name__, *sorted(members)]
        if isinstance(value, dict):
            return ["dict", *map(self.describe, value.items())]
        if isinstance(value, CodeType):
            return self._describe_code(value)
        if isinstance(value, type | FunctionType):
            return self._describe_definition(value)
        if isinstance(value, property):
            return ["property", *map(self.describe, (value.fget, value.fset, value.fdel))]
        if isinstance(value, staticmethod | classmethod):
            return [type(value).__name__, self.describe(value.__func__)]
        if isinstance(value, MethodType):
            return ["method", *map(self.describe, (value.__func__, value.__self__))]
        if isinstance(value, functools.partial):
            return ["partial", *map(self.describe, (value.func, value.args, value.keywords))]
        return self._describe_object(value)

    def _describe_definition(self, value: type | FunctionType) -> Any:
        """Describe a class or function by the module that has it, or else by what it does."""
        module = holder(value)
        if module:
            self.modules.add(module)
            return f"{_lasting_name(module)}.{value.__qualname__}"
        if isinstance(value, type):
            return self._describe_class(value)
        return self._describe_function(value)

    def _describe_class(self, value: type) -> Any:
        names = sorted(vars(value).keys() - HOUSEKEEPING)
        members = [[name, self.describe(vars(value)[name])] for name in names]
        return ["class", value.__qualname__, self.describe(value.__bases__), members]

    def _describe_function(self, value: FunctionType) -> Any:
        code = value.__code__
        closure = value.__closure__ or ()
        enclosed = []
        for name, cell in zip(code.co_freevars, closure, strict=True):
            # A method that calls `super()` has its class in `__class__`: it is described already.
            if name != "__class__":
                enclosed.append([name, self.describe(cell.cell_contents)])
        defaults = self.describe([value.__defaults__, value.__kwdefaults__])
        home = str(value.__globals__.get("__name__"))
        if home != "__main__" and home in sys.modules:
            # A function of a module has made this function, as a decorator does. The record of that
            # module covers its code.
            self.modules.add(home)
            return ["function", _lasting_name(home), value.__qualname__, defaults, enclosed]
        # Global names that are not in `__globals__` are built into Python.
        names = sorted(_globals_of(code) & value.__globals__.keys())
        used = [[name, self.describe(value.__globals__[name])] for name in names]
        return ["function", self.describe(code), defaults, enclosed, used]

    def _describe_code(self, code: CodeType) -> Any:
        """Describe the code of a function by its effect, without line numbers and file names."""
        instructions = code.co_code.hex()
        handlers = code.co_exceptiontable.hex()
        # Instructions refer to names and constants by their numbers, so these lists count too.
        names = [code.co_names, code.co_varnames, code.co_freevars]
        constants = [self.describe(constant) for constant in code.co_consts]
        return [instructions, *names, handlers, constants]

    def _describe_object(self, value: Any) -> Any:
        """Describe an object by its type and its attributes, arrays and tensors by their values."""
        kind = self.describe(type(value))
        to_list: Callable[[], Any] | None = getattr(value, "tolist", None)
        if callable(to_list):
            return [kind, str(getattr(value, "dtype", "")), self.describe(to_list())]
        if hasattr(value, "__dict__"):
            return [kind, self.describe(vars(value))]
        text = repr(value)
        # The text contains an address in memory, which differs between processes.
        if " at 0x" in text:
            text = ""
        return [kind, text]


def _lasting_name(module: str) -> str:
    """Return the name of a module, or "milbench" for any module of milbench.

    Moving or renaming a file of milbench must not make a new version of a user's class.
    """
    return "milbench" if is_milbench(module) else module


def _globals_of(code: CodeType) -> set[str]:
    """Return the global names that a function and the functions inside it look up."""
    names: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
            names.add(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _globals_of(constant)
    return names
