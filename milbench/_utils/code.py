"""The code that a plug-in depends on, by which cells are told apart: what it imports, and the globals that it uses.

Python's own modules, milbench and the packages that milbench requires do not count: they are those of all cells, and
stand in the provenance of each. Other installed packages count by their versions, the user's own modules by their
files, also those of a package that is installed as editable.
"""

import ast
import hashlib
import importlib.util
import inspect
import linecache
import re
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType, GenericAlias, ModuleType, UnionType
from typing import Any

from milbench._utils.digests import read_digest


@dataclass(frozen=True)
class Code:
    """The code that something depends on."""

    digest: str = ""  # changes with it, wherever the files are
    files: Mapping[str, str] = field(
        default_factory=dict
    )  # path -> SHA-256 of the user's own files among it
    untraced: tuple[str, ...] = ()  # a phrase for each dependency that it does not cover

    def is_current(self, *, elsewhere: bool = False) -> bool:
        """Return whether its files are there and as they were; `elsewhere`, on another machine, some may be missing."""
        files = {
            Path(file): digest
            for file, digest in self.files.items()
            if not elsewhere or Path(file).exists()
        }
        try:
            return all(read_digest(file, "sha256") == digest for file, digest in files.items())
        except OSError:
            return False

    def forget(self) -> None:
        """Forget the modules of its files, so that they are imported anew."""
        importlib.invalidate_caches()
        for file in (
            self.files
        ):  # bytecode of before an edit in the same second would pass for that of the file
            with suppress(OSError, NotImplementedError):
                Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)
        for name, module in [*sys.modules.items()]:
            if name != "__main__" and getattr(module, "__file__", None) in self.files:
                del sys.modules[name]


def code_of(value: Any, content: bytes = b"") -> Code:
    """Return the code of a plug-in, with that of what it imports and of the globals that it uses.

    `value` is the path of a file that was imported with this content, the name of a module, or a class or function that
    no file holds: OSError where the source of that cannot be found.
    """
    reader = _Reader()
    if isinstance(value, Path):
        reader.read_file("", str(value), content, package="")
    elif isinstance(value, str):
        reader.find(value)
    else:
        reader.read_source(value.__name__, value)
    lines = "\n".join(f"{name} {part}" for name, part in sorted(reader.parts.items()))
    digest = hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
    return Code(digest, reader.files, (*reader.untraced,))


def forget_namesakes(folder: Path) -> None:
    """Forget modules of the user's own from elsewhere for which a folder has a file: whose file imports it means that.

    A process that has imported the helper.py of one plug-in would else give it to another one.
    """
    names = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    for name, module in [*sys.modules.items()]:
        file, top = getattr(module, "__file__", None) or "", name.partition(".")[0]
        is_own = file and top in names and not (_is_common(top) or _is_installed(file))
        if is_own and folder.resolve() not in Path(file).resolve().parents:
            del sys.modules[name]


class _Reader:
    """Follows imports and globals; each module and each value is read once."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}  # name -> what its code is: a digest, a version or its text
        self.files: dict[str, str] = {}
        self.untraced: dict[str, None] = {}
        self._exists: dict[str, bool] = {}
        self._read: dict[
            int, Any
        ] = {}  # values by their ids; kept, so that no other one gets an id

    def find(self, name: str) -> bool:
        """Read a module by its name; return whether there is one."""
        if name not in self._exists:
            self._exists[name] = True  # modules may import each other
            self._exists[name] = self._find(name)
        return self._exists[name]

    def _find(self, name: str) -> bool:
        top, parent = name.partition(".")[0], name.rpartition(".")[0]
        if _is_common(top):
            return True
        if (spec := _spec(top)) is None:
            return False
        place = Path(next(iter(spec.submodule_search_locations or ()), spec.origin or ""))
        installed = _is_installed(str(place))
        if versions := self._versions(
            top, by_module=installed or any(place.parent.glob("*.dist-info"))
        ):
            self.parts[top] = versions
        if installed and versions is not None:
            return True
        if (parent and not self.find(parent)) or (spec := _spec(name)) is None:
            return False
        if spec.origin and Path(spec.origin).is_file():
            self.read_file(name, spec.origin, Path(spec.origin).read_bytes(), spec.parent or "")
        elif spec.submodule_search_locations is None:
            self.untraced[f"the source of {name} cannot be read"] = None
        return True

    def _versions(self, top: str, *, by_module: bool) -> str | None:
        """Return the packages that provide a module, with versions, but those that milbench requires; None: none."""
        try:
            packages = [
                metadata.distribution(top)
            ]  # most are named like their module, and others take long to find
        except (metadata.PackageNotFoundError, ValueError):
            packages = (
                [metadata.distribution(name) for name in self._providers.get(top, ())]
                if by_module
                else []
            )
        versions = {
            f"{package.name} {package.version}"
            for package in packages
            if _plain(package.name) not in _required()
        }
        return ", ".join(sorted(versions)) if packages else None

    @cached_property
    def _providers(self) -> Mapping[str, list[str]]:
        return metadata.packages_distributions()

    def read_file(self, name: str, path: str, content: bytes, package: str) -> None:
        self.files[path] = self.parts[f"module {name}"] = hashlib.sha256(content).hexdigest()
        if path.endswith(".py"):
            with suppress(SyntaxError, ValueError):  # nobody has imported it
                self.read_imports(ast.parse(content), package, PurePath(path).name)

    def read_imports(self, tree: ast.AST, package: str, place: str) -> None:
        functions = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        late = {id(node) for function in functions for node in ast.walk(function)}
        for node in ast.walk(tree):
            line = f"{place}, line {getattr(node, 'lineno', 0)}"
            reader = (
                ast.unparse(node.func)
                if isinstance(node, ast.Call) and id(node) not in late
                else ""
            )
            if not _READERS.isdisjoint((reader, reader.rpartition(".")[2])):
                self.untraced[f"{line}: {reader} reads a file when it is imported"] = None
            for name in self._imported(node, package, line):
                # What a file has imported without an error and is not there is an alternative that was not taken.
                if not self.find(name) and (id(node) in late or name in sys.modules):
                    self.untraced[f"{line}: the source of {name} cannot be found"] = None

    def _imported(self, node: ast.AST, package: str, line: str) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute("." * node.level + (node.module or ""), package)
            yield base
            if self.find(base):
                for alias in node.names:
                    self.find(f"{base}.{alias.name}")  # where it is a module
        elif isinstance(node, ast.Call):
            function = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            if function in ("import_module", "__import__"):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                values = [value.value for value in given if isinstance(value, ast.Constant)]
                if values and isinstance(name := values[0], str) and len(values) == len(given):
                    yield _absolute(name, str(values[1]) if len(values) > 1 else package)
                else:
                    self.untraced[f"{line}: a module is imported by a computed name"] = None
            elif getattr(node.func, "id", "") in ("exec", "eval") or function in _RUNNERS:
                self.untraced[f"{line}: {function} runs what no import names"] = None

    def read_value(self, name: str, value: Any) -> None:
        """Read a value that a class or function uses under a name."""
        if (text := _constant(value)) is not None:
            self._add(f"value {name}", text)
        elif id(value) not in self._read and not isinstance(value, BuiltinFunctionType):
            self._read[id(value)] = value
            if not hasattr(value, "__name__"):
                if isinstance(value, partial):
                    for part in ("func", "args", "keywords"):
                        self.read_value(f"{name}.{part}", getattr(value, part))
                elif type(value).__module__ != "typing" and not isinstance(
                    value, GenericAlias | UnionType
                ):
                    self.untraced[f"the value of {name} ({type(value).__name__}) has no source"] = (
                        None
                    )
            elif not self._is_of_module(value):
                try:
                    self.read_source(name, value)
                except (OSError, TypeError, SyntaxError):
                    self.untraced[f"the source of {name} cannot be found"] = None

    def _add(self, name: str, text: str) -> None:
        while self.parts.get(name, text) != text:  # a class may have the name of its base
            name += "'"
        self.parts[name] = text

    def _is_of_module(self, value: Any) -> bool:
        """Read the module that a class or function is from, or that it is; return whether there is one."""
        home = (
            value.__name__
            if isinstance(value, ModuleType)
            else getattr(value, "__module__", None) or "__main__"
        )
        if home == "__main__" or not self.find(home):
            return False
        if f"module {home}" in self.parts and not _holds(home, value):
            self.untraced[f"{value.__name__} is not what {home} holds now: import it again"] = None
        return True

    def read_source(self, name: str, value: Any) -> None:
        value = inspect.unwrap(value)
        text = textwrap.dedent(_source(value))
        self._add(f"source {name}", text)
        self._read[id(value)] = value
        self.read_imports(ast.parse(text), "", name)
        members = vars(value).items() if inspect.isclass(value) else [(name, value)]
        functions: list[FunctionType] = [
            member for _, member in members if inspect.isfunction(member)
        ]
        first = next(
            (function for function in functions if function.__module__ == value.__module__), None
        )
        globals_ = first.__globals__ if first else vars(sys.modules.get(value.__module__, sys))
        for used in _globals_of(text):
            if used in globals_:
                self.read_value(used, globals_[used])
        for function in functions:
            for used, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            ):
                if used != "__class__":
                    self.read_value(f"{name}.{used}", cell.cell_contents)
        if inspect.isclass(value):
            for key, member in members:  # also those that were set after the class was made
                set_later = (
                    inspect.isfunction(member)
                    and member.__qualname__ != f"{value.__qualname__}.{key}"
                )
                if not key.startswith(("__", "_abc_")) and (
                    set_later or not text or _constant(member) is not None
                ):
                    self.read_value(f"{name}.{key}", member)
            for base in value.__bases__:
                self.read_value(base.__name__, base)


_RUNNERS = (
    "run_path", "run_module", "spec_from_file_location", "SourceFileLoader", "exec_module", "load_module",
    "load_source", "resolve_name",
)  # fmt: skip
"""What else runs the code of files, by no name of a module."""
_READERS = {
    "open", "read_text", "read_bytes", "read_csv", "read_table", "read_json", "read_parquet", "read_excel", "loadtxt",
    "genfromtxt", "fromfile", "load_file", "safe_open", "np.load", "numpy.load", "torch.load", "joblib.load",
}  # fmt: skip


def _spec(name: str) -> ModuleSpec | None:
    with suppress(Exception, SystemExit):  # of a package that is imported to find a module in it
        return importlib.util.find_spec(name)
    return None


def _absolute(name: str, package: str) -> str:
    with suppress(ImportError):
        return importlib.util.resolve_name(name, package)
    return name


def _is_common(top: str) -> bool:
    return top == "milbench" or top in sys.stdlib_module_names or top in sys.builtin_module_names


def _is_installed(place: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(PurePath(place).parts)


@cache
def _required() -> set[str]:
    """Return the names of the packages that milbench requires."""
    requirements = [text for text in metadata.requires("milbench") or () if "extra ==" not in text]
    return {_plain(re.split(r"[^\w.-]", text)[0]) for text in requirements}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _holds(module: str, value: Any) -> bool:
    member: Any = sys.modules.get(module)
    for part in (
        []
        if isinstance(value, ModuleType)
        else getattr(value, "__qualname__", value.__name__).split(".")
    ):
        member = getattr(member, part, None)
    return member is value


def _constant(value: Any) -> str | None:
    """Return the text of a number, a string, a path, or a container of such; None for anything else."""
    is_constant = type(value).__name__ in ("dtype", "device", "ufunc")  # of torch and NumPy
    if (
        value is None
        or is_constant
        or isinstance(value, bool | int | float | complex | str | bytes | PurePath)
    ):
        return repr(value)
    items: list[Any]
    if type(value) is dict:
        items = [part for item in value.items() for part in item]
    elif type(value) in (list, tuple, set, frozenset):
        items = [*value]
    else:
        return None
    texts = [_constant(item) for item in items]
    constants = [text for text in texts if text is not None]
    if isinstance(value, set | frozenset):
        constants.sort()
    return (
        f"{type(value).__name__} [{', '.join(constants)}]" if len(constants) == len(texts) else None
    )


def _globals_of(text: str) -> list[str]:
    """Return in order the names that a source text uses and does not define inside its functions."""
    top = symtable.symtable(text, "<source>", "exec")
    names, tables = set[str](), [top]
    for table in tables:  # which grows
        tables += table.get_children()
        used = (symbol for symbol in table.get_symbols() if symbol.is_referenced())
        names |= {symbol.get_name() for symbol in used if table is top or symbol.is_global()}
    return sorted(names)


def _source(value: Any) -> str:
    """Return the source of a class or function, also of a notebook; OSError: there is none that can be found."""
    with suppress(OSError, TypeError):
        return inspect.getsource(value)
    functions = [
        member for member in getattr(value, "__dict__", {}).values() if inspect.isfunction(member)
    ]
    if inspect.isclass(value) and not functions:
        return ""  # a notebook's class of values alone, which tells no place
    files = {function.__code__.co_filename for function in functions}
    for text in ("".join(linecache.getlines(file)) for file in sorted(files)):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == value.__name__:
                return ast.get_source_segment(text, node) or text
    raise OSError("source code not available")
