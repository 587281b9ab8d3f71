from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys

import pytest

import milbench


def test_importing_milbench_imports_no_large_library() -> None:
    code = "import milbench, sys, json; dir(milbench); milbench.UsageError; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in json.loads(ran.stdout)}
    assert "milbench" in imported
    assert not imported & {"torch", "numpy", "pandas", "mlflow", "matplotlib", "scipy", "sklearn", "pydantic", "typer"}


def test_every_public_name_is_there_and_listed() -> None:
    assert len(set(milbench.__all__)) == len(milbench.__all__)
    for name in milbench.__all__:
        assert getattr(milbench, name) is not None
        assert name in dir(milbench)


def test_any_other_name_is_missing() -> None:
    for name in ("Bag", "numpy", "does_not_exist"):
        assert not hasattr(milbench, name)
    with pytest.raises(AttributeError, match="module 'milbench' has no attribute 'Bag'"):
        milbench.Bag  # noqa: B018
    with pytest.raises(ImportError, match="Bag"):
        exec("from milbench import Bag")


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
    assert set(typed) | {"UsageError", "__version__", "load_loss", "load_task"} == set(milbench.__all__)
    for name, module in typed.items():
        assert getattr(milbench, name) is getattr(importlib.import_module(module), name)
