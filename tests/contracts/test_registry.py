import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import pytest
import torch
from pydantic import Field

import milbench
from milbench import Loss, UsageError, load_loss
from milbench.contracts import registry
from milbench.contracts.parameters import check_params
from milbench.contracts.registry import Classes, losses
from milbench.contracts.resolver import resolve
from tests._helpers.command_line import REPOSITORY

OWN = """
from milbench import Loss

class Own(Loss):
    name, head = "{name}", "{head}"

    def {method}(self, logits, labels, mask):
        return logits.sum(dim=(1, 2))

    def scores(self, logits, mask):
        return logits[:, :-1].amax(dim=2)
"""


@pytest.fixture(autouse=True)
def _fresh_registries() -> None:
    registry.losses.cache_clear()
    registry.tasks.cache_clear()


@pytest.mark.parametrize("kind", ["losses", "tasks"])
def test_names_are_those_of_the_files_and_known_without_importing_them(kind: str) -> None:
    code = (
        f"import json, sys; from milbench.contracts.registry import {kind}; "
        f"print(json.dumps([{kind}().names(), sorted(sys.modules)]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, modules = json.loads(ran.stdout)
    files = [path.stem for path in (REPOSITORY / kind).glob("[a-z]*.py")]
    assert len(files) > 5
    assert {stem.replace("_", "-") for stem in files} <= set(names)
    assert not any(module.startswith((f"milbench.{kind}.", "torch")) for module in modules)


@pytest.mark.parametrize("name", ["", "Mine", "a,b", "x=1", "../up", "exact ", "a|b<b>c</b>"])
def test_a_loss_of_a_file_has_a_name_that_fits_into_commands_and_tables(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN.format(name=name, head="sigmoid", method="bag_loss"), "utf-8")
    with pytest.raises(
        UsageError,
        match=r"the loss in .*mine\.py: a name has lower-case letters, digits and hyphens",
    ):
        load_loss(str(path))


def test_a_head_or_a_method_that_is_misspelt_is_named(tmp_path: Path) -> None:
    logits, labels = torch.zeros(1, 3, 4), torch.tensor([[True, False]])
    for change, complaint in (
        ({"head": "sigmod"}, "unknown head of own-a 'sigmod'; did you mean 'sigmoid'"),
        (
            {"method": "bagloss"},
            "own-b: its class Own has no method 'bag_loss'; did you mean 'bag_loss' by 'bagloss'",
        ),
    ):
        name = "own-a" if "head" in change else "own-b"
        path = tmp_path / f"{name}.py"
        path.write_text(
            OWN.format(**{"name": name, "head": "sigmoid", "method": "bag_loss", **change}), "utf-8"
        )
        with pytest.raises(UsageError, match=complaint):
            load_loss(str(path))(logits, labels)


def test_files_that_hold_no_loss(tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.py", tmp_path / "empty.py"
    broken.write_text("import nowhere_to_be_found\n")
    empty.write_text("x = 1\n")
    with pytest.raises(
        UsageError, match=r"the loss file .*ModuleNotFoundError.*\(.*broken\.py, line 1\)"
    ):
        milbench.load_loss(str(broken))
    with pytest.raises(
        UsageError, match=r"empty\.py holds no loss: expected a class that inherits milbench\.Loss$"
    ):
        milbench.load_loss(str(empty))
    with pytest.raises(
        UsageError,
        match=r"no file .*brokken\.py to load a loss from; did you mean '.*broken\.py'\?",
    ):
        milbench.load_loss(str(tmp_path / "brokken.py"))
    (tmp_path / "folder.py").mkdir()
    for missing in ("quite-another.py", "e.py", "folder.py"):
        with pytest.raises(UsageError, match=r"no file .* to load a loss from$"):
            milbench.load_loss(str(tmp_path / missing))
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        milbench.load_loss(str(tmp_path / "nowhere" / "broken.py"))


def test_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("elsewhere", "milbench.losses.exact:Exact", "milbench.losses")
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [point] if group == "milbench.losses" else []
    )
    available = registry.losses()
    assert "elsewhere" in available.names()
    with pytest.raises(UsageError, match=r"not a Loss of that name"):
        available.get("elsewhere")  # the class calls itself exact
    clash = EntryPoint("exact", "milbench.losses.exact:Exact", "milbench.losses")
    monkeypatch.setattr(registry, "entry_points", lambda group: [clash])
    with pytest.raises(UsageError, match="two loss entries"):
        Classes("loss", "losses", lambda: Loss)


class Thing:
    def __init__(
        self,
        size: Annotated[int, Field(ge=1)],
        kind: Literal["round", "square"] = "round",
        scale: float = 1.0,
        name: str | None = None,
    ) -> None: ...


def test_parameters_are_checked_against_annotations() -> None:
    assert check_params("thing", Thing, {"size": 2}) == {
        "size": 2,
        "kind": "round",
        "scale": 1.0,
        "name": None,
    }
    for params, message in (
        ({}, "thing needs a value for 'size'"),
        ({"size": 0}, "thing: size = 0 is wrong: Input should be greater than or equal to 1"),
        ({"size": "many"}, "size = 'many'"),
        (
            {"size": 1, "kind": "oval"},
            "kind = 'oval' is wrong: Input should be 'round' or 'square'",
        ),
        ({"size": 1, "scal": 2}, "unknown parameter of thing 'scal'; did you mean 'scale'"),
    ):
        with pytest.raises(UsageError) as error:
            check_params("thing", Thing, params)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("code", "reason"), [
    ("import sys\n\nsys.exit(0)\n", "SystemExit: 0"),
    ("import math\n\nmath.sqrt(-1)\n", "ValueError"),
    ("import json\n\njson.loads('{')\n", "JSONDecodeError"),
    ("x = 1\n\nif x = 2:\n    pass\n", "SyntaxError: invalid syntax"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["file", "package"])
def test_whatever_ends_an_import_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str, kind: str
) -> None:
    from importlib.metadata import EntryPoint

    file = tmp_path / f"plug_in_of_{tmp_path.name}.py"
    file.write_text(code)
    name = str(file)
    if kind == "package":
        monkeypatch.syspath_prepend(tmp_path)
        name = "mine"
        point = EntryPoint(name, f"{file.stem}:Mine", "milbench.losses")
        monkeypatch.setattr(
            registry, "entry_points", lambda group: [point] if group == "milbench.losses" else []
        )
    with pytest.raises(UsageError) as error:
        milbench.load_loss(name)
    assert reason in str(error.value)
    assert str(error.value).endswith(f" ({file}, line 3)")


def test_an_interrupt_of_the_user_during_an_import_stays_one(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    file = tmp_path / "slow.py"
    file.write_text(
        f"import pathlib\npathlib.Path({str(begun)!r}).touch()\nwhile True:\n    pass\n"
    )

    def press_ctrl_c() -> None:
        while not begun.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        milbench.load_loss(str(file))


def test_an_edited_file_is_read_anew_where_a_user_asks_for_it_and_not_in_a_launch(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    text = OWN.format(name="mine", head="sigmoid", method="bag_loss") + "\n    number = 1\n"
    file.write_text(text)
    assert load_loss(str(file)).number == 1
    before = losses().entry("mine").record.digest
    file.write_text(text.replace("number = 1", "number = 2"))
    assert losses().create(resolve(losses(), str(file)), {}).number == 1
    assert losses().entry("mine").record.digest == before
    assert load_loss(str(file)).number == 2
    assert losses().entry("mine").record.digest != before
    file.write_text(text.replace("number = 1", "number = 3"))
    assert load_loss("mine").number == 3
