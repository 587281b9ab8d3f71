"""Train and evaluate one cell, from its last checkpoint where there is one: batches, logits, loss, step."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors

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

CHECKPOINT_INTERVAL = 60.0
"""Least seconds between checkpoints inside an epoch: a killed run loses this much work."""


def train(cell: Cell, folder: CellFolder, device: torch.device, data_dir: Path | None) -> dict[str, Any]:  # noqa: C901
    """Train to the last epoch, with the evaluations that the recipe asks for, and write the results into the folder.

    Args:
        cell: what to train.
        folder: where history, checkpoint and results are; training goes on from its checkpoint.
        device: of the network, the loss and the data.
        data_dir: the folder of the task's data; None: the default one.

    Returns:
        What `CellFolder.finish` keeps.

    Raises:
        FloatingPointError: logits or loss are not finite; the message names the epoch and the step.
        UsageError: a plug-in file was changed since the cell was planned, or the task does not suit the loss.
        TypeError: the task's `evaluate` returns something else than an Evaluation.
    """
    recipe = Recipe(**cell.recipe)
    task, loss, network = build(cell, recipe, device, data_dir)
    # A loss may have weights of its own, which are trained, clipped and stored together with the network's.
    model = torch.nn.ModuleDict({"network": network, "loss": loss})
    optimizer = make_optimizer(model, recipe, cell.seed)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    clipping = Clipping.of(recipe)
    steps = min(recipe.steps_per_epoch or task.steps_per_epoch, task.steps_per_epoch)
    averaging = Averaging.of(recipe, model, recipe.epochs * steps)
    states = {"model": model, "optimizer": optimizer, "clipping": clipping, "averaging": averaging}
    at = restore(folder.checkpoint, states, device) or Counters()
    folder.cut_history(at.epoch)
    progress = Progress(folder, recipe.epochs, steps, at)
    saved = time.monotonic()

    while at.epoch < recipe.epochs:
        network.train()
        batches = islice(task.train_batches(at.epoch, generator("bags", task.name, cell.seed, at.epoch)), steps)
        for _ in range(at.step):  # before the checkpoint
            next(batches)
        # It continues the sum of the checkpoint in the same order, so that a resumed run gives the identical sum.
        total = torch.tensor([at.loss_sum, at.clipped], dtype=torch.float64, device=device)
        begun, seconds = time.perf_counter(), at.seconds

        for bags in batches:
            done = at.epoch * steps + at.step
            where = f"epoch {at.epoch + 1}, step {at.step + 1}"
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(recipe, done, recipe.epochs * steps)
            # A check of every value makes the host wait for a GPU: there it is done for the first batch alone.
            loss.validate = device.type == "cpu" or done == 0
            if loss.validate:
                check_max_labels(task, bags)
            optimizer.zero_grad(set_to_none=True)
            logits = network_logits(network, bags, device, half=recipe.precision == "bfloat16")
            logits = check_finite("logits", logits.double() if recipe.loss_precision == "float64" else logits, where)
            target = make_target(loss.target_kind, bags, logits, network)
            value = check_finite("loss", loss(logits, bags.labels, bags.mask, target), where).mean()
            if isinstance(optimizer, KroneckerPSGD):
                optimizer.backward(value)  # the gradient, and the Hessian-vector product
            else:
                value.backward()
            clipped = clipping.apply(parameters)
            optimizer.step()
            if isinstance(optimizer, KroneckerPSGD):
                clipped = clipped | (optimizer.clipped > 0)
            total += torch.stack([value.detach(), clipped.to(value)])
            at.step += 1
            averaging.count(done + 1)

            too_old = time.monotonic() - saved > CHECKPOINT_INTERVAL
            if progress.is_due() or too_old or at.step == steps:  # nowhere else the host waits for the device
                at.loss_sum, at.clipped = total.tolist()
                at.seconds = seconds + time.perf_counter() - begun
                if not math.isfinite(at.loss_sum):
                    raise FloatingPointError(f"the loss in training: not finite by {where}")
                progress.trained(at)
            if too_old and at.step < steps:
                save(folder.checkpoint, at, states, device)
                saved = time.monotonic()

        with averaging.applied():
            found = evaluate(task, recipe, at.epoch + 1, network, loss, device, progress)
        metrics = {
            "train/loss": at.loss_sum / at.step,
            "train/clipped": at.clipped / at.step,
            **found.metrics,
            "cost/train_seconds": at.seconds,
            "cost/step_seconds": at.seconds / at.step,
        }
        folder.append(at.epoch + 1, metrics)
        progress.evaluated(metrics)
        if at.epoch + 1 == recipe.epochs:
            keep_evaluation(folder, found)
        at.epoch, at.step, at.loss_sum, at.clipped, at.seconds = at.epoch + 1, 0, 0.0, 0.0, 0.0
        save(folder.checkpoint, at, states, device)
        saved = time.monotonic()

    averaging.apply()
    return finish(cell, folder, task, model, device, progress)


def build(cell: Cell, recipe: Recipe, device: torch.device, data_dir: Path | None) -> tuple[Task, Loss, Network]:
    """Return the prepared task of a cell, its loss and its network with their initial weights, on the device.

    Raises:
        UsageError: a plug-in file or the data are not those that the cell was planned with.
    """
    check_unchanged(cell)
    task = task_for(cell)
    check_data_unchanged(task, cell, data_dir)
    task.seed = cell.seed
    task.evaluation_limit = recipe.evaluation_bags
    task.prepare(data_dir, device)
    reset_memory_peak(device)
    # No built-in loss draws from the global generator, but a plug-in may: it too must depend on the seed alone.
    torch.manual_seed(cell.seed)
    loss = loss_for(cell, task).to(device)
    loss.max_labels = task.max_labels
    torch.manual_seed(cell.seed)  # again: what the loss has drawn must not change the network
    network = network_for(loss, task, cell.seed)
    if recipe.head_init == "prior" and loss.head != "class":
        network.start_at_prior(task.positions)
    return task, loss, network.move_to(device)


def score_function(
    network: Network,
    loss: Loss,
    device: torch.device,
    scored: Callable[[int], object] = lambda _: None,
    *,
    half: bool = False,
) -> ScoreFunction:
    """Return the function from bags to their scores by which a task evaluates a network and its loss.

    Args:
        network: on the device.
        loss: likewise.
        device: of the bags.
        scored: is told how many bags are about to be scored.
        half: whether the network computes in bfloat16.
    """

    @torch.no_grad()
    def score(bags: Bags) -> Scores:
        network.eval()
        scored(len(bags))
        logits = network_logits(network, bags, device, half=half)
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


def evaluate(
    task: Task, recipe: Recipe, epoch: int, network: Network, loss: Loss, device: torch.device, progress: Progress
) -> Evaluation:
    """Return the evaluation after an epoch (from 1), without metrics where the recipe asks for none."""
    if epoch not in recipe.evaluated_epochs():
        return Evaluation({})
    interim = recipe.interim_bags is not None and epoch < recipe.epochs
    limits = [recipe.evaluation_bags, recipe.interim_bags if interim else None]
    task.evaluation_limit = min((limit for limit in limits if limit is not None), default=None)
    half = interim and recipe.precision == "bfloat16"
    found: object = task.evaluate(score_function(network, loss, device, progress.scored, half=half))
    if not isinstance(found, Evaluation):
        raise TypeError(f"evaluate of task {task.name} must return milbench.Evaluation, got {type(found).__name__}")
    return replace(found, metrics={f"{INTERIM}{k}": v for k, v in found.metrics.items()}) if interim else found


def keep_evaluation(folder: CellFolder, found: Evaluation) -> None:
    """Write what the last evaluation found besides metrics."""
    if found.decoder is not None:
        folder.decoder.write_text(json.dumps(found.decoder, allow_nan=False) + "\n", "utf-8")
    if found.outcomes:
        save_outcomes(folder.outcomes, found.outcomes)
    if found.reliability:
        save_reliability(folder.reliability, found.reliability)


def finish(
    cell: Cell, folder: CellFolder, task: Task, model: torch.nn.ModuleDict, device: torch.device, progress: Progress
) -> dict[str, Any]:
    """Write the weights, the gallery and what the task must remember; return the costs and what was chosen."""
    network: Any = model["network"].eval()  # what follows must not change statistics over batches
    loss: Any = model["loss"]
    weights = {k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}
    content = save_tensors(weights, metadata=about(cell, task))
    write_atomically(folder.weights, lambda path: path.write_bytes(content))
    history = folder.history()
    metrics = {metric: value for epoch, metric, value in history if epoch == cell.recipe["epochs"]}
    decoder = json.loads(folder.decoder.read_text("utf-8")) if folder.decoder.exists() else None
    score = score_function(network, loss, device, progress.scored)
    save_gallery(folder.gallery, task, network, loss, score, Evaluation(metrics, decoder))
    if memory := task.memory():
        folder.memory.write_text(json.dumps(memory, allow_nan=False) + "\n", "utf-8")
    bags = next(iter(task.train_batches(0, generator("bags", task.name, cell.seed, 0))))
    return {
        "costs": costs_of(history, network, loss, bags, device, half=cell.recipe["precision"] == "bfloat16"),
        "threshold": metrics.get(THRESHOLD),
        "decoder": str((decoder or {}).get("decoder", "")),
        "classes": task.class_names,
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
