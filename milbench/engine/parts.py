"""What the training of a cell is made of: its task, loss, network and optimiser, as they were when it was planned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.api.plan import Cell
from milbench.api.recipe import Recipe
from milbench.api.registry import losses, tasks
from milbench.api.task import Network, Task
from milbench.engine.costs import reset_memory_peak
from milbench.errors import UsageError
from milbench.networks.registry import HIDDEN, pooling_network
from milbench.optimizers.clipping import Clipping
from milbench.optimizers.registry import make_optimizer


class Model(torch.nn.Module):
    """A network and its loss, whose weights are trained, averaged and stored together."""

    def __init__(self, network: Network, loss: Loss) -> None:
        super().__init__()
        self.network, self.loss = network, loss


@dataclass(frozen=True)
class Setup:
    """What a training is made of, on its device."""

    cell: Cell
    recipe: Recipe
    task: Task  # prepared
    model: Model
    optimizer: torch.optim.Optimizer
    clipping: Clipping
    mean: AveragedModel | None  # of the model over its last steps (Izmailov et al., UAI 2018)
    steps: int  # of an epoch
    device: torch.device

    @property
    def states(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        states = {"model": self.model, "optimizer": self.optimizer, "clipping": self.clipping, "mean": self.mean}
        return {name: of for name, of in states.items() if of is not None}

    @property
    def first_averaged(self) -> int:
        """The step (from 0) after which weights count for the mean first."""
        steps = self.recipe.epochs * self.steps
        return steps - max(1, math.floor((self.recipe.average_last or 0.0) * steps))

    @property
    def kept(self) -> Model:
        """The model that is evaluated and stored: the mean of its weights, where there is one by now."""
        averaged = self.mean is not None and int(self.mean.n_averaged) > 0
        model: Model = self.mean.module if averaged else self.model  # type: ignore[union-attr,assignment]
        return model

    def train_batches(self, epoch: int) -> Iterator[Bags]:
        """Return the batches of an epoch (from 0), which depend on task, seed and epoch, but not on the loss."""
        return self.task.train_batches(epoch, generator("bags", self.task.name, self.cell.seed, epoch))


def set_up(cell: Cell, device: torch.device, data_dir: Path | None) -> Setup:
    """Return what the training of a cell is made of, before its first step.

    Raises:
        UsageError: a plug-in file or the data are not those that the cell was planned with.
    """
    check_unchanged(cell)
    recipe, task = Recipe(**cell.recipe), task_for(cell)
    check_data_unchanged(task, cell, data_dir)
    task.seed = cell.seed
    task.evaluation_limit = recipe.evaluation_bags
    task.prepare(data_dir, device)
    reset_memory_peak(device)
    # No built-in loss draws from the global generator, but a plug-in may: it too must depend on the seed alone.
    torch.manual_seed(cell.seed)
    return assembled(cell, recipe, task, loss_for(cell, task).to(device), device)


def assembled(cell: Cell, recipe: Recipe, task: Task, loss: Loss, device: torch.device) -> Setup:
    """Return what a training is made of, of a prepared task and a loss on the device."""
    loss.max_labels = task.max_labels
    loss.validate = device.type == "cpu"
    torch.manual_seed(cell.seed)  # again: what the loss has drawn must not change the network
    model = Model(network_for(loss, task, cell.seed, recipe.head_init).move_to(device), loss)
    # Without the function torch averages all weights in one operation where it can, which refuses whole numbers, such
    # as the number of batches that BatchNorm counts.
    average = recipe.average_last is not None
    return Setup(
        cell=cell,
        recipe=recipe,
        task=task,
        model=model,
        optimizer=make_optimizer(model, recipe, cell.seed),
        clipping=Clipping(recipe),
        mean=AveragedModel(model, avg_fn=get_swa_avg_fn(), use_buffers=True) if average else None,
        steps=min(recipe.steps_per_epoch or task.steps_per_epoch, task.steps_per_epoch),
        device=device,
    )


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


def training_logits(it: Setup, bags: Bags) -> Tensor:
    """Return the logits (B, C+1, *positions) of training, in the precision of the loss."""
    logits = network_logits(it.model.network, bags, it.device, half=it.recipe.precision == "bfloat16")
    return logits.double() if it.recipe.loss_precision == "float64" else logits


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
