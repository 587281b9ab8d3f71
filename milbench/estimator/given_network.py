"""Making the network of a classifier from what a user gives.

It may be a name, a file, a class or a function.
"""

from typing import Any

import torch

from milbench.contracts.loss import Loss
from milbench.contracts.network import Network
from milbench.contracts.problem import BagFormat
from milbench.contracts.registry import tasks
from milbench.contracts.resolver import add_object, reload_edited_plugins
from milbench.contracts.task import Task
from milbench.errors import UsageError
from milbench.estimator.training_bags import TASK_NAME
from milbench.networks.known_networks import make_network, network_name, networks, takes_encoder


def described_task() -> Task:
    """Return the task feature-bags, from which a classifier takes its recipe and its networks."""
    # The bags of this task are never loaded, so that it needs no table.
    task: Task = tasks().create(TASK_NAME, {"table": ""})
    return task


def new_network(given: Any, bag_format: BagFormat, loss: Loss, seed: int) -> Network:
    """Return an untrained network for bags and a loss.

    Args:
        given: the parameter `network` of `BagClassifier`, which describes it.
        bag_format: the format of the bags.
        loss: the loss that trains the network.
        seed: the seed of the initial weights.

    Raises:
        UsageError: there is no such network, or what is given or made is not a network.
    """
    if isinstance(given, str):
        return _known_network(given, bag_format, loss, seed)
    # A module is callable, but calling it does not make a new network, which every fit needs.
    if isinstance(given, torch.nn.Module) or not callable(given):
        raise UsageError(
            f"network must be a name, a file, a class or a function, got {type(given).__name__}"
        )
    # This network needs a network of the task as its encoder. `make_network` adds the encoder, but
    # only finds networks that are registered, so the class is registered first.
    if takes_encoder(given):
        return _known_network(add_object(networks(), given), bag_format, loss, seed)
    network = given(bag_format.inputs, bag_format.num_classes, seed)
    if not isinstance(network, Network):
        raise UsageError(f"network must return a milbench.Network, got {type(network).__name__}")
    return network


def _known_network(name: str, bag_format: BagFormat, loss: Loss, seed: int) -> Network:
    """Return a network by its name, which the task feature-bags knows, or by its file."""
    # In a notebook the file may have changed since the last fit.
    reload_edited_plugins()
    task = described_task()
    # Which networks suit depends on the head of the loss. "default" is the first network of the
    # task for this head, and both functions refuse a network for another head.
    known_name = network_name(task, name, loss.head)
    return make_network(task, bag_format, known_name, {}, seed, loss.head)
