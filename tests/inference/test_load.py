"""Loading what a cell has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from milbench import Bags, UsageError
from milbench.api.registry import tasks
from milbench.engine.folders import Root
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.inference.load import load_trained
from milbench.networks.registry import make_network
from tests._helpers.command_line import PLUGINS
from tests._helpers.handmade import publish


def model_of(path: Path, source: str) -> Any:
    """Return what is loaded of a cell on a task in a file, and the network that it was made from."""
    path.write_text(source)
    root = Root(path.with_suffix(""))
    (cell,) = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [str(path)]})).cells
    task: Any = tasks().create(cell.task, {})
    task.inputs = 2  # as `prepare` may find out
    network = make_network(task, "mlp", {}, 3)
    found = root.find(publish(root, cell, network, label="unread, seed 0"))
    return load_trained(found, torch.device("cpu")), network


def test_no_data_are_read(tmp_path: Path) -> None:
    text = (PLUGINS / "tiny_task.py").read_text().replace('name = "tiny"', 'name = "unread"')
    text = text.replace("self.device = device", 'raise AssertionError("the data were read")')
    model, network = model_of(tmp_path / "unread_task.py", text)
    assert model.name == "unread, seed 0"
    points = torch.randn(5, 2)
    with torch.no_grad():
        expected = network(points.unsqueeze(0)).double().softmax(dim=1)[0]
    torch.testing.assert_close(model.scores(Bags(points.unsqueeze(0), torch.zeros(1, 3))).instances[0], expected)
    sized = text.replace('"unread"', '"sized"').replace("    inputs = 2\n", "")
    with pytest.raises(UsageError, match=r"needs data that its task does not remember: .*has no attribute 'inputs'"):
        model_of(tmp_path / "sized_task.py", sized)
