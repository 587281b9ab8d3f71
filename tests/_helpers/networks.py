"""New networks of tasks."""

from __future__ import annotations

from typing import Any

from milbench import Network, Task
from milbench.api.loss import Head
from milbench.networks.registry import make_network, network_name


def new_network(task: Task, name: str = "default", seed: int = 0, head: Head = "softmax", **params: Any) -> Network:
    """Return a network of a prepared task, by default its first one, for losses with a head."""
    return make_network(task, network_name(task, name, head), params, seed, head)
