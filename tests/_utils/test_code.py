"""The id of a plug-in changes with every module of the user's own that it depends on, and says what it cannot know."""

import importlib
import linecache
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milbench import Loss
from milbench.api.registry import Classes, losses
from milbench.api.resolver import add_object, read_edited, resolve
from milbench.engine.parts import check_unchanged
from milbench.engine.worker import register
from milbench.errors import UsageError
from tests._helpers.command_line import SMALL, TINY, Milbench
from tests._helpers.training import small_cell

LOSS = """
from milbench import Loss

class Mine(Loss):
    name, head = "mine", "sigmoid"

    def bag_loss(self, logits, labels, mask):
        {inside}
        return self.factor() * logits.sum(dim=(1, 2))

    def factor(self):
        return {factor}

    def scores(self, logits, mask):
        return logits[:, :-1].amax(dim=2)
"""


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def loss(before: str = "", inside: str = "pass", factor: str = "1") -> str:
    return before + LOSS.format(inside=inside, factor=factor)


def digest_of(folder: Path) -> str:
    losses().entries.pop("mine", None)
    return losses().entry(resolve(losses(), str(folder / "mine.py"))).code.digest


BASE = loss(factor="2").replace("Mine", "Base").replace('"mine"', '"base"')
DERIVED = "class Mine(Base):\n    name = 'mine'\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if str(tmp_path) in str(module):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("given", "files", "edited"),
    [
        ("mine.py", {"mine.py": loss("from helper import SIGN", factor="SIGN")}, "helper.py"),
        ("mine.py", {"mine.py": loss(inside="import helper")}, "helper.py"),
        ("mine.py", {"mine.py": loss("import one"), "one.py": "import two", "two.py": "import helper"}, "helper.py"),
        ("mine.py", {"mine.py": loss("from lab import part"), "lab/__init__.py": "", "lab/part.py": ""}, "lab/part.py"),
        ("mine.py", {"mine.py": loss("import lab.part"), "lab/__init__.py": "", "lab/part.py": ""}, "lab/__init__.py"),
        ("mine.py", {"mine.py": loss("import space.part"), "space/part.py": ""}, "space/part.py"),
        ("mine.py:Mine", {"mine.py": f"from helper import Base\n{DERIVED}", "helper.py": BASE}, "helper.py"),
        ("lab.loss", {"lab/__init__.py": "", "lab/loss.py": f"from .base import Base\n{DERIVED}", "lab/deep/er.py": "",
                      "lab/base.py": f"from .deep import er\n{BASE}"}, "lab/deep/er.py"),
        ("lab:Mine", {"lab/__init__.py": "from lab.loss import Mine", "lab/loss.py": loss()}, "lab/loss.py"),
    ],
)  # fmt: skip
def test_an_edit_of_what_it_imports_gives_another_id(
    folder: Path, given: str, files: dict[str, str], edited: str
) -> None:
    written(folder, {"helper.py": "SIGN = 1.0\n", "stranger.py": ""} | files)
    given = str(folder / given) if given.startswith("mine") else given
    digests = []
    for name, text in (
        ("", ""),
        ("stranger.py", "x = 1"),
        (edited, "\nSIGN = -1.0\n"),
        (edited, "# a remark\n"),
    ):
        if name:
            with (folder / name).open("a") as file:
                file.write(text)
        read_edited()
        digests.append(losses().entry(resolve(losses(), given)).code.digest)
    assert digests[0] == digests[1] != digests[2] != digests[3]
    assert not losses().entry("mine").code.untraced


def factor_of(given: str) -> Any:
    mine: Any = losses().create(resolve(losses(), given), {})
    return mine.factor()


@pytest.mark.parametrize("given", ["file", "class"])
def test_what_is_read_again_computes_with_the_edited_code(folder: Path, given: str) -> None:
    """A class of a module is what the module holds now."""
    written(
        folder, {"helper.py": "SIGN = 1", "lab.py": loss("from helper import SIGN", factor="SIGN")}
    )
    mine = importlib.import_module("lab").Mine
    for sign in (1, -1):
        written(folder, {"helper.py": f"SIGN = {sign}"})
        read_edited()
        assert (
            factor_of(str(folder / "lab.py") if given == "file" else add_object(losses(), mine))
            == sign
        )


def test_each_of_two_files_has_the_helper_beside_it(folder: Path) -> None:
    text = (
        "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nfrom helper import SIGN\n"
    )
    for name in ("first", "second"):
        mine = loss(text, factor="SIGN").replace('"mine"', f'"{name}"')
        written(folder / name, {"helper.py": f"SIGN = '{name}'", "mine.py": mine})
        assert factor_of(str(folder / name / "mine.py")) == name
    assert losses().entry("first").code.digest != losses().entry("second").code.digest


@pytest.mark.parametrize("name", ["dist", "dist-of-somebody"])
def test_an_installed_package_counts_by_its_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    site = "site-packages"
    monkeypatch.syspath_prepend(folder / site)
    written(
        folder,
        {"mine.py": loss("import dist"), f"{site}/dist-1.dist-info/RECORD": "dist/__init__.py,,\n"},
    )
    digests = []
    for version, text in (("1.0", ""), ("1.0", "x = 1"), ("1.1", "x = 1")):
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        written(
            folder, {f"{site}/dist-1.dist-info/METADATA": about, f"{site}/dist/__init__.py": text}
        )
        digests.append(digest_of(folder))
    assert digests[0] == digests[1] != digests[2]


def test_an_entry_point_of_an_editable_package_counts_by_its_files_too(folder: Path) -> None:
    about = {"METADATA": "Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n",
             "entry_points.txt": "[milbench.losses]\nmine = lab.loss:Mine\n"}  # fmt: skip
    written(folder, {f"lab-1.0.dist-info/{name}": text for name, text in about.items()})
    written(
        folder,
        {
            "lab/__init__.py": "",
            "lab/loss.py": loss("from .part import K", factor="K"),
            "lab/part.py": "",
        },
    )
    found = Classes("loss", "losses", lambda: Loss)
    digests = []
    for k in (1, 2):
        written(folder, {"lab/part.py": f"K = {k}"})
        read_edited()
        mine: Any = found.create("mine", {})
        assert mine.factor() == k
        digests.append(found.entry("mine").code.digest)
    assert digests[0].startswith(" of lab 1.0 ")
    assert digests[0] != digests[1]


@pytest.mark.parametrize(("text", "says"), [
    (loss("import importlib\nname = 'helper'\nimportlib.import_module(name)"), "mine.py, line 3: a module is impo"),
    (loss("exec('import helper')"), "mine.py, line 1: exec runs what no import names"),
    (loss("SIGN = open(__file__).read()"), "mine.py, line 1: open reads a file when it is imported"),
    (loss(inside="from nowhere import x"), "line 8: the source of nowhere cannot be found"),
    (loss("try:\n    import cupyy\nexcept ImportError:\n    cupyy = None\n"), ""),
    (loss("import torch\nimport numpy as np\nimport collections.abc, os.path"), ""),
])  # fmt: skip
def test_what_cannot_be_found_out_is_said(folder: Path, text: str, says: str) -> None:
    written(folder, {"mine.py": text, "helper.py": ""})
    untraced = losses().entry(resolve(losses(), str(folder / "mine.py"))).code.untraced
    assert says in "; ".join(untraced)
    assert len(untraced) == bool(says)


def notebook(*cells: str) -> Any:
    """Return the class Mine of the cells of a notebook, whose names are of no file."""
    names: dict[str, Any] = {"__name__": "a_notebook"}
    for text in cells:
        file = f"<cell {len(linecache.cache)}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        exec(compile(text, file, "exec"), names)
    return names["Mine"]


@pytest.mark.parametrize(
    ("cells", "old", "new"),
    [
        (["SIGN = 1.0", loss(factor="SIGN")], "1.0", "-1.0"),
        (["SIGN = {'a': [1, (2, 3)]}", loss(factor="SIGN['a'][0]")], "3", "4"),
        (["def deep():\n    return 1\n", "def sign():\n    return deep()\n", loss(factor="sign()")], "1", "-1"),
        (["K = 1", "sign = lambda: K", loss(factor="sign()")], "= 1", "= 2"),
        ([BASE, DERIVED], "return 2", "return 3"),
        ([BASE, f"{DERIVED}    scale = 1\n"], "scale = 1", "scale = 2"),
        (["K = 2", BASE.replace("return 2", "return K"), DERIVED], "K = 2", "K = 3"),
        (["def make(k):\n    def sign():\n        return k\n    return sign\n", "s = make(1)", loss(factor="s()")],
         "make(1)", "make(2)"),
        ([loss(), "Mine.factor = lambda self: 2"], "self: 2", "self: 3"),
        ([loss(factor="2"), "class Mine(Mine):\n    def other(self): return 1\n"], "return 2", "return 3"),
        (["from helper import sign", loss(factor="sign()")], "", ""),
        ([loss(inside="import helper", factor="1")], "", ""),
    ],
)  # fmt: skip
def test_a_class_of_a_notebook_has_the_globals_that_it_uses(
    folder: Path, cells: list[str], old: str, new: str
) -> None:
    written(
        folder, {"helper.py": "import deeper\ndef sign(): return deeper.K\n", "deeper.py": "K = 1"}
    )
    entries, changed = [], [cell.replace(old, new, 1) if old in cell else cell for cell in cells]
    for defined in (cells, ["unused = object()", *cells], changed):
        if defined is changed and not old:
            written(folder, {"deeper.py": "K = 2"})
        assert add_object(losses(), notebook(*defined)) == "mine"
        entries.append(losses().entry("mine"))
    assert entries[0].code.digest == entries[1].code.digest != entries[2].code.digest
    assert not any(entry.code.untraced for entry in entries)


@pytest.mark.parametrize("value", ["torch.ones(2)", "object()"])
def test_a_global_without_source_is_said(value: str) -> None:
    add_object(losses(), notebook(f"import torch\nWEIGHTS = {value}", loss(factor="WEIGHTS")))
    (untraced,) = losses().entry("mine").code.untraced
    assert "the value of WEIGHTS" in untraced


def test_a_helper_edited_after_planning_is_not_computed_under_the_old_id(folder: Path) -> None:
    written(
        folder, {"helper.py": "SIGN = 1", "mine.py": loss("from helper import SIGN", factor="SIGN")}
    )
    cell = small_cell(str(folder / "mine.py"))
    check_unchanged(cell)
    written(folder, {"helper.py": "SIGN = -1"})
    read_edited()  # a worker has not imported it before
    with pytest.raises(
        UsageError, match=r"mine\.py was changed after the cell was planned, or what it imports"
    ):
        check_unchanged(cell)


def test_a_class_of_a_notebook_is_computed_by_the_code_that_was_planned_with(folder: Path) -> None:
    written(folder, {"helper.py": "SIGN = 1"})
    mine = notebook("import helper", loss(factor="helper.SIGN"))
    cell = small_cell(add_object(losses(), mine))
    code = losses().entry("mine").code
    register([("loss", mine, code)])  # in a worker
    check_unchanged(cell)
    written(folder, {"helper.py": "SIGN = -1"})
    with pytest.raises(
        UsageError, match="mine was changed after the cell was planned, or what it imports"
    ):
        check_unchanged(cell)
    add_object(
        losses(), notebook(loss(factor="2"))
    )  # and a trained cell is not loaded by a class defined anew
    with pytest.raises(UsageError, match="mine was changed after the cell was planned"):
        check_unchanged(cell)


def test_a_run_after_an_edit_of_a_helper_computes_the_cell_again(
    folder: Path, milbench: Milbench, root: Path
) -> None:
    import_by = "import importlib\nname = 'unnamed'\ntry: importlib.import_module(name)\nexcept ImportError: pass\n"
    written(
        folder,
        {
            "helper.py": "SIGN = 1",
            "mine.py": loss(f"{import_by}import helper", factor="helper.SIGN"),
        },
    )
    words = (
        "run",
        "--loss",
        str(folder / "mine.py"),
        "--task",
        TINY,
        *SMALL,
        "-p",
        "run.in_process=true",
    )
    assert "1 cell, 1 to run" in milbench(*words).out
    again = milbench(*words).out
    assert "1 cell, 0 to run" in again
    assert "loss mine depends on may go unnoticed: mine.py, line 3: a module is" in " ".join(
        again.split()
    )
    written(folder, {"helper.py": "SIGN = 2"})
    assert "1 cell, 1 to run" in milbench(*words).out
    assert len(list((root / "runs" / "cells").glob("*/result.json"))) == 2


def test_ids_of_other_processes_are_the_same(folder: Path) -> None:
    written(
        folder, {"helper.py": "SIGN = 1", "mine.py": loss("from helper import SIGN", factor="SIGN")}
    )
    code = """
import sys
from milbench.api.registry import losses
from milbench.api.resolver import resolve
sys.path.insert(0, sys.argv[1])
print(losses().entry(resolve(losses(), sys.argv[1] + '/mine.py')).code.digest)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == digest_of(folder)
