"""Which loss learns best from the label sets of bags, and at what cost.

The names listed in `__all__` are milbench's public interface: they never move. Each is imported when it is first used,
so that `import milbench` needs neither torch nor any other large library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from milbench._version import __version__
from milbench.errors import UsageError

if TYPE_CHECKING:
    from milbench._utils.seeding import generator
    from milbench.api.bags import Bags, Truth, label_matrix
    from milbench.api.loss import Loss, bag_sizes
    from milbench.api.recipe import Recipe
    from milbench.api.task import Network, Published, ScoreFunction, Scores, Split, Task

__all__ = [
    "Bags", "Loss", "Network", "Published", "Recipe", "ScoreFunction", "Scores", "Split", "Task", "Truth",
    "UsageError", "__version__", "bag_sizes", "generator", "label_matrix", "load_loss", "load_task",
]  # fmt: skip

_HOMES = {
    "milbench._utils.seeding": ("generator",),
    "milbench.api.bags": ("Bags", "Truth", "label_matrix"),
    "milbench.api.loss": ("Loss", "bag_sizes"),
    "milbench.api.recipe": ("Recipe",),
    "milbench.api.task": ("Network", "Published", "ScoreFunction", "Scores", "Split", "Task"),
}
"""Where each public name that is imported on first use is defined."""


def load_loss(name: str, **params: Any) -> Loss:
    """Return the loss of that name (or of a `path/to/file.py`), with its parameters checked. Raises UsageError."""
    from milbench.api.registry import losses

    return losses().create(name, params)


def load_task(name: str, **params: Any) -> Task:
    """Return the task of that name (or of a `path/to/file.py`), with its parameters checked. Raises UsageError."""
    from milbench.api.registry import tasks

    return tasks().create(name, params)


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
