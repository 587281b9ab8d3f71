from __future__ import annotations

import ast
import importlib

import milbench


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
