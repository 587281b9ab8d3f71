"""Prepared tasks, and new networks of theirs."""

from pathlib import Path
from typing import Any

import torch

from milbench import Network, Task, load_task
from milbench.api.loss import Head
from milbench.networks.registry import make_network, network_name


def prepared(
    name: str, data_dir: Path | None = None, seed: int = 0, limit: int | None = None, **params: Any
) -> Any:
    """Return a task on the CPU whose data are checked and loaded, with `limit` bags of each kind to evaluate on."""
    task: Any = load_task(name, **params)
    task.seed, task.evaluation_limit = seed, limit
    task.check_data(data_dir)
    task.prepare(data_dir, torch.device("cpu"))
    return task


def new_network(
    task: Task, name: str = "default", seed: int = 0, head: Head = "softmax", **params: Any
) -> Network:
    """Return a network of a task, by default its first one, for losses with a head."""
    return make_network(task, network_name(task, name, head), params, seed, head)
