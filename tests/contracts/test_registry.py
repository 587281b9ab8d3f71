"""Registries of losses and tasks: what a name, a file or a package gives, and messages."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Literal

import pytest
import torch
from pydantic import Field

from milbench import Loss, UsageError, load_loss
from milbench.contracts import registry
from milbench.contracts.parameters import check_params
from milbench.contracts.registry import ClassRegistry, losses
from milbench.contracts.resolver import add_object, resolve
from tests._helpers.command_line import REPOSITORY

# The file of a user with a loss of their own. Tests fill in its name and head, and the name of its
# main method, which should be `bag_loss`.
OWN = """
from milbench import Loss

class Own(Loss):
    name = "{name}"
    head = "{head}"

    def {method}(self, logits, labels, mask):
        return logits.sum(dim=(1, 2))

    def scores(self, logits, mask):
        return logits[:, :-1].amax(dim=2)
"""


def loss_file(path: Path, name: str, head: str = "sigmoid", method: str = "bag_loss") -> str:
    """Write a file with the loss `OWN`, and return its path as a text, as users give it."""
    path.write_text(OWN.format(name=name, head=head, method=method), "utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def _fresh_registries() -> None:
    """Make each test begin with registries that no other test has added entries to."""
    registry.losses.cache_clear()
    registry.tasks.cache_clear()


# Prints the names of a registry, and all modules that were imported to find them.
LISTING = """
import json
import sys

from milbench.contracts.registry import {kind}

print(json.dumps({{"names": {kind}().names(), "modules": sorted(sys.modules)}}))
"""


@pytest.mark.parametrize("kind", ["losses", "tasks"])
def test_names_are_known_without_importing_their_files(kind: str) -> None:
    # Importing torch takes seconds, so a list of names must not need it. The process of the tests
    # has imported torch already, so another process is needed.
    command = [sys.executable, "-c", LISTING.format(kind=kind)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    # The folders losses/ and tasks/ are imported as milbench.losses and milbench.tasks.
    files = [path.stem for path in (REPOSITORY / kind).glob("[a-z]*.py")]
    assert len(files) > 5, "the folder is the right one"
    assert {stem.replace("_", "-") for stem in files} <= set(found["names"])
    imported = [
        name for name in found["modules"] if name.startswith((f"milbench.{kind}.", "torch"))
    ]
    assert imported == []


@pytest.mark.parametrize("name", ["", "Mine", "a,b", "x=1", "../up", "exact ", "a|b<b>c</b>"])
def test_the_name_of_a_loss_fits_into_commands_and_tables(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"the loss in .*mine\.py: a name has lower-case letters, digits and hyphens",
    ):
        load_loss(loss_file(tmp_path / "mine.py", name))


# One bag with two classes and background at four positions. The first class is in the bag.
LOGITS = torch.zeros(1, 3, 4)
LABELS = torch.tensor([[True, False]])


def test_a_head_that_is_misspelt_is_named(tmp_path: Path) -> None:
    loss = loss_file(tmp_path / "own.py", "own", head="sigmod")
    with pytest.raises(UsageError, match="unknown head of own 'sigmod'; did you mean 'sigmoid'"):
        load_loss(loss)(LOGITS, LABELS)


def test_a_method_that_is_misspelt_is_named(tmp_path: Path) -> None:
    loss = loss_file(tmp_path / "own.py", "own", method="bagloss")
    with pytest.raises(
        UsageError,
        match="own: its class Own has no method 'bag_loss'; did you mean 'bag_loss' by 'bagloss'",
    ):
        load_loss(loss)(LOGITS, LABELS)


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nowhere_to_be_found\n")
    with pytest.raises(
        UsageError, match=r"the loss file .*ModuleNotFoundError.*\(.*broken\.py, line 1\)"
    ):
        load_loss(str(broken))


def test_a_file_without_a_loss_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(
        UsageError, match=r"empty\.py holds no loss: expected a class that inherits milbench\.Loss$"
    ):
        load_loss(str(empty))


UNFINISHED = """
from milbench import Loss

class Unfinished(Loss):
    name = "unfinished"

class Helper:
    pass
"""
"""A file with a loss that lacks everything, and with a class that is no loss."""


def test_the_method_that_a_loss_lacks_is_named(tmp_path: Path) -> None:
    file = tmp_path / "unfinished.py"
    file.write_text(UNFINISHED)
    with pytest.raises(UsageError, match=r"its class Unfinished lacks the method scores$"):
        load_loss(str(file))


def test_a_member_that_is_no_loss_is_named(tmp_path: Path) -> None:
    # The file also has a loss without a fault, which the message must not mention.
    file = tmp_path / "mine.py"
    loss_file(file, "mine")
    with file.open("a") as opened:
        opened.write("\ndef helper():\n    pass\n")
    with pytest.raises(
        UsageError, match=r"holds no loss helper: expected a class that inherits milbench\.Loss$"
    ):
        load_loss(f"{file}:helper")


def test_the_nearest_file_is_proposed_for_one_that_is_missing(tmp_path: Path) -> None:
    loss_file(tmp_path / "broken.py", "own")
    with pytest.raises(
        UsageError,
        match=r"no file .*brokken\.py to load a loss from; did you mean '.*broken\.py'\?",
    ):
        load_loss(str(tmp_path / "brokken.py"))


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param("quite-another.py", id="another name"),
        pytest.param("e.py", id="a part of the name"),
        pytest.param("folder.py", id="a folder"),
    ],
)
def test_nothing_is_proposed_where_no_file_is_near(tmp_path: Path, missing: str) -> None:
    loss_file(tmp_path / "broken.py", "own")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(UsageError, match=r"no file .* to load a loss from$"):
        load_loss(str(tmp_path / missing))


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        load_loss(str(tmp_path / "nowhere" / "broken.py"))


InstallLoss = Callable[[str, str], None]


@pytest.fixture
def install_loss(monkeypatch: pytest.MonkeyPatch) -> InstallLoss:
    """Return a function that makes a loss look like one of an installed package.

    Its arguments are the name that the package gives to the loss by an entry point, and the place
    of the loss as "MODULE:CLASS".
    """

    def install(name: str, module_and_class: str) -> None:
        point = EntryPoint(name, module_and_class, "milbench.losses")
        installed = {"milbench.losses": [point]}
        monkeypatch.setattr(registry, "entry_points", lambda group: installed.get(group, []))

    return install


def test_a_loss_of_a_package_is_found(install_loss: InstallLoss) -> None:
    install_loss("elsewhere", "milbench.losses.exact:Exact")
    assert "elsewhere" in registry.losses().names()


def test_a_package_must_name_a_loss_as_its_class_does(install_loss: InstallLoss) -> None:
    # The name of this class is "exact".
    install_loss("elsewhere", "milbench.losses.exact:Exact")
    with pytest.raises(UsageError, match=r"not a Loss of that name"):
        registry.losses().get("elsewhere")


def test_a_class_is_not_taken_for_another_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install_loss: InstallLoss
) -> None:
    # Python keeps imported modules by name, so each test needs a name of its own.
    module = f"package_of_{tmp_path.name}"
    installed = OWN.format(name="installed", head="sigmoid", method="bag_loss")
    other = installed.replace("Own", "Other").replace("installed", "other")
    (tmp_path / f"{module}.py").write_text(installed + other, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    install_loss("installed", f"{module}:Own")
    classes = importlib.import_module(module)
    # The package has an entry point for the class `Own` alone. So `Own` is known by the name of its
    # entry, and `Other` by MODULE:CLASS.
    assert add_object(registry.losses(), classes.Own) == "installed"
    assert add_object(registry.losses(), classes.Other) == f"{module}:Other"


def test_two_losses_of_one_name_are_refused(install_loss: InstallLoss) -> None:
    install_loss("exact", "milbench.losses.exact:Exact")
    # A loss of milbench has this name already.
    with pytest.raises(UsageError, match="two loss entries"):
        ClassRegistry(kind="loss", plural="losses", base=lambda: Loss)


class Thing:
    """A class with a parameter of each kind."""

    def __init__(
        self,
        size: Annotated[int, Field(ge=1)],
        kind: Literal["round", "square"] = "round",
        scale: float = 1.0,
        name: str | None = None,
    ) -> None: ...


def test_parameters_that_are_not_given_have_their_defaults() -> None:
    assert check_params("thing", Thing, {"size": 2}) == {
        "size": 2,
        "kind": "round",
        "scale": 1.0,
        "name": None,
    }


@pytest.mark.parametrize(
    ("params", "message"),
    [
        pytest.param({}, "thing needs a value for 'size'", id="missing"),
        pytest.param(
            {"size": 0},
            "thing: size = 0 is wrong: Input should be greater than or equal to 1",
            id="too small",
        ),
        pytest.param({"size": "many"}, "size = 'many'", id="not a number"),
        pytest.param(
            {"size": 1, "kind": "oval"},
            "kind = 'oval' is wrong: Input should be 'round' or 'square'",
            id="none of the choices",
        ),
        pytest.param(
            {"size": 1, "scal": 2},
            "unknown parameter of thing 'scal'; did you mean 'scale'",
            id="misspelt",
        ),
    ],
)
def test_a_parameter_that_does_not_fit_its_annotation_is_named(
    params: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        check_params("thing", Thing, params)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


ENDED_IMPORTS = [
    pytest.param("import sys\n\nsys.exit(0)\n", "SystemExit: 0", id="exit"),
    pytest.param("import math\n\nmath.sqrt(-1)\n", "ValueError", id="error"),
    pytest.param("import json\n\njson.loads('{')\n", "JSONDecodeError", id="error in a library"),
    pytest.param("x = 1\n\nif x = 2:\n    pass\n", "SyntaxError: invalid syntax", id="syntax"),
]
"""Code whose import ends at its third line, and the reason."""


@pytest.mark.parametrize(("code", "reason"), ENDED_IMPORTS)
def test_a_file_ending_its_import_is_named_with_its_line(
    tmp_path: Path, code: str, reason: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code)
    with pytest.raises(UsageError) as error:
        load_loss(str(file))
    assert reason in str(error.value)
    assert str(error.value).endswith(f" ({file}, line 3)")


@pytest.mark.parametrize(("code", "reason"), ENDED_IMPORTS)
def test_a_package_ending_its_import_is_named_with_its_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    install_loss: InstallLoss,
    code: str,
    reason: str,
) -> None:
    # Python keeps imported modules by name, so each case needs a name of its own.
    file = tmp_path / f"package_of_{tmp_path.name}.py"
    file.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    install_loss("mine", f"{file.stem}:Mine")
    with pytest.raises(UsageError) as error:
        load_loss("mine")
    assert reason in str(error.value)
    assert str(error.value).endswith(f" ({file}, line 3)")


def test_ctrl_c_during_an_import_raises_keyboard_interrupt(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    file = tmp_path / "slow.py"
    lines = [
        "import pathlib",
        f"pathlib.Path({str(begun)!r}).touch()",
        "while True:",
        "    pass",
    ]
    file.write_text("\n".join(lines))

    def press_ctrl_c() -> None:
        while not begun.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        load_loss(str(file))


@pytest.fixture
def edited(tmp_path: Path) -> tuple[Path, str]:
    """Load a loss from a file, then edit the file; return the file and its digest before the edit.

    The loss has an attribute `number`, which the edit changes from 1 to 2.
    """
    file = tmp_path / "mine.py"
    loss_file(file, "mine")
    text = file.read_text("utf-8")
    file.write_text(text + "\n    number = 1\n")
    assert load_loss(str(file)).number == 1
    digest = losses().entry("mine").record.digest
    file.write_text(text + "\n    number = 2\n")
    return file, digest


def test_resolving_a_path_again_keeps_the_file_as_it_was_read(edited: tuple[Path, str]) -> None:
    # The workers of a launch find a loss in this way. They keep the code that was planned, while
    # functions that a user calls, such as `load_loss`, read edited files again.
    file, digest = edited
    assert losses().create(resolve(losses(), str(file)), {}).number == 1
    assert losses().entry("mine").record.digest == digest


def test_an_edited_file_is_read_again_by_its_path(edited: tuple[Path, str]) -> None:
    file, digest = edited
    assert load_loss(str(file)).number == 2
    assert losses().entry("mine").record.digest != digest


def test_an_edited_file_is_read_again_by_its_name(edited: tuple[Path, str]) -> None:
    _, digest = edited
    assert load_loss("mine").number == 2
    assert losses().entry("mine").record.digest != digest
