"""What SECURITY.md says about reading data: nothing is unpickled but by readers that build arrays and tensors alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests._helpers.command_line import REPOSITORY

INSTALLED = sorted(path for folder in ("milbench", "losses", "tasks") for path in (REPOSITORY / folder).rglob("*.py"))
UNPICKLERS = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
"""Modules that turn bytes into objects of any class."""
KNOWN = {
    "milbench/data/cifar10.py": "an unpickler that knows arrays alone, which tests/tasks/test_cifar10.py attacks",
    "milbench/testing/task.py": "what it unpickles it has pickled itself, one line before",
}
"""Files that import one of these modules, and why they may."""
NEVER = {
    "eval", "exec", "joblib.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.jit.load",
    "torch.hub.load", "torch.package.PackageImporter", "pandas.read_pickle", "pandas.read_hdf",
}  # fmt: skip
ONLY_WITH = {
    "torch.load": ("weights_only", True),
    "torch.hub.load_state_dict_from_url": ("weights_only", True),
    "numpy.load": ("allow_pickle", False),
}
"""Functions that may be called with this argument, written out, and not be named without a call."""


def offences(source: str) -> Iterator[str]:
    """Yield what a source does that would unpickle or evaluate what it reads."""
    tree = ast.parse(source)
    full = dict(_imported(tree))
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        name = _dotted(node, full)
        if name in NEVER:
            yield f"line {node.lineno}: {name}"
        if name in ONLY_WITH:
            argument, value = ONLY_WITH[name]
            given = [k.value for k in called[id(node)].keywords if k.arg == argument] if id(node) in called else []
            if not (given and isinstance(given[0], ast.Constant) and given[0].value is value):
                yield f"line {node.lineno}: {name} without {argument}={value}"
    yield from (f"imports {module}" for module in sorted({name.split(".")[0] for name in full.values()} & UNPICKLERS))


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, with the full name of what it then is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _dotted(node: ast.expr, full: dict[str, str]) -> str:
    """Return the full name of an expression such as np.load; "" for any other expression."""
    if isinstance(node, ast.Name):
        return full.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value, full)):
        return f"{before}.{node.attr}"
    return ""


def test_nothing_that_is_installed_unpickles_or_evaluates_what_it_reads() -> None:
    found = {path.relative_to(REPOSITORY).as_posix(): [*offences(path.read_text("utf-8"))] for path in INSTALLED}
    assert {path: said for path, said in found.items() if said} == {path: ["imports pickle"] for path in KNOWN}


def test_the_tree_reads_tensors_and_arrays_with_what_is_looked_for() -> None:
    text = "".join(path.read_text("utf-8") for path in INSTALLED)
    assert text.count("torch.load(") >= 3
    assert text.count("np.load(") >= 5, "else the test above looks at names that nothing has"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(path)",
        "import torch\ntorch.load(path, weights_only=False)",
        "from torch import load as read\nread(path)",
        "import torch\nread = torch.load",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import numpy as np\nnp.load(path, allow_pickle=chosen)",
        "def f():\n    from joblib import load\n    return load(path)",
        "import pandas as pd\npd.read_pickle(path)",
        "import pickle as p\np.loads(content)",
        "from pickle import Unpickler\nclass Mine(Unpickler): pass",
        "import yaml\nyaml.load(text, yaml.Loader)",
        "eval(text)",
    ],
)  # fmt: skip
def test_each_way_to_unpickle_is_seen(source: str) -> None:
    assert [*offences(source)]
