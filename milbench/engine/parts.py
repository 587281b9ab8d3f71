"""The task, the loss and the network of a cell, whether they are what the cell was planned with, and its logits."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.api.plan import Cell
from milbench.api.registry import losses, tasks
from milbench.api.task import Network, Task
from milbench.errors import UsageError


def task_for(cell: Cell) -> Task:
    """Return the task of a cell, as it is when cells are planned: not prepared, and without the seed.

    Args:
        cell: with the name and the parameters.

    Raises:
        UsageError: there is no such task, or a parameter is wrong.
    """
    task: Task = tasks().create(cell.task_file or cell.task, cell.task_params)
    return task


def loss_for(cell: Cell, task: Task) -> Loss:
    """Return the loss of a cell, with the initial weights that it has of its own, on the CPU.

    Args:
        cell: with the name, the parameters and the seed.
        task: the task, which knows its number of classes: prepared if it needs data for that.

    Raises:
        UsageError: there is no such loss, or a parameter is wrong.
    """
    loss: Loss = losses().create(cell.loss_file or cell.loss, cell.loss_params)
    loss.reduction = "none"
    return loss.build(task.num_classes, cell.seed)


def network_for(loss: Loss, task: Task, seed: int) -> Network:
    """Return a new network of the task for this kind of loss.

    Args:
        loss: whose `head` decides between the task's classifier of whole bags and its network of positions.
        task: the task, prepared if its network needs data.
        seed: of the initial weights.

    Returns:
        A new network, not trained, on the CPU.

    Raises:
        UsageError: the task has no network of this kind.
    """
    return task.classifier(seed) if loss.head == "class" else task.network(seed)


def check_max_labels(task: Task, bags: Bags) -> None:
    """Raise UsageError if a training bag has more classes than the task says. On a GPU this waits for the device."""
    if task.max_labels is None:
        return
    counts = bags.labels.sum(dim=1)
    if (counts > task.max_labels).any():
        bag = int(counts.argmax())
        raise UsageError(
            f"max_labels of task {task.name} is {task.max_labels}, but bag {bag} of a training batch has "
            f"{int(counts[bag])} classes; expected the largest number of classes in a bag, or more, or None"
        )


def check_unchanged(cell: Cell) -> None:
    """Raise UsageError if a plug-in file was changed since the cell was planned."""
    for registry, file, revision in (
        (losses(), cell.loss_file, cell.loss_revision),
        (tasks(), cell.task_file, cell.task_revision),
    ):
        if file and not revision.endswith(registry.entry(file).source_digest):
            raise UsageError(f"{file} was changed after the cell was planned; run the same command again")


def check_data_unchanged(task: Task, cell: Cell, data_dir: Path | None) -> None:
    """Check that the data are those that a cell was planned with: its results would pass for theirs.

    Args:
        task: of `task_for`: cells are planned before the task has a seed.
        cell: with the digest of its data.
        data_dir: the folder of the data; None: the default one.

    Raises:
        UsageError: they are other data.
    """
    found = task.check_data(data_dir)
    if found != cell.data:
        raise UsageError(
            f"the data of {cell.task} are not those that {cell} was planned with: expected {cell.data}, got {found}; "
            "milbench run trains on the data that are there now"
        )


def network_logits(network: Network, bags: Bags, device: torch.device, *, half: bool = False) -> Tensor:
    """Return the logits (B, C+1, *positions) float32 of B bags, computed in bfloat16 where `half`.

    Args:
        network: on the device.
        bags: on the device.
        device: of the network.
        half: whether the network computes in bfloat16.
    """
    instances = network.as_input(bags.instances)
    with torch.autocast(device.type, torch.bfloat16) if half else nullcontext():
        logits: Tensor = network(instances)
    return logits.float()


def check_finite(what: str, values: Tensor, done: int, steps: int) -> Tensor:
    """Return the values; on a CPU they are checked, for a GPU one would have to wait.

    Args:
        what: they are, for the message.
        values: of logits or losses.
        done: how many steps of the training are done.
        steps: how many steps an epoch has.

    Raises:
        FloatingPointError: some are not finite; the message names the epoch and the step.
    """
    if values.device.type == "cpu" and not bool(torch.isfinite(values).all()):
        place = f"epoch {done // steps + 1}, step {done % steps + 1}"
        raise FloatingPointError(f"the {what} in training: not finite at {place}")
    return values
