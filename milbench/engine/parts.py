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
from milbench.networks.registry import HIDDEN, pooling_network


def task_for(cell: Cell) -> Task:
    """Return the task of a cell, as it is when cells are planned: not prepared, and without the seed."""
    task: Task = tasks().create(cell.task_file or cell.task, cell.task_params)
    return task


def loss_for(cell: Cell, task: Task) -> Loss:
    """Return the loss of a cell for a prepared task, with the initial weights that it has of its own, on the CPU."""
    loss: Loss = losses().create(cell.loss_file or cell.loss, cell.loss_params)
    loss.reduction = "none"
    return loss.build(task.num_classes, cell.seed)


def network_for(loss: Loss, task: Task, seed: int, head_init: str = "paper") -> Network:
    """Return a new network of a prepared task for this kind of loss, not trained, on the CPU.

    The `network` and `head` of the loss decide between one that pools instances, the task's classifier of whole bags
    and its network of positions; `head_init` sets the initial biases of its head, see `milbench.Recipe`.
    """
    if loss.network != "task":
        network = pooling_network(loss.network, task.encoder(HIDDEN, seed), task.num_classes, seed)
    else:
        network = task.classifier(seed) if loss.head == "class" else task.network(seed)
    if head_init == "prior" and loss.head != "class":
        network.start_at_prior(task.positions)
    return network


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
    """Raise UsageError where the data are not those that a cell was planned with: its results would pass for theirs.

    The task is that of `task_for`: cells are planned before the task has a seed.
    """
    found = task.check_data(data_dir)
    if found != cell.data:
        raise UsageError(
            f"the data of {cell.task} are not those that {cell} was planned with: expected {cell.data}, got {found}; "
            "milbench run trains on the data that are there now"
        )


def network_logits(network: Network, bags: Bags, device: torch.device, *, half: bool = False) -> Tensor:
    """Return the logits (B, C+1, *positions) float32 of B bags on the device, computed in bfloat16 where `half`."""
    with torch.autocast(device.type, torch.bfloat16) if half else nullcontext():
        logits = network.logits_of(bags)
    return logits.float()


def check_finite(what: str, values: Tensor, done: int, steps: int) -> Tensor:
    """Return logits or losses, after `done` steps; on a CPU they are checked, for a GPU one would have to wait."""
    if values.device.type == "cpu" and not bool(torch.isfinite(values).all()):
        place = f"epoch {done // steps + 1}, step {done % steps + 1}"
        raise FloatingPointError(f"the {what} in training: not finite at {place}")
    return values
