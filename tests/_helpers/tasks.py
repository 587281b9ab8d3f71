"""Problems that are loaded, and new networks for them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milbench import Bags, Network, Problem, Task, load_task
from milbench.contracts.loss import Head
from milbench.contracts.registry import tasks
from milbench.networks.known_networks import make_network, network_name


def loaded(
    name: str, data_dir: Path | None = None, seed: int = 0, limit: int | None = None, **params: Any
) -> Any:
    """Return the problem of a task on the CPU, with `limit` bags of each kind to evaluate on."""
    task = load_task(name, **params)
    task.check_data(data_dir)
    return task.load(data_dir, seed, limit=limit)


def mask_of(bags: Bags, *, of_sequences: bool = False) -> Tensor:
    """Return which places of sets (B, K), or frames of sequences (B, T), are filled: all of them without a mask."""
    if bags.mask is not None:
        return bags.mask
    # Sets are (B, K, D), and sequences (B, F, T).
    count, second, third = bags.instances.shape
    places = third if of_sequences else second
    return torch.ones(count, places, dtype=torch.bool)


def new_network(
    of: Problem | Task, name: str = "default", seed: int = 0, head: Head = "softmax", **params: Any
) -> Network:
    """Return a network of a task, by default its first one, for losses with a head.

    `of` is the task, if it has a format without data, or a problem of it.
    """
    assert of.format is not None
    # To make a network, the class of the task is enough.
    task: Any = of if isinstance(of, Task) else tasks().get(of.task_name)
    return make_network(task, of.format, network_name(task, name, head), params, seed, head)
