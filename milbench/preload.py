"""Import everything that computes cells, before the first cell.

`milbench.processes.host` imports this module once. Each cell is then computed by a fork of that
process, which has all modules already. Nothing in this file may make PyTorch start threads, since a
fork would lack them. So no tensor in it has more than one element.
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
"""Modules that train, and modules that these import only when a cell needs them."""


def import_all() -> None:
    """Import the slow modules, and those of milbench's own losses, tasks and networks."""
    for module in SLOW:
        importlib.import_module(module)
    for registry in registries().values():
        for entry in registry.entries.values():
            # A plug-in is imported only in the processes of cells that use it.
            if entry.origin == "milbench":
                importlib.import_module(entry.module)


def make_one_step() -> None:
    """Train one weight for a step and count its operations, for which PyTorch imports modules."""
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
# Every cell stores both answers. `code_version` caches its answer, so that no cell has to run git.
code_version()
processor()
