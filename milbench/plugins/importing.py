"""Import code of users. The process stays as it is, and every failure becomes a UsageError."""

import hashlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from milbench._utils.process import end_if_forked, note_added_folders, process_as_before
from milbench.errors import UsageError, in_one_line, message
from milbench.plugins.owners import file_of, is_own_module

_modules_of_folders: dict[Path, dict[str, ModuleType]] = {}
"""Folder of a plug-in -> name -> module, for the modules of the folder that were imported."""


@contextmanager
def importing(subject: str, module: str, *, is_built_in: bool = False) -> Iterator[None]:
    """Turn every error of the import of a plug-in, also `sys.exit`, into a UsageError.

    Use it in a `with` statement around the import. The message names the file and line. The state
    of the process is restored, with torch's default device and type, on which other losses rely.
    What the plug-in prints is discarded, unless this process computes a cell, whose output is kept.

    Args:
        subject: what messages call the plug-in.
        module: the name of its module.
        is_built_in: whether it is milbench's own, which changes and prints nothing.
    """
    import torch

    # An empty tensor is made on the default device. Not torch.get_default_device: in torch 2.6 it
    # fails after set_default_device(None).
    device = torch.empty(0).device
    dtype = torch.get_default_dtype()
    path_before = [*sys.path]
    process = os.getpid()
    # The stream is never closed, since a plug-in may keep it, such as for a log.
    discarded_output = io.StringIO()
    try:
        with ExitStack() as stack:
            if not is_built_in:
                stack.enter_context(_current_code())
                # A process that computes a cell is in a block of `process_as_before` already. What
                # a plug-in prints there belongs to the output of the cell.
                is_outermost = stack.enter_context(process_as_before())
                if is_outermost:
                    stack.enter_context(redirect_stdout(discarded_output))
                    stack.enter_context(redirect_stderr(discarded_output))
            yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise import_failure(subject, module, error) from error
    finally:
        # A plug-in may fork this process while it is imported. The child also comes here.
        end_if_forked(process)
        # The folders are noted, so that `path_of_session` can leave them out for other plug-ins.
        note_added_folders(path_before)
        # Without a default device tensors are on the CPU. The CPU as a default device would slow
        # down every call of torch.
        torch.set_default_device(None if device == torch.device("cpu") else device)
        torch.set_default_dtype(dtype)


def import_failure(subject: str, module: str, error: BaseException) -> UsageError:
    """Return the error that says what has ended an import, with the plug-in's innermost line."""
    package, _, _ = module.partition(".")
    # File and number of the lines of the plug-in that were being run, the innermost last.
    lines = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__"))
        package_of_line, _, _ = name.partition(".")
        if package_of_line == package:
            lines.append((frame.f_code.co_filename, line))
    text = in_one_line(message(error))
    if isinstance(error, SyntaxError):
        # A line that cannot be compiled does not run, so no frame has it.
        text = error.msg
        if error.filename:
            lines = [(error.filename, error.lineno or 0)]
    # An error without a message leaves nothing after the colon.
    reason = f"{type(error).__name__}: {text}".removesuffix(": ")
    # Python says this of "from . import helper" in a file that is imported alone.
    if "no known parent package" in reason:
        reason = (
            "it imports relatively, so name it as a module of its package: PACKAGE.MODULE:CLASS"
        )
    if lines:
        file, line = lines[-1]
        reason += f" ({file}, line {line})"
    return UsageError(f"cannot import {subject}: {reason}")


def file_module(path: Path) -> str:
    """Return the name of the module that is made from a file."""
    origin = str(path.resolve())
    return f"milbench_file_{hashlib.sha256(origin.encode()).hexdigest()[:12]}"


def import_file(path: Path) -> ModuleType:
    """Import a file anew, with its folder first on `sys.path`, and return its module."""
    module = ModuleType(file_module(path))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        with _folder_first(path.resolve().parent):
            code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
            exec(code, vars(module))  # noqa: S102 importing a file runs its code
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def forget_modules(files: Iterable[str]) -> None:
    """Forget the modules of files, so that they are imported anew."""
    # Python keeps lists of the files in folders, which may be older than these files.
    importlib.invalidate_caches()
    forgotten = set(files)
    for modules in (sys.modules, *_modules_of_folders.values()):
        for name, module in [*modules.items()]:
            if name != "__main__" and file_of(module) in forgotten:
                del modules[name]


@contextmanager
def _folder_first(folder: Path) -> Iterator[None]:
    """Let imports in a block find the modules of a folder first.

    Two folders may both have a helper.py. So an imported module from another folder is taken out of
    `sys.modules` for the block if this folder has a file of its name. The folder stays on
    `sys.path`, since a plug-in may import from there later.
    """
    # The modules that earlier blocks have imported from this folder.
    folder_modules = _modules_of_folders.setdefault(folder, {})
    names = _importable_names(folder)
    names_put_aside = {name for name in names if _is_own_from_elsewhere(name, folder)}
    put_aside = _take_out(names_put_aside)
    sys.modules.update(folder_modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name, module in _modules_named(names).items():
            if _lies_in(folder, module):
                folder_modules[name] = module
        # The modules from other folders get their names back from the modules of this folder.
        _take_out(names_put_aside)
        sys.modules.update(put_aside)


def _importable_names(folder: Path) -> set[str]:
    """Return the names of the modules and packages in a folder."""
    modules = {path.stem for path in folder.glob("*.py")}
    # A folder of modules is a package, with or without an __init__.py.
    packages = {path.parent.name for path in folder.glob("*/*.py")}
    return modules | packages


def _take_out(tops: set[str]) -> dict[str, ModuleType]:
    """Take the modules of top-level packages out of `sys.modules` and return them by name.

    All modules of a package that have a file are taken out, even where the file lies nowhere:
    torch.ops, for example, has the `__file__` "_ops.py". Modules without a file are built in.
    """
    modules = _modules_named(tops)
    for name in modules:
        del sys.modules[name]
    return modules


def _is_own_from_elsewhere(name: str, folder: Path) -> bool:
    """Return whether the imported module of this name is the user's own, from another folder."""
    module = sys.modules.get(name)
    if module is None:
        return False
    file = _file(module)
    if not file or _lies_in(folder, module):
        return False
    return is_own_module(name, file)


def _modules_named(tops: set[str]) -> dict[str, ModuleType]:
    """Return the imported modules, by name, whose top-level packages have one of these names."""
    found = {}
    # A copy, since another thread may import something meanwhile.
    for name, module in list(sys.modules.items()):
        top, _, _ = name.partition(".")
        if top in tops and _file(module):
            found[name] = module
    return found


def _file(module: ModuleType) -> str:
    """Return the file of a module, "" if it has none.

    For a package without an __init__.py it is the first folder of the package.
    """
    file = file_of(module)
    if file:
        return file
    # `getattr` would make a lazy module import another module.
    folders = vars(module).get("__path__")
    if not folders:
        return ""
    return next(iter(folders), "")


def _lies_in(folder: Path, module: ModuleType) -> bool:
    return Path(_file(module)).resolve().is_relative_to(folder)


class _CurrentLoader(SourceFileLoader):
    """Compiles a file anew, without a look at cached bytecode.

    Python would take old bytecode if the file has the same size as then and was edited within the
    same second.
    """

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _CurrentFinder:
    """Finds modules as Python does, but compiles the user's own modules anew."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if isinstance(finder, _CurrentFinder) or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is None:
                continue
            loader = spec.loader
            if type(loader) is SourceFileLoader and is_own_module(loader.name, loader.path):
                spec.loader = _CurrentLoader(loader.name, loader.path)
            return spec
        return None


@contextmanager
def _current_code() -> Iterator[None]:
    """Compile the user's own modules anew in a block, and write no bytecode."""
    finder = _CurrentFinder()
    dont_write_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.dont_write_bytecode = dont_write_bytecode
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
