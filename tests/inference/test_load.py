"""Loading what a cell has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from milbench import load_loss
from milbench.api.registry import tasks
from milbench.engine.folders import Root
from milbench.engine.parts import network_for
from milbench.engine.planning import make_plan
from milbench.engine.spec import make_spec
from milbench.inference.load import load_trained
from tests._helpers.command_line import PLUGINS
from tests._helpers.handmade import publish

CPU = torch.device("cpu")


def test_the_data_are_prepared_where_the_network_needs_them(tmp_path: Path) -> None:
    """A task whose data decide how wide the network is, and one whose network is known without them."""
    source = (PLUGINS / "tiny_task.py").read_text().replace('name = "tiny"', 'name = "sized"')
    source = source.replace("    num_classes = 3\n", "    num_classes = 3\n    network_needs_data = True\n")
    source = source.replace("self.device = device", "self.hidden = 8").replace("[2, 8, 4]", "[2, self.hidden, 4]")
    sized = tmp_path / "sized_task.py"
    sized.write_text(source)
    unread = tmp_path / "unread_task.py"
    text = (PLUGINS / "tiny_task.py").read_text().replace('name = "tiny"', 'name = "unread"')
    unread.write_text(text.replace("self.device = device", 'raise AssertionError("the data were read")'))
    root = Root(tmp_path / "root")
    for path in (sized, unread):
        (cell,) = make_plan(make_spec({"name": "t", "losses": ["exact"], "tasks": [str(path)]})).cells
        task: Any = tasks().create(str(path), {})
        task.hidden = 8
        network = network_for(load_loss("exact"), task, seed=3)
        model = load_trained(root, publish(root, cell, network, label="sized, epochs=3, seed 0"), CPU)
        assert model.name == "sized, epochs=3, seed 0"
        points = torch.randn(5, 2)
        with torch.no_grad():
            expected = network(points.unsqueeze(0)).double().softmax(dim=1)[0]
        torch.testing.assert_close(model.scores(points).instances[0], expected)
