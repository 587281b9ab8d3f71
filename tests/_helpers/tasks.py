"""Loaded problems of tasks, and new networks for them."""

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
    """Return the problem of a task on the CPU. Its data are checked first.

    `limit` is the largest number of bags in each split, or None.
    """
    task = load_task(name, **params)
    task.check_data(data_dir)
    return task.load(data_dir, seed, limit=limit)


def mask_of(bags: Bags, *, of_sequences: bool = False) -> Tensor:
    """Return (B, K), True for instances and False for padding.

    A batch without a mask has no padding, so that the result is True everywhere. With
    `of_sequences` the instances are the frames of sequences: the result is (B, T).
    """
    if bags.mask is not None:
        return bags.mask
    # Sets are (bags, instances, features), and sequences (bags, features, frames).
    count, second, third = bags.instances.shape
    instances = third if of_sequences else second
    return torch.ones(count, instances, dtype=torch.bool)


def new_network(
    of: Problem | Task, name: str = "default", seed: int = 0, head: Head = "softmax", **params: Any
) -> Network:
    """Return a new network of a task.

    Args:
        of: a problem of the task; or the task itself, if its class says what bags are like
            (`Task.format`), so that no data are needed.
        name: the name of the network, by default the task's first one for this head.
        seed: the seed of the initial weights.
        head: what a logit means to the losses that the network is for, see `Loss.head`.
        params: the parameters of the network.
    """
    assert of.format is not None
    # A problem knows only the name of its task. By the name the registry gives the class of the
    # task, and `make_network` needs no more than the class.
    task: Any = of if isinstance(of, Task) else tasks().get(of.task_name)
    return make_network(
        task,
        bag_format=of.format,
        name=network_name(task, name, head),
        params=params,
        seed=seed,
        head=head,
    )
