"""A network of the user's: from a file, a module, a function or a notebook, and where it does not suit."""

import linecache
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import UsageError, load_task
from milbench.contracts.resolver import add_object
from milbench.networks.known_networks import make_network, network_name, networks, suitable_networks

OWN = """
from torch import nn
from milbench import Network

class {cls}(Network):
    {body}

    def __init__(self, inputs: int, num_classes: int, seed: int, stride: int = 2) -> None:
        super().__init__()
        self.head = nn.Conv2d(inputs, num_classes + 1, 3, stride=stride)

    def forward(self, images):
        return self.head(images)
"""
FUNCTION = """
from milbench import AllConvolutional, Layer

def wide_one(inputs: int, num_classes: int, seed: int, width: int = 3):
    return AllConvolutional([Layer(width, 3), Layer(num_classes + 1, 1)], inputs, seed)
"""
IMAGES = torch.zeros(2, 1, 16, 17)


@pytest.fixture
def task() -> Any:
    return load_task("extended-digits")


def written(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


def test_a_network_of_a_file_has_its_name_or_that_of_its_class(tmp_path: Path, task: Any) -> None:
    file = written(
        tmp_path / "nets.py",
        OWN.format(cls="OneLayer", body="") + OWN.format(cls="B", body="name = 'two'"),
    )
    assert network_name(task, f"{file}:OneLayer") == "one-layer"
    assert network_name(task, f"{file}:B") == "two"
    network = make_network(task, task.format_from({}), "two", {"stride": 4}, seed=0)
    assert network(IMAGES).shape == (2, 11, 4, 4)
    assert network.output_shape(16, 17) == (4, 4)
    with pytest.raises(
        UsageError, match=r"unknown network in .*nets.py 'OneLayr'; did you mean 'OneLayer'"
    ):
        network_name(task, f"{file}:OneLayr")


def test_a_network_of_a_module_or_a_function(
    tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"some_module_of_{tmp_path.name}"
    written(tmp_path / f"{module}.py", FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    assert network_name(task, f"{module}:wide_one") == "wide-one"
    network = make_network(task, task.format_from({}), "wide-one", {"width": 5}, seed=0)
    assert network(IMAGES).shape == (2, 11, 14, 15)
    function = sys.modules[module].wide_one
    assert add_object(networks(), function) == f"{module}:wide_one"


def test_a_class_of_a_notebook_is_known_by_its_code(task: Any) -> None:
    for stride in (2, 4):  # the cell is run again after an edit
        cell = f"<cell {stride}>"
        text = OWN.format(cls="Noted", body="").replace("= 2", f"= {stride}")
        linecache.cache[cell] = (len(text), None, text.splitlines(keepends=True), cell)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, cell, "exec"), names)
        assert network_name(task, add_object(networks(), names["Noted"])) == "noted"
        assert make_network(task, task.format_from({}), "noted", {}, seed=0)(IMAGES).shape[2] == (
            7 if stride == 2 else 4
        )
    digest = networks().entry("noted").record.digest
    assert len(digest) == 64


def test_the_first_network_of_each_head_is_the_default(task: Any) -> None:
    assert network_name(task, "default") == suitable_networks(task)[0] == next(iter(task.networks))
    mnist = load_task("mnist")
    assert network_name(mnist, "default", "class") == next(iter(mnist.classifiers))


@pytest.mark.parametrize("name", ["conv", "resnet18"])
def test_one_s_own_network_does_not_pass_for_another(tmp_path: Path, task: Any, name: str) -> None:
    """A task's own goes first by its name, and would be trained in place of the file's."""
    file = written(tmp_path / "mine.py", OWN.format(cls="Mine", body=f"name = '{name}'"))
    with pytest.raises(
        UsageError,
        match=rf"mine.py is named '{name}', as another one of extended-digits is: rename",
    ):
        network_name(task, file)
    pooling = written(tmp_path / "pooling.py", OWN.format(cls="Mine", body="name = 'dsmil'"))
    with pytest.raises(
        UsageError, match="two network entries are named 'dsmil': one from milbench"
    ):
        network_name(task, pooling)


def test_what_makes_no_network_is_named(tmp_path: Path, task: Any) -> None:
    text = "from torch import nn\n\ndef plain(inputs, num_classes, seed):\n    return nn.Linear(inputs, 2)\n"
    name = network_name(task, written(tmp_path / "plain.py", text))
    with pytest.raises(UsageError, match=r"network 'plain' makes no milbench.Network, got Linear"):
        make_network(task, task.format_from({}), name, {}, seed=0)
