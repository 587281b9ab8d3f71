"""Import what computes cells, before any of them is asked for.

`milbench.processes.host` imports this module once, and each cell is a fork of it. Nothing here may make PyTorch start
threads, which would be missing in the forks: no tensor has more than one element.
"""

import importlib

import torch
from torch.utils.flop_counter import FlopCounterMode

from milbench._utils.devices import processor
from milbench.networks.known_networks import registries
from milbench.running.worker import code_version

SLOW = (
    "milbench.running.first_batch_check",
    "milbench.training.train",
    "sklearn.datasets",
    "sklearn.metrics",
    "platformdirs",
)
"""What trains, and what it imports only where a cell needs it."""


def import_all() -> None:
    """Import what trains, and the modules of all losses, tasks and networks of milbench itself."""
    for module in SLOW:
        importlib.import_module(module)
    for registry in registries().values():
        for entry in registry.entries.values():
            if entry.origin == "milbench":
                importlib.import_module(entry.module)


def make_one_step() -> None:
    """Make a step with one weight and count its operations: PyTorch imports some things only then."""
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.AdamW([weight])
    with FlopCounterMode(display=False):
        torch.zeros(1)
    weight.grad = torch.ones(1)
    optimizer.step()
    optimizer.zero_grad()


import_all()
make_one_step()
# Each keeps its answer, so that no cell runs git or reads about the processor again.
code_version()
processor()
