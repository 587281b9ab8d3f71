"""The record of a class in a notebook: its digest depends on its code and on all that this uses."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from milbench import Loss
from milbench.plugins.record import ImportRecord
from milbench.plugins.session import record_session_object
from tests._helpers.command_line import REPOSITORY
from tests._helpers.project import Project, loss_text

BASE = loss_text(factor="2", name="base").replace("Mine", "Base")
DERIVED = "class Mine(Base):\n    name = 'mine'\n"
CONFIG = "class Config:\n    def __init__(self, k):\n        self.k = k\n"
DECORATOR = """
import functools
def scaled(method):
    @functools.wraps(method)
    def call(self):
        return 1 * method(self)
    return call
"""


def record_of(*cells: str) -> ImportRecord:
    """Return the record of the class Mine, which the cells of a notebook define without a file."""
    names: dict[str, Any] = {"__name__": "a_notebook"}
    for number, text in enumerate(cells):
        exec(compile(text, f"<cell {number}>", "exec"), names)
    return record_session_object(names["Mine"])


@pytest.mark.parametrize(
    ("cells", "old", "new"),
    [
        pytest.param([loss_text(factor="2")], "return 2", "return 3", id="method"),
        pytest.param(["SIGN = 1.0", loss_text(factor="SIGN")], "1.0", "-1.0", id="constant"),
        pytest.param(
            ["K = {'a': [1, (2, 3)]}", loss_text(factor="K['a'][0]")], "3", "4", id="container"
        ),
        pytest.param(
            [
                "def deep():\n    return 1\n",
                "def sign():\n    return deep()\n",
                loss_text(factor="sign()"),
            ],
            "return 1",
            "return -1",
            id="function of a function",
        ),
        pytest.param(
            ["K = 1", "sign = lambda: K", loss_text(factor="sign()")], "K = 1", "K = 2", id="lambda"
        ),
        pytest.param([BASE, DERIVED], "return 2", "return 3", id="base"),
        pytest.param([BASE, f"{DERIVED}    scale = 1\n"], "scale = 1", "scale = 2", id="attribute"),
        pytest.param(
            ["K = 2", BASE.replace("return 2", "return K"), DERIVED],
            "K = 2",
            "K = 3",
            id="constant of the base",
        ),
        pytest.param(
            ["def make(k):\n    return lambda: k\n", "s = make(1)", loss_text(factor="s()")],
            "make(1)",
            "make(2)",
            id="closure",
        ),
        pytest.param(
            [loss_text(), "Mine.factor = lambda self: 2"], "self: 2", "self: 3", id="set later"
        ),
        pytest.param(
            [DECORATOR, loss_text().replace("    def factor", "    @scaled\n    def factor")],
            "return 1 *",
            "return 2 *",
            id="decorator",
        ),
        pytest.param(
            ["import torch\nW = torch.ones(2)", loss_text(factor="W")],
            "ones(2)",
            "zeros(2)",
            id="tensor",
        ),
        pytest.param(
            [CONFIG, "C = Config(1)", loss_text(factor="C.k")],
            "Config(1)",
            "Config(2)",
            id="object",
        ),
        pytest.param(
            ["def factor(k=1):\n    return k\n", loss_text(factor="factor()")],
            "k=1",
            "k=2",
            id="default",
        ),
    ],
)
def test_an_edit_of_what_the_class_reaches_changes_the_digest(
    cells: list[str], old: str, new: str
) -> None:
    assert old in "".join(cells)
    changed = [cell.replace(old, new, 1) for cell in cells]
    assert record_of(*cells).digest != record_of(*changed).digest


@pytest.mark.parametrize(
    "added",
    [
        pytest.param("unused = object()", id="unused"),
        pytest.param("factor = 7", id="global named like a method"),
        pytest.param("# a remark\n", id="comment"),
        pytest.param("import os", id="import"),
    ],
)
def test_an_edit_of_what_it_does_not_reach_changes_nothing(added: str) -> None:
    cells = ["K = 1", loss_text(factor="K")]
    assert record_of(added, *cells).digest == record_of(*cells).digest


def test_a_comment_in_the_class_changes_nothing() -> None:
    with_comment = loss_text().replace("    def factor", "    # says why\n    def factor")
    assert record_of(with_comment).digest == record_of(loss_text()).digest


def test_a_class_of_milbench_that_moves_to_another_module_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = ["from milbench import Loss", "class Mine(Loss):\n    name = 'mine'\n"]
    before = record_of(*cells).digest
    moved = ModuleType("milbench.another_room")
    monkeypatch.setattr(moved, "Loss", Loss, raising=False)
    monkeypatch.setitem(sys.modules, moved.__name__, moved)
    monkeypatch.setattr(Loss, "__module__", moved.__name__)
    assert record_of(*cells).digest == before


def test_editing_a_module_that_it_uses_changes_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    project = Project(tmp_path)
    project.write("used_helper.py", "import deeper_helper\ndef sign(): return deeper_helper.K\n")
    deeper = project.write("deeper_helper.py", "K = 1\n")
    cells = ["from used_helper import sign", loss_text(factor="sign()")]
    before = record_of(*cells)
    assert str(deeper) in before.files
    project.write("deeper_helper.py", "K = 2\n")
    assert record_of(*cells).digest != before.digest


def test_another_process_finds_the_same_digest() -> None:
    # Python's order of the elements of a set depends on the seed of its hashes.
    cells = ["K = {'a', 'b', 'c'}", "C = frozenset('xyz')", loss_text(factor="K | C | {'p', 'q'}")]
    first = digest_in_process(cells, hash_seed="1")
    second = digest_in_process(cells, hash_seed="2")
    assert first == second


def digest_in_process(cells: list[str], hash_seed: str) -> str:
    """Return the digest of the class Mine from a new process with this seed of hashes."""
    code = (
        f"from tests.plugins.test_session import record_of\nprint(record_of(*{cells!r}).digest)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": hash_seed, "HOME": str(Path.home())},
        cwd=REPOSITORY,
    )
    return done.stdout
