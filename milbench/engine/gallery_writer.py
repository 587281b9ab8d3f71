"""The gallery of a cell that is trained: test bags, what its network detects in them and why, and what it misreads."""

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
from milbench.evaluation.saliency import of_gallery


def save_gallery(
    path: Path, task: Task, network: Network, loss: Loss, score: ScoreFunction, evaluation: Evaluation
) -> None:
    """Write the gallery of a prepared task. score: by this network and loss; evaluation: of the last epoch."""
    bags = task.gallery()
    scores = score(bags)
    truth = bags.truth or Truth(torch.empty(len(bags), 0, dtype=torch.long))
    arrays: dict[str, Tensor | None] = {
        "instances": bags.instances,
        "labels": bags.labels,
        "mask": bags.mask,
        "presence": scores.presence,
        "probs": scores.instances,
        "classes": truth.classes,
        "boxes": truth.boxes,
        "position_classes": truth.position_classes,
    }
    made = gallery.make(
        threshold=evaluation.metrics.get(THRESHOLD),
        kind="image" if bags.are_images else "set",
        centres=network.centres_in(bags),
        class_names=task.class_names,
        misread=task.misread(score, evaluation.decoder),
        **{k: None if v is None else v.cpu().numpy() for k, v in arrays.items()},
    )
    if bags.are_images:
        maps, pairs = of_gallery(network, loss, made, bags.instances)
        made = replace(made, sensitivity=maps, sensitivity_of=pairs)
    gallery.write(path, made)
