"""The check of a launch: it tries every loss on the first batch of every task.

It takes place before any cell is computed, so that mistakes show at once.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from milbench._utils.process import process_as_before
from milbench._utils.seeding import generator
from milbench.contracts.bags import Bags
from milbench.contracts.criterion import bag_losses, score
from milbench.contracts.loss import ClassCounts, Loss
from milbench.contracts.loss_checks import fault
from milbench.contracts.network import Network
from milbench.contracts.problem import Problem
from milbench.contracts.registry import tasks
from milbench.contracts.resolver import resolve
from milbench.contracts.targets import make_target
from milbench.contracts.task import Task
from milbench.errors import UsageError
from milbench.experiment.cell import Cell
from milbench.experiment.choices import to_json
from milbench.networks.bag_network import BagNetwork
from milbench.networks.known_networks import suitable_networks
from milbench.processes.fresh import FreshProcesses, ProcessDied
from milbench.processes.host import announce_limit
from milbench.running.cells_in_processes import apply
from milbench.running.worker import Job, describe_error, register_plugins, set_torch_defaults
from milbench.training.training_setup import (
    check_max_labels,
    multiplications,
    network_for,
    typical_positions,
    unbuilt_loss,
)

SUM_TOLERANCE = 1e-3
"""How far the sum of a position's probabilities may be from 1, in single precision."""
MANY_POSITIONS = 1024
"""If a typical bag has more positions than this, a network with self-attention gets a warning."""
LIMIT = 120.0
"""Seconds after which the process of a check is killed."""


@dataclass(frozen=True)
class CheckResult:
    """What the check of a loss on a task has found."""

    error: str = ""
    """Why the launch cannot go on, in one line; "" if it can."""
    warnings: list[str] = field(default_factory=list)


def check_all(jobs: Sequence[Job], processes: FreshProcesses, at_once: int) -> list[str]:
    """Try every loss on the first batch of every task, in fresh processes. Return the warnings.

    Raises UsageError if a loss does not suit a task or returns something wrong, or if a network
    fails. Any other error of a loss or a task, even one that ends the process, does not stop the
    launch: the cells with this loss or task will fail, and all other cells run.
    """
    distinct = _distinct(jobs)
    result_of: dict[str, CheckResult] = {}
    if distinct[0].execution.in_process:
        for job in distinct:
            result_of[job.cell.id] = check(job)
    else:
        for end in apply(_check_group, _groups(distinct), processes, at_once):
            # If the process died, there is no result, and the cells will show why.
            if not isinstance(end.outcome, ProcessDied):
                result_of |= end.outcome
    # In the order of the plan, since processes end in any order.
    results = [result_of[job.cell.id] for job in distinct if job.cell.id in result_of]
    warnings: list[str] = []
    for result in results:
        if result.error:
            raise UsageError(result.error)
        warnings += result.warnings
    # Each warning once: losses with the same network on a task share the warning about its cost.
    return list(dict.fromkeys(warnings))


def _distinct(jobs: Sequence[Job]) -> list[Job]:
    """Return one job for each loss, network and task. The other jobs differ in seed or recipe."""
    by_settings: dict[str, Job] = {}
    for job in jobs:
        loss = job.cell.loss
        network = job.cell.network
        settings = [loss.name, loss.params, network.name, network.params, job.cell.task.key]
        by_settings[to_json(settings)] = job
    return list(by_settings.values())


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return groups of jobs, each of which is checked in one process.

    The jobs of a task are a group, so that its data are loaded once. A job with a plug-in is a
    group of its own, so that nothing the plug-in does can make another check fail.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        has_plugin = job.cell.plugin_files or job.notebook_plugins
        key = job.cell.id if has_plugin else job.cell.task.key
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def _check_group(jobs: Sequence[Job]) -> dict[str, CheckResult]:
    """Check jobs in this process, and return cell id -> the result.

    The process is killed if one of the checks takes too long.
    """
    results: dict[str, CheckResult] = {}
    for job in jobs:
        announce_limit(min(LIMIT, job.execution.timeout or LIMIT))
        results[job.cell.id] = check(job)
    return results


def check(job: Job) -> CheckResult:
    """Check the loss and the network of a cell on the first batch of its task."""
    cell = job.cell
    subject = f"{cell.loss} with network {cell.network} on the first batch of {cell.task}"
    set_torch_defaults(job.threads)
    try:
        with process_as_before():
            return CheckResult(warnings=_try_first_batch(job, subject))
    except UsageError as error:
        return CheckResult(f"{subject}: {error}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and job.execution.in_process:
            # The user has pressed Ctrl-C.
            raise
        # The cell will raise the same error, and record it.
        return CheckResult()


def _try_first_batch(job: Job, subject: str) -> list[str]:
    """Return warnings about the loss of a cell and about the cost of its network.

    `subject` names the loss, network and task in messages. Raises UsageError if training cannot use
    the loss or the network.
    """
    cell = job.cell
    register_plugins(job)
    task, problem, bags = _first_batch(
        cell.task.reference,
        to_json(cell.task.params),
        cell.seed,
        job.execution.data_dir,
        cell.task.revision,
        cell.task.data,
    )
    if job.is_draw and "validation" not in problem.splits:
        raise UsageError(
            "a search needs validation bags, and the task has none; "
            "task.validation=0.1 holds some of a table out"
        )
    check_max_labels(problem, bags)
    loss = _loss_for_batch(cell, problem, bags)
    try:
        network = network_for(cell, task, problem.format, loss, job.execution.data_dir)
        positions = _typical_positions(network, task, problem, loss)
        if cell.recipe.head_init == "prior" and loss.head != "class":
            network.start_at_prior(positions)
        with torch.no_grad():
            logits = network.logits_of(bags).float()
    except UsageError:
        raise
    except Exception as error:
        # An error of a loss leaves other cells alone. This one ends the launch, since the network
        # would fail in every cell.
        raise UsageError(f"the network fails: {describe_error(error, job)}") from error
    _check_positions(bags, logits)
    no_gradient = _check_training(loss, network, bags, logits)
    masked_bags = replace(bags, mask=network.mask_of(bags))
    with torch.no_grad():
        _check_scores(loss, masked_bags, logits)

    warnings = []
    cost = _attention_cost(network, problem, positions)
    if cost:
        warnings.append(f"{cell.network} on {cell.task} {cost}")
    if no_gradient:
        warnings.append(f"{subject}: {no_gradient}")
    return warnings


def _loss_for_batch(cell: Cell, problem: Problem, bags: Bags) -> Loss:
    """Return the loss of a cell, built with the class counts of one batch.

    Training counts the classes of all bags, but one batch is enough to see whether the loss can be
    computed at all.
    """
    counts = ClassCounts(bags.labels.bool().sum(dim=0), bags=len(bags))
    return unbuilt_loss(cell).build(
        problem.format.num_classes,
        cell.seed,
        max_labels=problem.max_labels,
        class_counts=counts,
    )


def _typical_positions(network: Network, task: Task, problem: Problem, loss: Loss) -> int:
    """Return how many positions a typical bag has in the network.

    Raises UsageError, which lists suitable networks, if the network does not suit the task.
    """
    try:
        return typical_positions(network, problem)
    except UsageError as error:
        suitable = ", ".join(suitable_networks(task, loss.head))
        raise UsageError(f"{error} (there are: {suitable})") from error


def _check_positions(bags: Bags, logits: Tensor) -> None:
    """Raise UsageError if a bag has more classes than positions, each of which shows one class."""
    classes = int(bags.labels.sum(dim=1).max())
    positions = logits.shape[2:].numel()
    if classes > positions:
        shape = tuple(bags.instances.shape[1:])
        raise UsageError(
            f"a bag has {classes} classes, and the network {positions} positions in {shape}: "
            "choose larger bags, another network or a smaller network.stride"
        )


def _attention_cost(network: Network, problem: Problem, positions: int) -> str:
    """Say what self-attention costs in a typical bag.

    It is "" if the network has no self-attention, or the bag has few positions.
    """
    if not isinstance(network, BagNetwork) or positions <= MANY_POSITIONS:
        return ""
    attention = network.self_attention
    if attention is None:
        return ""
    bags = problem.batch_bags
    pairs = bags * positions**2
    # Each pair of positions needs two products: of its query and key, and of its weight and value.
    multiplications_of_layer = 2 * pairs * attention.width
    encoder = ""
    if network.encoder is not None:
        multiplications_of_encoder = bags * multiplications(network.encoder, problem)
        encoder = f" (all of its encoder: {multiplications_of_encoder / 1e9:,.3g} billion)"
    # A weight in single precision has 4 bytes. The fused attention of torch does not store the
    # weights, but it has no second derivatives, which the optimiser psgd needs.
    bytes_of_weights = 4 * pairs * attention.heads
    return (
        f"attends among {positions:,} positions: "
        f"{multiplications_of_layer / 1e9:,.3g} billion multiplications "
        f"a layer for a batch of {bags}{encoder}, "
        f"and at least {bytes_of_weights / 1e6:,.0f} MB of memory where torch "
        "cannot fuse them, as for the optimiser psgd; both grow with the square of the positions"
    )


def _check_training(loss: Loss, network: Network, bags: Bags, logits: Tensor) -> str:
    """Return a warning if the first batch teaches nothing, else "".

    Raises UsageError if the loss or its gradient is not finite, or there is no gradient.
    """
    method = "target_loss" if loss.takes_target else "bag_loss"
    target = make_target(loss, bags, logits, network)
    logits = logits.clone().requires_grad_()
    mask = network.mask_of(bags)
    values = bag_losses(loss, logits, bags.labels, mask, target, check_values=True)
    _check_all_finite(loss, method, "finite values", values)
    (gradient,) = torch.autograd.grad(values.sum(), logits, allow_unused=True)
    if gradient is None:
        raise fault(
            loss, method, "values with a gradient", "values that do not depend on the logits"
        )
    _check_all_finite(loss, method, "values with a finite gradient", gradient)
    # If all label sets are empty, or all have every class, a gradient of 0 may be right.
    has_some_labels = bags.labels.any() and not bags.labels.all()
    if has_some_labels and not gradient.any():
        return f"{method} has a gradient of 0 for all of the {len(bags)} bags before training"
    return ""


def _check_all_finite(loss: Loss, method: str, expected: str, values: Tensor) -> None:
    """Raise UsageError, which says in how many bags, if a value is not finite.

    `values` has the shape (B, ...) for B bags.
    """
    is_bad = ~torch.isfinite(values)
    if is_bad.any():
        bad_bags = int(is_bad.reshape(len(values), -1).any(dim=1).sum())
        example = values[is_bad][0].item()
        raise fault(loss, method, expected, f"{example} for {bad_bags} of {len(values)} bags")


def _check_scores(loss: Loss, bags: Bags, logits: Tensor) -> None:
    """Raise UsageError if a score is NaN, or the posterior of a position is no distribution."""
    scores = score(loss, logits, bags.mask, check_values=True)
    compared = {"scores": scores.classes, "presence": scores.presence, "evidence": scores.evidence}
    for method, values in compared.items():
        if values.isnan().any():
            raise fault(loss, method, "values that can be compared", "nan")
    probs = scores.instances
    if not (probs >= 0).all() or not (probs <= 1 + SUM_TOLERANCE).all():
        found = f"values from {probs.min():.3g} to {probs.max():.3g}"
        raise fault(loss, "posterior", "probabilities", found)
    sums = probs.sum(dim=1)
    if (sums - 1).abs().max() > SUM_TOLERANCE:
        found = f"sums from {sums.min():.3g} to {sums.max():.3g}"
        raise fault(loss, "posterior", "probabilities that sum to 1 over the channels", found)


@lru_cache(maxsize=1)
def _first_batch(
    name: str,
    params: str,
    seed: int,
    data_dir: Path | None,
    task_revision: str,  # noqa: ARG001
    data_version: str,  # noqa: ARG001
) -> tuple[Task, Problem, Bags]:
    """Return a task, its problem and its first batch.

    They are kept for the next job on the same task. `task_revision` and `data_version` are only
    part of the key of this cache: if either changes, the data are loaded again.
    """
    task: Task = tasks().create_for_cell(resolve(tasks(), name), json.loads(params))
    problem = task.load(data_dir, seed)
    batches = problem.train_batches(0, generator("bags", problem.task_name, seed, 0))
    return task, problem, next(iter(batches))
