"""Train and evaluate one cell, from its last checkpoint where there is one: batches, logits, loss, step."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from milbench._utils.files import write_atomically
from milbench._utils.seeding import generator
from milbench.api.bags import Bags
from milbench.api.loss import Loss
from milbench.api.metric_info import INTERIM
from milbench.api.outcomes import save_outcomes
from milbench.api.plan import Cell
from milbench.api.recipe import Recipe
from milbench.api.reliability import save_reliability
from milbench.api.targets import make_target
from milbench.api.task import Evaluation, Network, ScoreFunction, Scores, Task
from milbench.engine.averaging import Averaging
from milbench.engine.cell import CellFolder
from milbench.engine.checkpoint import Counters, restore, save
from milbench.engine.clipping import Clipping
from milbench.engine.costs import costs_of, reset_memory_peak
from milbench.engine.gallery_writer import save_gallery
from milbench.engine.optimizers import learning_rate, make_optimizer
from milbench.engine.parts import (
    check_data_unchanged,
    check_finite,
    check_max_labels,
    check_unchanged,
    loss_for,
    network_for,
    network_logits,
    task_for,
)
from milbench.engine.progress import Progress
from milbench.engine.psgd import KroneckerPSGD
from milbench.evaluation.evaluate import EVEN_ODDS, THRESHOLD

CHECKPOINT_INTERVAL = 60.0  # least seconds between checkpoints inside an epoch: a killed run loses this much work


@dataclass(frozen=True)
class Setup:
    """What a training is made of, on its device."""

    cell: Cell
    recipe: Recipe
    task: Task  # prepared
    loss: Loss
    network: Network
    model: torch.nn.ModuleDict  # both: the weights of a loss are trained and stored together with the network's
    optimizer: torch.optim.Optimizer
    clipping: Clipping
    averaging: Averaging
    steps: int  # of an epoch
    device: torch.device

    @property
    def states(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {name: getattr(self, name) for name in ("model", "optimizer", "clipping", "averaging")}


def train(cell: Cell, folder: CellFolder, device: torch.device, data_dir: Path | None) -> dict[str, Any]:
    """Train to the last epoch, from the checkpoint of the folder, write the results into it, return its `result`.

    Raises:
        FloatingPointError: logits or loss are not finite; the message names the epoch and the step.
        UsageError: a plug-in file was changed since the cell was planned, or the task does not suit the loss.
        TypeError: the task's `evaluate` returns something else than an Evaluation.
    """
    it = set_up(cell, device, data_dir)
    at = restore(folder.checkpoint, it.states, device)
    folder.cut_history(at.epoch)
    progress = Progress(folder, it.recipe.epochs, it.steps, at)
    found = None
    while at.epoch < it.recipe.epochs:
        train_epoch(it, at, folder, progress)
        with it.averaging.applied():
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
        if at.epoch + 1 == it.recipe.epochs:
            keep_evaluation(folder, found)
        at.begin_next_epoch()
        save(folder.checkpoint, at, it.states, device)
    it.averaging.apply()
    return finish(it, folder, progress, found or evaluate(it, at.epoch, progress))  # anew only if killed just here


def train_epoch(it: Setup, at: Counters, folder: CellFolder, progress: Progress) -> None:
    """Make the steps of an epoch that are left, with a checkpoint every minute."""
    it.network.train()
    batches = islice(it.task.train_batches(at.epoch, batch_generator(it, at.epoch)), it.steps)
    for _ in range(at.step):  # before the checkpoint
        next(batches)
    # It continues the sum of the checkpoint in the same order, so that a resumed run gives the identical sum.
    total = torch.tensor([at.loss_sum, at.clipped], dtype=torch.float64, device=it.device)
    begun, seconds, saved = time.perf_counter(), at.seconds, time.monotonic()
    for bags in batches:
        total += train_step(it, bags, at.epoch * it.steps + at.step)
        at.step += 1
        is_old = time.monotonic() - saved > CHECKPOINT_INTERVAL
        if is_old or progress.is_due() or at.step == it.steps:  # nowhere else the host waits for the device
            at.loss_sum, at.clipped = total.tolist()
            at.seconds = seconds + time.perf_counter() - begun
            if not math.isfinite(at.loss_sum):
                raise FloatingPointError(f"the loss: not finite by epoch {at.epoch + 1}, step {at.step}")
            progress.trained(at)
        if is_old and at.step < it.steps:
            save(folder.checkpoint, at, it.states, it.device)
            saved = time.monotonic()


def train_step(it: Setup, bags: Bags, done: int) -> Tensor:
    """Make a step after `done` steps of the whole training.

    Returns:
        (2,), the loss before it, and 1 where its gradient was shortened, else 0.
    """
    for group in it.optimizer.param_groups:
        group["lr"] = learning_rate(it.recipe, done, it.recipe.epochs * it.steps)
    # A check of every value makes the host wait for a GPU: there it is done for the first batch alone.
    it.loss.validate = it.device.type == "cpu" or done == 0
    if it.loss.validate:
        check_max_labels(it.task, bags)
    it.optimizer.zero_grad(set_to_none=True)
    logits = check_finite("logits", training_logits(it, bags), done, it.steps)
    target = make_target(it.loss.target_kind, bags, logits, it.network)
    losses = it.loss(logits, bags.labels, bags.mask, target)
    loss = check_finite("loss", losses, done, it.steps).mean()
    if isinstance(it.optimizer, KroneckerPSGD):
        it.optimizer.backward(loss)  # the gradient, and the Hessian-vector product
    else:
        loss.backward()
    clipped = it.clipping.apply([p for group in it.optimizer.param_groups for p in group["params"]])
    it.optimizer.step()
    if isinstance(it.optimizer, KroneckerPSGD):
        clipped = clipped | (it.optimizer.clipped > 0)
    it.averaging.count(done + 1)
    return torch.stack([loss.detach(), clipped.to(loss)])


def training_logits(it: Setup, bags: Bags) -> Tensor:
    """Return the logits (B, C+1, *positions) of training, in the precision of the loss."""
    logits = network_logits(it.network, bags, it.device, half=it.recipe.precision == "bfloat16")
    return logits.double() if it.recipe.loss_precision == "float64" else logits


def batch_generator(it: Setup, epoch: int) -> torch.Generator:
    """Return the generator of an epoch's batches (from 0): of task, seed and epoch, but not of the loss."""
    return generator("bags", it.task.name, it.cell.seed, epoch)


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
    return _assembled(cell, recipe, task, loss_for(cell, task).to(device), device)


def _assembled(cell: Cell, recipe: Recipe, task: Task, loss: Loss, device: torch.device) -> Setup:
    loss.max_labels = task.max_labels
    torch.manual_seed(cell.seed)  # again: what the loss has drawn must not change the network
    network = network_for(loss, task, cell.seed, recipe.head_init).move_to(device)
    model = torch.nn.ModuleDict({"network": network, "loss": loss})
    steps = min(recipe.steps_per_epoch or task.steps_per_epoch, task.steps_per_epoch)
    return Setup(
        cell=cell,
        recipe=recipe,
        task=task,
        loss=loss,
        network=network,
        model=model,
        optimizer=make_optimizer(model, recipe, cell.seed),
        clipping=Clipping(recipe),
        averaging=Averaging(recipe, model, recipe.epochs * steps),
        steps=steps,
        device=device,
    )


def fit(task: Task, loss: Loss, recipe: Recipe, seed: int, device: torch.device, scratch: Path) -> tuple[Network, Loss]:
    """Train on the bags of a prepared task as a cell is trained, without its evaluations and results.

    The weights of the loss are made anew; progress is written into an empty folder, `scratch`.

    Raises:
        FloatingPointError: logits or loss are not finite; the message names the epoch and the step.
    """
    cell = Cell(loss.name, {}, "", loss.supervision, task.name, {}, "", "", recipe.model_dump(), seed)
    torch.manual_seed(seed)
    loss = loss.build(task.num_classes, seed).to(device)
    loss.reduction = "none"
    it = _assembled(cell, recipe, task, loss, device)
    folder, at = CellFolder(scratch), Counters()
    progress = Progress(folder, recipe.epochs, it.steps, at)
    while at.epoch < recipe.epochs:
        train_epoch(it, at, folder, progress)
        at.begin_next_epoch()
    it.averaging.apply()
    return it.network.eval(), loss


def score_function(it: Setup, progress: Progress | None = None, *, half: bool = False) -> ScoreFunction:
    """Return the function from bags to their scores by which a task evaluates a network and its loss."""
    network, loss = it.network, it.loss

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        network.eval()
        if progress is not None:
            progress.scored(len(bags))
        logits = network_logits(network, bags, it.device, half=half)
        presence = loss.presence_scores(logits, bags.mask)
        return Scores(
            loss.class_scores(logits, bags.mask),
            presence,
            loss.instance_probs(logits, bags.mask),
            loss.instance_evidence(logits, bags.mask),
            loss.label_log_prob(logits, bags.labels, bags.mask),
            loss.label_log_prob(logits, presence >= EVEN_ODDS, bags.mask),
            presence if loss.presence_is_log_odds else None,
        )

    return score


def evaluate(it: Setup, epoch: int, progress: Progress) -> Evaluation:
    """Return the evaluation after an epoch (from 1), without metrics where the recipe asks for none."""
    recipe = it.recipe
    if epoch not in recipe.evaluated_epochs():
        return Evaluation({})
    interim = recipe.interim_bags is not None and epoch < recipe.epochs
    limits = [recipe.evaluation_bags, recipe.interim_bags if interim else None]
    it.task.evaluation_limit = min((limit for limit in limits if limit is not None), default=None)
    half = interim and recipe.precision == "bfloat16"
    found: object = it.task.evaluate(score_function(it, progress, half=half))
    if not isinstance(found, Evaluation):
        raise TypeError(f"evaluate of task {it.task.name} must return milbench.Evaluation, got {type(found).__name__}")
    return replace(found, metrics={f"{INTERIM}{k}": v for k, v in found.metrics.items()}) if interim else found


def keep_evaluation(folder: CellFolder, found: Evaluation) -> None:
    """Write what the last evaluation found besides metrics."""
    if found.decoder is not None:
        folder.decoder.write_text(json.dumps(found.decoder, allow_nan=False) + "\n", "utf-8")
    if found.outcomes:
        save_outcomes(folder.outcomes, found.outcomes)
    if found.reliability:
        save_reliability(folder.reliability, found.reliability)


def finish(it: Setup, folder: CellFolder, progress: Progress, last: Evaluation) -> dict[str, Any]:
    """Write the weights, the gallery and what the task must remember; return the costs and what was chosen."""
    it.network.eval()  # what follows must not change statistics over batches
    weights = {k: v.detach().cpu().contiguous().clone() for k, v in it.model.state_dict().items()}
    content = save_tensors(weights, metadata=about(it.cell, it.task))
    write_atomically(folder.weights, lambda path: path.write_bytes(content))
    save_gallery(folder.gallery, it.task, it.network, it.loss, score_function(it, progress), last)
    if memory := it.task.memory():
        folder.memory.write_text(json.dumps(memory, allow_nan=False) + "\n", "utf-8")
    bags = next(iter(it.task.train_batches(0, batch_generator(it, 0))))
    with torch.no_grad():
        logits = training_logits(it, bags)
    target = make_target(it.loss.target_kind, bags, logits, it.network)
    return {
        "costs": costs_of(folder.history(), it.loss, logits, bags, target),
        "threshold": last.metrics.get(THRESHOLD),
        "decoder": str((last.decoder or {}).get("decoder", "")),
        "classes": it.task.class_names,
    }


def about(cell: Cell, task: Task) -> dict[str, str]:
    """Return what a file of weights says of itself, for who finds it alone: one entry, as their order is random."""
    content = {
        "name": str(cell),
        "cell": cell.id,
        "loss": {cell.loss: cell.loss_params},
        "task": {cell.task: cell.task_params},
        "data": cell.data,
        "classes": task.class_names,
        "licence": "MIT, as milbench; the licence of the training data may restrict what is done with the weights",
    }
    return {"milbench": json.dumps(content)}
