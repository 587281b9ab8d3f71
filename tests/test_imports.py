"""Importing milbench: which libraries are imported with it, and which names type checkers see."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeGuard

import milbench

LARGE = {
    "torch",
    "torchvision",
    "mlflow",
    "pandas",
    "numpy",
    "scipy",
    "sklearn",
    "matplotlib",
    "joblib",
}
"""Libraries that take long to import."""
PRINT_MODULES = "\nimport sys; sys.stdout.flush(); print(*sys.modules, file=sys.stderr)"
"""Code that prints the names of all imported modules to standard error."""


def imported(code: str, **environment: str) -> set[str]:
    """Return the modules that code has imported in a process of its own."""
    command = [sys.executable, "-c", code + PRINT_MODULES]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert ran.returncode == 0, ran.stderr
    return {*ran.stderr.split()}


def test_training_is_imported_without_the_compiler_of_torch() -> None:
    found = imported(
        "import milbench.cli.run, milbench.training.train, "
        "milbench.losses.exact, milbench.tasks.svhn"
    )
    assert "torch" in found
    assert "torch._dynamo" not in found


STORE_WITH_A_CELL = """
from pathlib import Path
from milbench.experiment.plan import Plan, TaskInfo
from milbench.experiment.questions import Questions
from milbench.store.folders import Root
from tests._helpers.cells import make_cell

root = Root(Path({folder!r})).make()
cell = make_cell()
root.save(Plan(Questions(name="mine"), [cell], {{cell.task.key: TaskInfo("set_error")}}))
root.cell(cell.id).begin(cell, "a cell", {{}})
"""
"""Code that makes a store below {folder}, with a cell whose state is read from its folder."""
RUN = """
import sys
from milbench.cli.main import app

sys.argv = {words!r}
code = app(standalone_mode=False)
assert code == {code}, code
"""
"""Code that runs a command and checks its exit code."""


def test_status_imports_no_large_library(tmp_path: Path) -> None:
    folder = str(tmp_path)
    # The exit code is 1, since the cell is not done.
    run = RUN.format(words=["milbench", "status", "--root", folder], code=1)
    found = imported(STORE_WITH_A_CELL.format(folder=folder) + run)
    assert not LARGE & found
    assert len(found) < 1000


def test_help_imports_no_large_library() -> None:
    found = imported(RUN.format(words=["milbench", "--help"], code=0))
    assert not LARGE & found
    assert len(found) < 1000


COMPLETE = """
import contextlib, io, sys
sys.argv = ["milbench"]
from milbench.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    main()
assert "reproduce" in printed.getvalue()
"""
"""Code that completes a command, which a shell asks for by environment variables."""


def test_completion_imports_no_large_library() -> None:
    completing = {
        "_MILBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": "milbench r",
        "COMP_CWORD": "1",
    }
    assert not LARGE & imported(COMPLETE, **completing)


def is_for_type_checkers(node: ast.stmt) -> TypeGuard[ast.If]:
    """Return whether a statement is `if TYPE_CHECKING:`."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Name):
        return False
    return node.test.id == "TYPE_CHECKING"


def imports_for_type_checkers() -> dict[str, str]:
    """Return the names that milbench imports for type checkers alone, each with its module."""
    source = Path(milbench.__file__).read_text("utf-8")
    (block,) = filter(is_for_type_checkers, ast.parse(source).body)
    modules: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            modules[alias.name] = node.module
    return modules


def test_type_checkers_see_every_public_name() -> None:
    imported_at_once = {"UsageError", "__version__"}
    assert imports_for_type_checkers().keys() | imported_at_once == set(milbench.__all__)


def test_type_checkers_see_public_names_where_they_come_from() -> None:
    for name, module in imports_for_type_checkers().items():
        assert getattr(milbench, name) is getattr(importlib.import_module(module), name)
