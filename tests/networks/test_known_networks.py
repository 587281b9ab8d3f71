"""A user's own network, from a file, a module, a function or a notebook, and its name."""

import linecache
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Network, UsageError, load_task
from milbench.contracts.resolver import add_object
from milbench.networks.known_networks import make_network, network_name, networks, suitable_networks

IMAGES = torch.zeros(2, 1, 16, 17)


def network_code(class_name: str, attribute: str = "", *, stride: int = 2) -> str:
    """Return the code of a network of one layer; `attribute` is a line in its class."""
    return f"""
from torch import nn
from milbench import Network

class {class_name}(Network):
    {attribute}

    def __init__(self, inputs: int, num_classes: int, seed: int, stride: int = {stride}) -> None:
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
NO_NETWORK = """
from torch import nn

def plain(inputs, num_classes, seed):
    return nn.Linear(inputs, 2)
"""


@pytest.fixture
def task() -> Any:
    return load_task("extended-digits")


def written(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


def made(task: Any, name: str, **params: Any) -> Network:
    return make_network(task, task.format_from({}), name, params, seed=0)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of a file with two networks; the second has a `name` of its own."""
    one_layer = network_code("OneLayer")
    second = network_code("B", "name = 'two'")
    return written(tmp_path / "nets.py", one_layer + second)


def test_a_network_of_a_file_has_the_name_of_its_class(file: str, task: Any) -> None:
    assert network_name(task, f"{file}:OneLayer") == "one-layer"


def test_a_network_of_a_file_may_name_itself(file: str, task: Any) -> None:
    assert network_name(task, f"{file}:B") == "two"


def test_a_network_of_a_file_is_made_with_its_parameters(file: str, task: Any) -> None:
    network = made(task, network_name(task, f"{file}:B"), stride=4)
    assert network(IMAGES).shape == (2, 11, 4, 4)
    assert network.output_shape(16, 17) == (4, 4)


def test_a_misspelt_network_of_a_file_is_named(file: str, task: Any) -> None:
    complaint = r"unknown network in .*nets.py 'OneLayr'; did you mean 'OneLayer'"
    with pytest.raises(UsageError, match=complaint):
        network_name(task, f"{file}:OneLayr")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that can be imported, with a function that makes a network."""
    name = f"some_module_of_{tmp_path.name}"
    written(tmp_path / f"{name}.py", FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_function_of_a_module_makes_a_network(module: str, task: Any) -> None:
    name = network_name(task, f"{module}:wide_one")
    assert name == "wide-one"
    assert made(task, name, width=5)(IMAGES).shape == (2, 11, 14, 15)


def test_a_function_is_known_by_its_module(module: str, task: Any) -> None:
    network_name(task, f"{module}:wide_one")
    function = sys.modules[module].wide_one
    assert add_object(networks(), function) == f"{module}:wide_one"


def run_in_notebook(code: str, number: int) -> dict[str, Any]:
    """Run a cell of a notebook as IPython does, and return the names that it defines."""
    cell = f"<cell {number}>"
    # A cell has no file, so Python looks its code up in this cache.
    linecache.cache[cell] = (len(code), None, code.splitlines(keepends=True), cell)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, cell, "exec"), names)
    return names


def test_a_class_of_a_notebook_is_the_one_that_ran_last(task: Any) -> None:
    # With stride 2 there are (16 - 3) // 2 + 1 rows. After an edit of the cell the stride is 4, and
    # there are (16 - 3) // 4 + 1.
    for number, (stride, rows) in enumerate([(2, 7), (4, 4)]):
        names = run_in_notebook(network_code("Noted", stride=stride), number)
        name = network_name(task, add_object(networks(), names["Noted"]))
        assert name == "noted"
        assert made(task, name)(IMAGES).shape[2] == rows


def test_a_class_of_a_notebook_is_known_by_its_code(task: Any) -> None:
    names = run_in_notebook(network_code("Noted"), 1)
    network_name(task, add_object(networks(), names["Noted"]))
    digest = networks().entry("noted").record.digest
    assert len(digest) == 64


def test_the_first_network_of_a_task_is_the_default(task: Any) -> None:
    first = next(iter(task.networks))
    assert network_name(task, "default") == first
    assert suitable_networks(task)[0] == first


def test_the_first_classifier_of_a_task_is_the_default() -> None:
    mnist = load_task("mnist")
    assert network_name(mnist, "default", "class") == next(iter(mnist.classifiers))


@pytest.mark.parametrize("name", ["conv", "resnet18"])
def test_a_network_of_a_file_has_no_name_of_the_task_s(
    tmp_path: Path, task: Any, name: str
) -> None:
    """By such a name, the network of the task or of torchvision would be trained instead."""
    file = written(tmp_path / "mine.py", network_code("Mine", f"name = '{name}'"))
    complaint = rf"mine.py is named '{name}', as another one of extended-digits is: rename"
    with pytest.raises(UsageError, match=complaint):
        network_name(task, file)


def test_a_network_of_a_file_has_no_name_of_a_built_in_one(tmp_path: Path, task: Any) -> None:
    file = written(tmp_path / "pooling.py", network_code("Mine", "name = 'dsmil'"))
    complaint = "two network entries are named 'dsmil': one from milbench"
    with pytest.raises(UsageError, match=complaint):
        network_name(task, file)


def test_what_makes_no_network_is_named(tmp_path: Path, task: Any) -> None:
    name = network_name(task, written(tmp_path / "plain.py", NO_NETWORK))
    complaint = r"network 'plain' makes no milbench.Network, got Linear"
    with pytest.raises(UsageError, match=complaint):
        made(task, name)
