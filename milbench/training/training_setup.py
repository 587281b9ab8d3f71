"""The parts of a training run: its problem, loss, network and optimiser.

They are checked to be those with which the cell was planned.
"""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

from milbench._utils.digests import file_digest
from milbench._utils.seeding import generator
from milbench.contracts.bags import Bags
from milbench.contracts.loss import ClassCounts, Loss
from milbench.contracts.network import Network
from milbench.contracts.parameters import with_neutral
from milbench.contracts.problem import BagFormat, Problem
from milbench.contracts.recipe import Recipe
from milbench.contracts.registry import INSTALLED, losses, tasks
from milbench.contracts.resolver import resolve
from milbench.contracts.task import Task
from milbench.data.catalog import find_file
from milbench.errors import UsageError, message
from milbench.experiment.cell import Cell
from milbench.experiment.choices import NetworkChoice
from milbench.networks.known_networks import (
    make_network,
    network_maker,
    networks,
    registries,
)
from milbench.optimizers.clipping import GradientNorm
from milbench.optimizers.known_optimizers import learning_rate, optimizers
from milbench.plugins.planned import check_as_planned
from milbench.training.costs import reset_memory_peak

SMALL_STEP = 200_000_000
"""Multiplications of a forward pass, which one thread computes in about ten milliseconds."""


class Model(torch.nn.Module):
    """A network and its loss, whose weights are trained, averaged and stored together."""

    def __init__(self, network: Network, loss: Loss) -> None:
        super().__init__()
        self.network = network
        self.loss = loss


@dataclass(frozen=True)
class Setup:
    """The parts of a training run, on its device."""

    recipe: Recipe
    seed: int
    """The seed of the cell, which decides the order of training.

    It is used even where `problem.seed`, which a task sets, is another.
    """
    problem: Problem
    model: Model
    optimizer: torch.optim.Optimizer
    gradient_norm: GradientNorm
    averaged_model: AveragedModel | None
    """The mean of the weights after the last steps (P. Izmailov et al., UAI 2018).

    None: the recipe averages no weights.
    """
    steps: int
    """How many steps an epoch has."""
    device: torch.device

    @property
    def states(self) -> dict[str, Any]:
        """Name -> the part of the training whose state a checkpoint holds."""
        states: dict[str, Any] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "gradient_norm": self.gradient_norm,
        }
        if self.averaged_model is not None:
            states["averaged_model"] = self.averaged_model
        return states

    @property
    def all_steps(self) -> int:
        """How many steps the whole training has."""
        return self.recipe.epochs * self.steps

    @property
    def final_model(self) -> Model:
        """The model that is evaluated and stored.

        If the recipe has `average_last`, its weights are the mean of those after the last steps.
        Before the first of these steps it is the trained model.
        """
        if self.averaged_model is None or int(self.averaged_model.n_averaged) == 0:
            return self.model
        averaged: Model = self.averaged_model.module  # type: ignore[assignment]
        return averaged

    def train_batches(self, epoch: int) -> Iterator[Bags]:
        """Return the batches of an epoch (from 0). They depend on task, seed and epoch alone."""
        rng = generator("bags", self.problem.task_name, self.seed, epoch)
        return self.problem.train_batches(epoch, rng)

    def descend(self, value: Tensor, step: int) -> Tensor:
        """Make a step down the gradient of a loss.

        Args:
            value: (), the loss of a batch.
            step: the number of the step in the whole training, from 0.

        Returns:
            (), a bool: whether the gradient or the step was shortened.
        """
        parameters = []
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, step, self.all_steps)
            parameters += group["params"]
        self.optimizer.zero_grad(set_to_none=True)
        optimizer: Any = self.optimizer
        if has_own_backward(optimizer):
            optimizer.backward(value)
        else:
            value.backward()
        clipped = self.gradient_norm.apply(parameters)
        optimizer.step()
        if self.averaged_model is not None and step >= self._first_averaged_step:
            self.averaged_model.update_parameters(self.model)
        if has_own_backward(optimizer):
            # psgd itself limits the length of a step, and says whether it has shortened this one.
            clipped = clipped | optimizer.clipped
        return clipped

    @property
    def _first_averaged_step(self) -> int:
        """The first step whose weights are averaged; at the latest the last step of all."""
        share = self.recipe.average_last or 0.0
        return self.all_steps - max(1, math.floor(share * self.all_steps))


def has_own_backward(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimiser has a method `backward`.

    psgd has one, since it differentiates the loss twice.
    """
    return hasattr(optimizer, "backward")


def setup_for_cell(
    cell: Cell, device: torch.device, data_dir: Path | None, *, one_thread_if_small: bool = False
) -> Setup:
    """Return the parts of the training of a cell, before its first step.

    With `one_thread_if_small` PyTorch gets a single thread of the CPU where a step is small. More
    threads gain nothing then, and have to wait for each other if other work takes the cores. Raises
    UsageError where a plug-in file or the data have changed.
    """
    check_unchanged(cell)
    recipe = cell.recipe
    task = task_for(cell)
    digest = task.check_data(data_dir)
    if digest != cell.task.data:
        raise UsageError(
            f"the data of {cell.task} are not those that {cell} was planned with: "
            f"expected {cell.task.data}, got {digest}; "
            "milbench run trains on the data that are there now"
        )
    problem = task.load(data_dir, cell.seed, device, recipe.evaluation_bags)
    reset_memory_peak(device)
    # A plug-in may use torch's global random generator, though no built-in loss does. With this its
    # random numbers depend on the seed alone.
    torch.manual_seed(cell.seed)
    loss = build_loss(unbuilt_loss(cell), problem, cell.seed).to(device)
    # Seeded once more, so that random numbers of the loss do not change the network.
    torch.manual_seed(cell.seed)
    network = network_for(cell, task, problem.format, loss, data_dir)
    if one_thread_if_small and device.type == "cpu":
        work = problem.batch_bags * multiplications(network, problem)
        if work < SMALL_STEP:
            torch.set_num_threads(1)
    return setup_for_problem(recipe, cell.seed, problem, network, loss, device)


def setup_for_problem(
    recipe: Recipe, seed: int, problem: Problem, network: Network, loss: Loss, device: torch.device
) -> Setup:
    """Return the parts of a training run of a cell, or of a fit of BagClassifier.

    `network` is new and on the CPU. `loss` was built for the problem, and is on the device.
    """
    if recipe.head_init == "prior" and loss.head != "class":
        network.start_at_prior(typical_positions(network, problem))
    model = Model(network.move_to(device), loss)
    make_optimizer = optimizers().get(recipe.optimizer)
    averaged_model = None
    if recipe.average_last is not None:
        # By default torch averages all buffers in one operation. That fails for the counter of
        # BatchNorm, which is a whole number.
        averaged_model = AveragedModel(model, avg_fn=get_swa_avg_fn(), use_buffers=True)
    steps = problem.steps_per_epoch
    if recipe.steps_per_epoch is not None:
        steps = min(recipe.steps_per_epoch, steps)
    return Setup(
        recipe=recipe,
        seed=seed,
        problem=problem,
        model=model,
        optimizer=make_optimizer(model, recipe, seed),
        gradient_norm=GradientNorm(recipe.gradient_norm),
        averaged_model=averaged_model,
        steps=steps,
        device=device,
    )


def build_loss(loss: Loss, problem: Problem, seed: int) -> Loss:
    """Build a loss for the training bags of a problem, and return it.

    The weights of the loss are made anew. The classes in the training bags are counted only where
    the loss needs their counts.
    """
    counts = None
    if loss.needs_class_counts:
        counts = training_counts(problem, seed)
    return loss.build(
        problem.format.num_classes, seed, max_labels=problem.max_labels, class_counts=counts
    )


def training_counts(problem: Problem, seed: int) -> ClassCounts:
    """Return in how many training bags of the first epoch each class occurs."""
    batches = problem.train_batches(0, generator("bags", problem.task_name, seed, 0))
    bags_with_class = torch.zeros(problem.format.num_classes, dtype=torch.int64)
    bags = 0
    for batch in islice(batches, problem.steps_per_epoch):
        bags_with_class += batch.labels.bool().sum(dim=0).cpu()
        bags += len(batch.labels)
    return ClassCounts(bags_with_class, bags)


def task_for(cell: Cell) -> Task:
    """Return the task of a cell. Its data are not loaded."""
    name = resolve(tasks(), cell.task.reference)
    task: Task = tasks().create_for_cell(name, cell.task.params)
    return task


def unbuilt_loss(cell: Cell) -> Loss:
    """Return the loss of a cell, on the CPU. It has to be built before it is used.

    Training builds it by `build_loss`, from the training bags. The check of a launch knows only the
    first batch, and a trained cell knows no training bags, so they build it in other ways.
    """
    name = resolve(losses(), cell.loss.reference)
    loss: Loss = losses().create_for_cell(name, cell.loss.params)
    return loss


def network_for(
    cell: Cell,
    task: Task,
    bag_format: BagFormat,
    loss: Loss,
    data_dir: Path | None = None,
    *,
    initial: bool = True,
) -> Network:
    """Return the untrained network of a cell, on the CPU, for the bags of its task.

    The parameter `weights` of the network may name a file of initial weights. It is read if
    `initial` is true.
    """
    choice = cell.network
    if choice.source:
        resolve(networks(), choice.source)
    params = with_neutral(network_maker(task, choice.name, loss.head), choice.params)
    weights = params.get("weights")
    if isinstance(weights, str) and weights:
        # A trained network gets all of its weights anyway, and the file may be gone.
        path = _initial_weights(choice, weights, data_dir) if initial else ""
        params = params | {"weights": path}
    return make_network(task, bag_format, choice.name, params, cell.seed, loss.head)


def _initial_weights(choice: NetworkChoice, reference: str, data_dir: Path | None) -> str:
    """Return the path of a file of initial weights.

    Raises UsageError where the file was changed after the cell was planned.
    """
    path = find_file(reference, data_dir, "network.weights")
    digest = file_digest(path, "sha256")[:16]
    if not choice.revision.endswith(digest):
        raise UsageError(
            f"{path} was changed after the cell was planned; run the same command again"
        )
    return str(path)


def typical_positions(network: Network, problem: Problem) -> int:
    """Return how many positions a network has in a typical training bag.

    Raises UsageError where the network fails on such a bag, or returns logits of a wrong shape.
    """
    bag = _typical_bag(problem)
    classes = problem.format.num_classes
    try:
        logits = _evaluated(network, bag)
    except Exception as error:
        reason = f"{type(error).__name__}: {message(error)}"
        shape = tuple(bag.instances.shape)
        raise UsageError(
            f"the network does not suit {problem.task_name}: {reason}, for one bag {shape}"
        ) from error
    if logits.shape[:2] != (1, classes + 1) or logits.ndim < 3:
        shapes = f"{tuple(logits.shape)} for one bag {tuple(bag.instances.shape)}"
        expected = f"expected logits (B, {classes + 1}, *positions)"
        raise UsageError(f"the network returns {shapes}, {expected}")
    return max(1, logits.shape[2:].numel())


def multiplications(network: Network, problem: Problem) -> int:
    """Return how many multiplications a network needs for the logits of a typical training bag."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        _evaluated(network, _typical_bag(problem))
    # A multiplication and the addition of its result are two operations.
    return int(counter.get_total_flops()) // 2


def _typical_bag(problem: Problem) -> Bags:
    """Return a bag of zeros that has the typical shape of a problem's bags."""
    instances = torch.zeros(1, *problem.typical_shape)
    labels = torch.zeros(1, problem.format.num_classes, dtype=torch.bool)
    return Bags(instances, labels)


@torch.no_grad()
def _evaluated(network: Network, bags: Bags) -> Tensor:
    """Return the logits of a network in evaluation mode, and then restore its mode."""
    was_training = network.training
    logits = network.eval().logits_of(bags)
    network.train(was_training)
    return logits


def check_max_labels(problem: Problem, bags: Bags) -> None:
    """Raise UsageError if a training bag has more classes than the problem says.

    On a GPU this makes the CPU wait for the device.
    """
    counts = bags.labels.sum(dim=1)
    if problem.max_labels is not None and (counts > problem.max_labels).any():
        bag = int(counts.argmax())
        raise UsageError(
            f"max_labels of task {problem.task_name} is {problem.max_labels}, "
            f"but bag {bag} of a training batch has {int(counts[bag])} classes; "
            "expected the largest number of classes in a bag, or more, or None"
        )


def check_unchanged(cell: Cell) -> None:
    """Raise UsageError if the code of a plug-in was changed since the cell was planned."""
    for kind, choice in cell.choices.items():
        registry = registries()[kind]
        name = choice.name
        if choice.source:
            name = resolve(registry, choice.source)
        entry = registry.entries.get(name)
        if entry is None or entry.origin == "milbench":
            # milbench's own code is no plug-in, and a network that a task defines has no entry.
            continue
        record = entry.record
        if record.digest.startswith(INSTALLED) and not record.files:
            # The id of the cell depends on the version of an installed package. With another
            # version a trained cell can still be loaded.
            continue
        # A class that a notebook defines has no source. It may have come to another machine, which
        # lacks the files that the class uses.
        check_as_planned(f"{kind} {name}", record, elsewhere=not entry.source)
        # The plan has added the digest of initial weights, which `_initial_weights` checks.
        revision = choice.revision.partition(" weights ")[0]
        if not revision.endswith(record.digest):
            raise UsageError(
                f"{choice.source or name} was changed after the cell was planned, "
                "or what it imports; run the same command again"
            )


def training_logits(setup: Setup, bags: Bags) -> Tensor:
    """Return the logits (B, C+1, *positions) of B bags in training, in the loss's precision."""
    half = setup.recipe.precision == "bfloat16"
    # The fused kernels of attention have no second derivatives, which psgd needs.
    needs_second_derivatives = has_own_backward(setup.optimizer)
    with sdpa_kernel(SDPBackend.MATH) if needs_second_derivatives else nullcontext():
        logits = network_logits(setup.model.network, bags, setup.device, half=half)
    return logits.double() if setup.recipe.loss_precision == "float64" else logits


def network_logits(
    network: Network, bags: Bags, device: torch.device, *, half: bool = False
) -> Tensor:
    """Return the logits (B, C+1, *positions) of B bags on the device, as float32.

    With `half`, the network computes in bfloat16.
    """
    with torch.autocast(device.type, torch.bfloat16) if half else nullcontext():
        logits = network.logits_of(bags)
    return logits.float()
