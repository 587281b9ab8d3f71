"""Evaluate the network of a cell by its task, and write what the cell leaves when it is trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors

from milbench._utils.files import write_atomically
from milbench.api import gallery
from milbench.api.bags import Bags, Truth
from milbench.api.metric_info import INTERIM
from milbench.api.outcomes import save_outcomes
from milbench.api.plan import Cell
from milbench.api.reliability import save_reliability
from milbench.api.targets import make_target
from milbench.api.task import Evaluation, ScoreFunction, Scores, Task
from milbench.engine.cell import CellFolder
from milbench.engine.costs import costs_of
from milbench.engine.parts import Setup, network_logits, training_logits
from milbench.engine.progress import Progress
from milbench.evaluation.evaluate import EVEN_ODDS, THRESHOLD


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


def score_function(it: Setup, progress: Progress | None = None, *, half: bool = False) -> ScoreFunction:
    """Return the function from bags to their scores by which a task evaluates a network and its loss."""
    network, loss = it.kept.network, it.kept.loss

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


def keep_results(it: Setup, folder: CellFolder, last: Evaluation) -> dict[str, Any]:
    """Write what the last evaluation found besides metrics, the weights, the gallery and what the task must remember.

    Returns:
        The costs and what was chosen, for the `result` of the cell.
    """
    if last.outcomes:
        save_outcomes(folder.outcomes, last.outcomes)
    if last.reliability:
        save_reliability(folder.reliability, last.reliability)
    for path, content in ((folder.decoder, last.decoder), (folder.memory, it.task.memory())):
        if content:
            path.write_text(json.dumps(content, allow_nan=False) + "\n", "utf-8")
    weights = {k: v.detach().cpu().contiguous().clone() for k, v in it.kept.state_dict().items()}
    tensors = save_tensors(weights, metadata=about(it.cell, it.task))
    write_atomically(folder.weights, lambda path: path.write_bytes(tensors))
    _save_gallery(folder.gallery, it, last.metrics.get(THRESHOLD))
    bags = next(iter(it.train_batches(0)))
    with torch.no_grad():
        logits = training_logits(it, bags)
    loss = it.model.loss
    target = make_target(loss, bags, logits, it.model.network)
    return {
        "costs": costs_of(folder.history(), loss, logits, bags, target),
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


def _save_gallery(path: Path, it: Setup, threshold: float | None) -> None:
    """Write test bags with what is detected where."""
    bags = it.task.gallery()
    scores = score_function(it)(bags)
    truth = bags.truth or Truth(torch.empty(len(bags), 0, dtype=torch.long))
    ys, xs = it.kept.network.centres_in(bags) or (None, None)
    arrays = {
        "instances": bags.instances, "labels": bags.labels, "mask": bags.mask, "coords": bags.coords,
        "presence": scores.presence, "probs": scores.instances,
        "classes": truth.classes, "boxes": truth.boxes, "position_classes": truth.position_classes,
        "ys": ys, "xs": xs,
    }  # fmt: skip
    made = gallery.make(
        threshold=threshold,
        kind="image" if bags.are_images else "set" if xs is None else "sequence",
        frames_per_second=it.task.frames_per_second,
        class_names=it.task.class_names,
        **{k: None if v is None else v.cpu().numpy() for k, v in arrays.items()},
    )
    gallery.write(path, made)
