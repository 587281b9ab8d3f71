"""Import everything that computes cells, before the first of them.

`milbench.processes.host` imports this module once, and each cell is computed by a fork of that
process. Nothing here may make PyTorch start threads, since the forks would lack them: so no tensor
here has more than one element.
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
"""Modules that train, and modules that they import only when a cell needs them."""


def import_all() -> None:
    """Import the slow modules, and those of milbench's own losses, tasks and networks."""
    for module in SLOW:
        importlib.import_module(module)
    for registry in registries().values():
        for entry in registry.entries.values():
            # A plug-in is imported in the processes of its own cells alone.
            if entry.origin == "milbench":
                importlib.import_module(entry.module)


def make_one_step() -> None:
    """Train one weight for a step and count its operations: PyTorch imports some modules only then."""
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.AdamW([weight])
    with FlopCounterMode(display=False):
        torch.zeros(1)
    # Set by hand, since `backward` may start threads.
    weight.grad = torch.ones(1)
    optimizer.step()
    optimizer.zero_grad()


import_all()
make_one_step()
# The two functions below cache their answers, so that no cell runs git or reads about the processor
# again.
code_version()
processor()
