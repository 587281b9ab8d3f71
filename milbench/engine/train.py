"""Train and evaluate one cell, from its last checkpoint where there is one: batches, logits, loss, step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.api.plan import Cell
from milbench.api.recipe import Recipe
from milbench.api.targets import make_target
from milbench.api.task import Network, Task
from milbench.engine.cell import CellFolder
from milbench.engine.checkpoint import Checkpoint, Counters
from milbench.engine.evaluate import evaluate, keep_results
from milbench.engine.parts import Setup, assembled, check_finite, check_max_labels, set_up, training_logits
from milbench.engine.progress import Progress
from milbench.optimizers.psgd import KroneckerPSGD
from milbench.optimizers.registry import learning_rate

LOOK_INTERVAL = 0.5  # least seconds between two looks at the loss, each of which makes the host wait for the device


def train(cell: Cell, folder: CellFolder, device: torch.device, data_dir: Path | None) -> dict[str, Any]:
    """Train to the last epoch, from the checkpoint of the folder, write the results into it, return its `result`.

    Raises:
        FloatingPointError: logits or loss are not finite; the message names the epoch and the step.
        UsageError: a plug-in file was changed since the cell was planned, or the task does not suit the loss.
        TypeError: the task's `evaluate` returns something else than an Evaluation.
    """
    it = set_up(cell, device, data_dir)
    checkpoint = Checkpoint(folder.checkpoint, it.states, device)
    at = checkpoint.restore()
    folder.cut_history(at.epoch)
    progress = Progress(folder, it.recipe.epochs, it.steps, at)

    def report(at: Counters) -> None:
        progress.trained(at)
        checkpoint.save_if_old(at)

    while True:
        train_epoch(it, at, report)
        found = evaluate(it, at.epoch + 1, progress)
        metrics = {
            "train/loss": at.loss_sum / at.step,
            "train/clipped": at.clipped / at.step,
            **found.metrics,
            "cost/train_seconds": at.seconds,
            "cost/step_seconds": at.seconds / at.step,
        }
        folder.append(at.epoch + 1, metrics)
        progress.evaluated(metrics)
        at = Counters(at.epoch + 1)
        if at.epoch == it.recipe.epochs:
            return keep_results(it, folder, found)
        checkpoint.save(at)


def train_epoch(it: Setup, at: Counters, report: Callable[[Counters], None]) -> None:
    """Make the steps of an epoch that are left; report how far it is every half second, and at its end."""
    it.model.network.train()
    batches = islice(it.train_batches(at.epoch), it.steps)
    for _ in range(at.step):  # before the checkpoint
        next(batches)
    # It continues the sum of the checkpoint in the same order, so that a resumed run gives the identical sum.
    total = torch.tensor([at.loss_sum, at.clipped], dtype=torch.float64, device=it.device)
    begun, seconds, looked = time.perf_counter(), at.seconds, time.monotonic()
    for bags in batches:
        total += train_step(it, bags, at.epoch * it.steps + at.step)
        at.step += 1
        if at.step == it.steps or time.monotonic() - looked > LOOK_INTERVAL:  # else the host waits for no device
            looked = time.monotonic()
            at.loss_sum, at.clipped = total.tolist()
            at.seconds = seconds + time.perf_counter() - begun
            if not math.isfinite(at.loss_sum):
                raise FloatingPointError(f"the loss: not finite by epoch {at.epoch + 1}, step {at.step}")
            report(at)


def train_step(it: Setup, bags: Bags, done: int) -> Tensor:
    """Make a step after `done` others; return (2,): the loss before it, and 1 where its gradient was shortened."""
    network, loss, optimizer = it.model.network, it.model.loss, it.optimizer
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(it.recipe, done, it.recipe.epochs * it.steps)
    loss.validate = it.device.type == "cpu" or done == 0  # for a check of every value the host would wait for a GPU
    if loss.validate:
        check_max_labels(it.task, bags)
    optimizer.zero_grad(set_to_none=True)
    logits = check_finite("logits", training_logits(it, bags), done, it.steps)
    target = make_target(loss, bags, logits, network)
    value = check_finite("loss", loss(logits, bags.labels, bags.mask, target), done, it.steps).mean()
    if isinstance(optimizer, KroneckerPSGD):
        optimizer.backward(value)  # the gradient, and the Hessian-vector product
    else:
        value.backward()
    shortened = it.clipping.apply([p for group in optimizer.param_groups for p in group["params"]])
    optimizer.step()
    if isinstance(optimizer, KroneckerPSGD):
        shortened = shortened | (optimizer.clipped > 0)
    if it.mean is not None and done >= it.first_averaged:
        it.mean.update_parameters(it.model)
    return torch.stack([value.detach(), shortened.to(value)])


def fit(task: Task, loss: Loss, recipe: Recipe, seed: int, device: torch.device) -> tuple[Network, Loss]:
    """Train on the bags of a prepared task as a cell is trained, without its evaluations and results.

    The weights of the loss are made anew.

    Raises:
        FloatingPointError: logits or loss are not finite; the message names the epoch and the step.
    """
    cell = Cell(loss.name, {}, "", loss.supervision, task.name, {}, "", "", recipe.model_dump(), seed)
    torch.manual_seed(seed)
    loss = loss.build(task.num_classes, seed).to(device)
    loss.reduction = "none"
    it = assembled(cell, recipe, task, loss, device)
    for epoch in range(recipe.epochs):
        train_epoch(it, Counters(epoch), lambda _: None)
    return it.kept.network.eval(), it.kept.loss
