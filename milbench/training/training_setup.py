"""The parts of a training run: its problem, loss, network and optimiser, as they were when the cell was planned."""

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
    """By which the order of training is drawn. It is the seed of a cell, whatever its problem says of itself."""
    problem: Problem
    model: Model
    optimizer: torch.optim.Optimizer
    gradient_norm: GradientNorm
    averaged_model: AveragedModel | None
    """The mean of the weights after the last steps (Izmailov et al., UAI 2018); None: the recipe takes none."""
    steps: int
    """How many steps an epoch has."""
    device: torch.device

    @property
    def states(self) -> dict[str, Any]:
        """What a checkpoint holds."""
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

        With `average_last` it is the mean of the last weights. Before the first of them it is the
        trained model.
        """
        if self.averaged_model is None or int(self.averaged_model.n_averaged) == 0:
            return self.model
        averaged: Model = self.averaged_model.module  # type: ignore[assignment]
        return averaged

    def train_batches(self, epoch: int) -> Iterator[Bags]:
        """Return the batches of an epoch (from 0), which depend on task, seed and epoch alone."""
        rng = generator("bags", self.problem.task_name, self.seed, epoch)
        return self.problem.train_batches(epoch, rng)

    def descend(self, value: Tensor, step: int) -> Tensor:
        """Update the weights by the loss () of a batch, at a step (from 0) of all; return () bool, whether clipped."""
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
            # psgd has a limit of its own, and says whether it shortened the step.
            clipped = clipped | optimizer.clipped
        return clipped

    @property
    def _first_averaged_step(self) -> int:
        """The first step whose weights are averaged. Those of the last step always are."""
        share = self.recipe.average_last or 0.0
        return self.all_steps - max(1, math.floor(share * self.all_steps))


def has_own_backward(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimiser has a `backward` of its own: psgd, which differentiates twice."""
    return hasattr(optimizer, "backward")


def setup_for_cell(
    cell: Cell, device: torch.device, data_dir: Path | None, *, one_thread_if_small: bool = False
) -> Setup:
    """Return the parts of the training of a cell, before its first step.

    With `one_thread_if_small` PyTorch gets one thread of the CPU where a step is small: more gain
    nothing then, and wait for each other where other work takes the cores. Raises UsageError where
    a plug-in file or the data have changed.
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
    # No built-in loss draws from the global generator, but a plug-in may: it too must depend on the
    # seed alone.
    torch.manual_seed(cell.seed)
    loss = build_loss(unbuilt_loss(cell), problem, cell.seed).to(device)
    # Again: what the loss has drawn must not change the network.
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

    They are made of a problem, a new network on the CPU and a loss on the device, which was built
    for the problem.
    """
    if recipe.head_init == "prior" and loss.head != "class":
        network.start_at_prior(typical_positions(network, problem))
    model = Model(network.move_to(device), loss)
    make_optimizer = optimizers().get(recipe.optimizer)
    averaged_model = None
    if recipe.average_last is not None:
        # Without this function torch averages in one operation, which refuses the whole number that
        # BatchNorm counts.
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

    `setup_for_cell` calls it for the loss of a cell, and BagClassifier for its own. The weights of
    the loss are made anew. The classes are counted only where the loss needs that.
    """
    counts = None
    if loss.needs_class_counts:
        counts = training_counts(problem, seed)
    return loss.build(
        problem.format.num_classes, seed, max_labels=problem.max_labels, class_counts=counts
    )


def training_counts(problem: Problem, seed: int) -> ClassCounts:
    """Return how often each class occurs in the training bags, as training sees them in its first epoch."""
    batches = problem.train_batches(0, generator("bags", problem.task_name, seed, 0))
    bags_with_class = torch.zeros(problem.format.num_classes, dtype=torch.int64)
    bags = 0
    for batch in islice(batches, problem.steps_per_epoch):
        bags_with_class += batch.labels.bool().sum(dim=0).cpu()
        bags += len(batch.labels)
    return ClassCounts(bags_with_class, bags)


def task_for(cell: Cell) -> Task:
    """Return the task of a cell, a description without its data."""
    name = resolve(tasks(), cell.task.reference)
    task: Task = tasks().create_for_cell(name, cell.task.params)
    return task


def unbuilt_loss(cell: Cell) -> Loss:
    """Return the loss of a cell, on the CPU, which knows nothing of the training bags yet.

    Training builds it by `build_loss`; the check of a launch and a trained cell build it by what
    they know of the bags.
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

    Weights from a file, which its parameter `weights` names, are read where they are `initial`.
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
    """Return the path of a file of initial weights. Raises UsageError where it is not that of the plan."""
    path = find_file(reference, data_dir, "network.weights")
    digest = file_digest(path, "sha256")[:16]
    if not choice.revision.endswith(digest):
        raise UsageError(
            f"{path} was changed after the cell was planned; run the same command again"
        )
    return str(path)


def typical_positions(network: Network, problem: Problem) -> int:
    """Return how many positions a network has in a typical training bag. Raises UsageError where it does not suit."""
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
    """Return a typical bag of a problem, of zeros."""
    instances = torch.zeros(1, *problem.typical_shape)
    labels = torch.zeros(1, problem.format.num_classes, dtype=torch.bool)
    return Bags(instances, labels)


@torch.no_grad()
def _evaluated(network: Network, bags: Bags) -> Tensor:
    """Return the logits of a network in evaluation, and leave it in the mode in which it was."""
    was_training = network.training
    logits = network.eval().logits_of(bags)
    network.train(was_training)
    return logits


def check_max_labels(problem: Problem, bags: Bags) -> None:
    """Raise UsageError if a training bag has more classes than the problem says. On a GPU this waits for the device."""
    counts = bags.labels.sum(dim=1)
    if problem.max_labels is not None and (counts > problem.max_labels).any():
        bag = int(counts.argmax())
        raise UsageError(
            f"max_labels of task {problem.task_name} is {problem.max_labels}, but bag {bag} of a training batch has "
            f"{int(counts[bag])} classes; expected the largest number of classes in a bag, or more, or None"
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
            # A network of a task has no entry.
            continue
        record = entry.record
        if record.digest.startswith(INSTALLED) and not record.files:
            # The id of the cell names the version of an installed package. Another version may
            # still load the cell.
            continue
        # A class of a notebook came with the cell to this machine. The files that it uses may not
        # be here.
        check_as_planned(f"{kind} {name}", record, elsewhere=not entry.source)
        # The plan has added the digest of initial weights, which `_initial_weights` checks.
        revision = choice.revision.partition(" weights ")[0]
        if not revision.endswith(record.digest):
            raise UsageError(
                f"{choice.source or name} was changed after the cell was planned, or what it imports; "
                "run the same command again"
            )


def training_logits(setup: Setup, bags: Bags) -> Tensor:
    """Return the logits (B, C+1, *positions) of training, in the precision of the loss."""
    half = setup.recipe.precision == "bfloat16"
    # The fused kernels of attention have no second derivatives, which psgd needs.
    needs_second_derivatives = has_own_backward(setup.optimizer)
    with sdpa_kernel(SDPBackend.MATH) if needs_second_derivatives else nullcontext():
        logits = network_logits(setup.model.network, bags, setup.device, half=half)
    return logits.double() if setup.recipe.loss_precision == "float64" else logits


def network_logits(
    network: Network, bags: Bags, device: torch.device, *, half: bool = False
) -> Tensor:
    """Return the logits (B, C+1, *positions) float32 of B bags on the device, computed in bfloat16 where `half`."""
    with torch.autocast(device.type, torch.bfloat16) if half else nullcontext():
        logits = network.logits_of(bags)
    return logits.float()
