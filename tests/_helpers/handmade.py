"""Runs whose networks are made by hand, so that what they read in a picture is known."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from milbench import AllConvolutional, Network, Task
from milbench.api.plan import Cell, Plan
from milbench.api.registry import tasks
from milbench.evaluation.reading.component_decoder import ComponentDecoder
from milbench.evaluation.reading.reader import Reader
from milbench.store.workspace import Workspace
from milbench.store.writer import StoreWriter

LOGITS = {3: (140.0, -90.0), 7: (60.0, -20.0)}
"""Grey digits: logit = slope * value + offset, so that 0 is background, 0.5 a seven and 1 a three."""
COLOURS = {1: 0, 2: 1, 9: 2}
"""House numbers: red is a one, green a two and blue a nine."""


def cell(task: str, seed: int = 0, **params: int | str) -> Cell:
    return Cell("exact", {}, "1", "set", task, params, "1", f"data of {task}", {}, seed)


def network_of(name: str) -> Network:
    """A network that passes the middle pixel of what a position sees on to its last layer."""
    task: Task = tasks().create(name, {})
    network = task.network(0)
    assert isinstance(network, AllConvolutional)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
        for layer in convolutions[:-1]:
            for channel in range(convolutions[0].in_channels):
                middle = layer.kernel_size[0] // 2
                layer.weight[channel, channel, middle, middle] = 1
        head = convolutions[-1]
        middle = head.kernel_size[0] // 2
        assert head.bias is not None
        head.bias[:-1] = -100
        if name == "house-numbers":
            for cls, channel in COLOURS.items():
                head.bias[cls] = -10
                head.weight[cls, channel, middle, middle] = 30
        else:
            for cls, (slope, offset) in LOGITS.items():
                head.bias[cls] = offset
                head.weight[cls, 0, middle, middle] = slope
    return network


def publish(
    store: StoreWriter,
    one: Cell,
    network: torch.nn.Module | None,
    status: str = "FINISHED",
    decoder: ComponentDecoder | Reader | None = None,
    metrics: dict[str, float] | None = None,
    memory: dict[str, Any] | None = None,
    loss: torch.nn.Module | None = None,
    label: tuple[str, str, str] | None = None,
) -> str:
    """Put a run of a cell into a store as a launch leaves it; return its id."""
    plan = Plan("handmade", "", "flags", [replace(one)], labels={one.id: label} if label else {})
    parent = store.launch(plan, "milbench run")
    run_id = store.start_cell(plan.name, one, parent, {"milbench.device": "cpu"})
    if network is not None:
        path = store.workspace.runs / "model.safetensors"
        model = torch.nn.ModuleDict({"network": network} | ({"loss": loss} if loss is not None else {}))
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, path)
        store.log_file(run_id, path)
        path.unlink()
    for name, content in (("decoder.json", decoder and decoder.to_json()), ("task.json", memory)):
        if content is None:
            continue
        path = store.workspace.runs / name
        path.write_text(json.dumps(content))
        store.log_file(run_id, path)
        path.unlink()
    store.log(run_id, 1, metrics or {})
    store.end(run_id, status)
    store.end(parent, "FINISHED")
    return run_id


def store_in(folder: Path, database: Path) -> StoreWriter:
    (folder / "runs").mkdir(parents=True)
    shutil.copy(database, folder / "runs" / "mlflow.db")
    return StoreWriter(Workspace(folder).make())
