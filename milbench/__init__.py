"""Which loss learns best from the label sets of bags, and at what cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milbench._version import __version__

if TYPE_CHECKING:
    from milbench.loss import Loss
    from milbench.task import Task

__all__ = ["__version__", "load_loss", "load_task"]


def load_loss(name: str, **params: Any) -> Loss:
    """Return the loss of that name (or of a `path/to/file.py`), with its parameters checked. Raises UsageError."""
    from milbench.registry import losses

    return losses().create(name, params)


def load_task(name: str, **params: Any) -> Task:
    """Return the task of that name (or of a `path/to/file.py`), with its parameters checked. Raises UsageError."""
    from milbench.registry import tasks

    return tasks().create(name, params)
