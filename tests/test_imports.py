"""What importing milbench needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

IMPORT_ALL = """
import importlib, pkgutil, sys

sys.modules["fcntl"] = sys.modules["resource"] = None  # as on Windows
import milbench, milbench.losses, milbench.specs, milbench.tasks

names = set()
for package in (milbench, milbench.losses, milbench.specs, milbench.tasks):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            names.add(module.name)
print(*sorted(names))
"""
HEAVY = ("torch", "torchvision", "mlflow", "pandas", "numpy", "scipy", "sklearn", "matplotlib", "joblib")


def imported(code: str) -> set[str]:
    code += "\nimport sys; sys.stdout.flush(); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {*done.stderr.split()}


def test_every_module_is_imported_without_modules_that_only_unix_has() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"milbench._utils.locks", "milbench.engine.train", "milbench.losses.exact", "milbench.tasks.svhn"} <= set(
        done.stdout.split()
    )


def test_losses_tasks_and_training_are_imported_without_the_compiler_of_torch() -> None:
    found = imported("import milbench.cli.run, milbench.engine.train, milbench.losses.exact, milbench.tasks.svhn")
    assert "torch" in found
    assert "torch._dynamo" not in found


@pytest.mark.parametrize("words", [["status"], ["--help"]])
def test_status_and_help_import_no_large_library(words: list[str], tmp_path: Path) -> None:
    """On a store with a cell, whose state is read from its folder."""
    code = f"""
from pathlib import Path
from milbench.api.plan import Cell, Plan
from milbench.engine.folders import Root

root = Root(Path({str(tmp_path)!r})).make()
cell = Cell("exact", {{}}, "1", "set", "tiny", {{}}, "1", "data", "mlp", {{}}, "1", {{"epochs": 1}}, 0)
root.save(Plan({{"name": "mine"}}, [cell]))
root.cell(cell.id).begin(cell, "a cell", {{}})

import sys
from milbench.cli.main import app

sys.argv = ["milbench", *{words + ["--root", str(tmp_path)] * (words != ["--help"])!r}]
code = app(standalone_mode=False)
assert code == {1 if words == ["status"] else 0}, code
"""
    found = imported(code)
    assert not {name for name in HEAVY if name in found}
    assert len(found) < 1000
