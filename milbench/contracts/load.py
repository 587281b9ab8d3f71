"""Load a loss or a task by its name."""

from typing import Any, get_args

from milbench.contracts.loss import Loss, Reduction
from milbench.contracts.registry import losses, tasks
from milbench.contracts.resolver import reload_edited_plugins, resolve
from milbench.contracts.task import Task
from milbench.errors import one_of


def load_loss(name: str, *, reduction: Reduction = "mean", **params: Any) -> Loss:
    """Return a new loss, by its name: `load_loss("exact")` is `milbench.losses.Exact()`.

    The name is that of a built-in or installed loss, or the path of a Python file that holds a
    loss. The reduction over the bags of a batch is `mean`, `sum`, or `none`, which gives one value
    a bag. Raises UsageError where there is no such loss, or where a parameter of its constructor is
    unknown, missing or out of range.

    Examples:
        Two bags of five positions, three classes and the background. All logits are 0, so that
        every one of the 4^5 ways to give each position a class or the background is equally
        probable. In 2^5 - 1 of them exactly the first class occurs, and in one no class occurs.
        The losses are log(4^5 / (2^5 - 1)) and log(4^5).

        >>> import torch
        >>> loss = load_loss("exact", reduction="none")
        >>> logits = torch.zeros(2, 3 + 1, 5)
        >>> labels = torch.tensor([[True, False, False], [False, False, False]])
        >>> loss(logits, labels)
        tensor([3.4975, 6.9315])
    """
    reload_edited_plugins()
    loss = losses().create(resolve(losses(), name), params)
    # Set as an attribute, since the constructor of a user's loss need not take `reduction`.
    loss.reduction = one_of(f"reduction of {loss.name}", reduction, get_args(Reduction))
    return loss


def load_task(name: str, **params: Any) -> Task:
    """Return a new task, by its name or the path of a Python file.

    The data of the task are neither checked nor loaded yet: `load_task("svhn").load(data_dir,
    seed=0)` loads its bags, to train and to evaluate on. Raises UsageError in the cases of
    `load_loss`.

    Examples:
        >>> problem = load_task("extended-digits").load(seed=0, limit=100)
        >>> problem.format.class_names
        ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
        >>> problem.steps_per_epoch
        20
    """
    reload_edited_plugins()
    return tasks().create(resolve(tasks(), name), params)
