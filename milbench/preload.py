"""Import what computes cells, before any of them is asked for.

`milbench.processes.host` imports this module once, and each cell is a fork of it. Nothing here may compute with
PyTorch: threads that this started would be missing in the forks.
"""

import importlib

from milbench._utils.devices import processor
from milbench.engine.worker import code_version
from milbench.networks.registry import registries

ENGINE = ("milbench.engine.check", "milbench.engine.train")


def import_all() -> None:
    """Import what trains, and the modules of all losses, tasks and networks of milbench itself."""
    for module in ENGINE:
        importlib.import_module(module)
    for registry in registries().values():
        for entry in registry.entries.values():
            if entry.origin == "milbench":
                importlib.import_module(entry.module)


import_all()
# Each keeps its answer, so that no cell runs git or reads about the processor again.
code_version()
processor()
