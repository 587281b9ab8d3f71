"""What importing milbench needs."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import milbench

HEAVY = (
    "torch",
    "torchvision",
    "mlflow",
    "pandas",
    "numpy",
    "scipy",
    "sklearn",
    "matplotlib",
    "joblib",
)


def imported(code: str, **environment: str) -> set[str]:
    code += "\nimport sys; sys.stdout.flush(); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return {*done.stderr.split()}


def test_training_is_imported_without_the_compiler_of_torch() -> None:
    found = imported(
        "import milbench.cli.run, milbench.training.train, milbench.losses.exact, milbench.tasks.svhn"
    )
    assert "torch" in found
    assert "torch._dynamo" not in found


@pytest.mark.parametrize("words", [["status"], ["--help"]])
def test_status_and_help_import_no_large_library(words: list[str], tmp_path: Path) -> None:
    """On a store with a cell, whose state is read from its folder."""
    code = f"""
from pathlib import Path
from milbench.experiment.plan import Plan, TaskInfo
from milbench.experiment.questions import Questions
from milbench.store.folders import Root
from tests._helpers.cells import make_cell

root = Root(Path({str(tmp_path)!r})).make()
cell = make_cell()
root.save(Plan(Questions(name="mine"), [cell], {{cell.task.key: TaskInfo("set_error")}}))
root.cell(cell.id).begin(cell, "a cell", {{}})

import sys
from milbench.cli.main import app

sys.argv = ["milbench", *{words + ["--root", str(tmp_path)] * (words != ["--help"])!r}]
code = app(standalone_mode=False)
assert code == {1 if words == ["status"] else 0}, code
"""
    found = imported(code)
    assert not {*HEAVY} & found
    assert len(found) < 1000


def test_completion_imports_nothing_heavy() -> None:
    code = """
import contextlib, io, sys
sys.argv = ["milbench"]
from milbench.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    main()
assert "reproduce" in printed.getvalue()
"""
    completing = {
        "_MILBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": "milbench r",
        "COMP_CWORD": "1",
    }
    assert not {*HEAVY} & imported(code, **completing)


def test_type_checkers_see_the_public_names_where_they_come_from() -> None:
    source = importlib.util.find_spec("milbench").loader.get_source("milbench")  # type: ignore[union-attr]
    blocks = [
        node for node in ast.parse(source).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]  # fmt: skip
    imports = [node for block in blocks for node in block.body]
    typed: dict[str, str] = {}
    for node in imports:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        typed |= {alias.name: node.module for alias in node.names}
    assert set(typed) | {"UsageError", "__version__", "load_loss", "load_task"} == set(
        milbench.__all__
    )
    for name, module in typed.items():
        assert getattr(milbench, name) is getattr(importlib.import_module(module), name)
