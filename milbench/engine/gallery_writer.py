"""Saves the gallery of a trained cell: test bags with detections and sensitivity maps, and what is misread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from milbench.api import gallery
from milbench.api.bags import Truth
from milbench.api.loss import Loss
from milbench.api.task import Evaluation, Network, ScoreFunction, Task
from milbench.evaluation.evaluate import THRESHOLD
from milbench.evaluation.saliency import gallery_saliency


def save_gallery(
    path: Path, task: Task, network: Network, loss: Loss, score: ScoreFunction, evaluation: Evaluation
) -> None:
    """Compute and write the gallery of a network and a loss that were trained on a task, with their last evaluation."""
    bags = task.gallery()
    scores = score(bags)
    truth = bags.truth or Truth(torch.empty(len(bags), 0, dtype=torch.long))
    arrays: dict[str, Tensor | None] = {
        "instances": bags.instances, "labels": bags.labels, "mask": bags.mask, "coords": bags.coords,
        "presence": scores.presence, "probs": scores.instances,
        "classes": truth.classes, "boxes": truth.boxes, "position_classes": truth.position_classes,
    }  # fmt: skip
    centres = network.centres_in(bags)
    made = gallery.make(
        threshold=evaluation.metrics.get(THRESHOLD),
        kind="image" if bags.are_images else "set" if centres is None else "sequence",
        centres=centres,
        frames_per_second=task.frames_per_second,
        class_names=task.class_names,
        misread=evaluation.misread,
        **{k: None if v is None else v.cpu().numpy() for k, v in arrays.items()},
    )
    if bags.are_images:
        maps, pairs = gallery_saliency(network, loss, made, bags.instances)
        made = replace(made, sensitivity=maps, sensitivity_of=pairs)
    gallery.write(path, made)
