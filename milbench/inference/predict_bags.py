"""Predictions for bags without labels: label sets, probabilities, and positions of classes, of one network or many."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from milbench.api.bags import NamedBags
from milbench.evaluation.metrics import predicted_sets
from milbench.evaluation.reading.reader import logarithms
from milbench.inference.load import Trained
from milbench.likelihood import EXACT_LABEL_LIMIT, bag_log_prob, bag_log_prob_bounds, best_label_set, presence_log_prob


@dataclass(frozen=True)
class Found:
    """What trained networks find in B bags, on the average over the networks; C is the number of classes."""

    batch: NamedBags  # the bags with their names and places
    class_names: list[str]
    labels: Tensor  # (B, C) bool, the label sets that the loss finds
    log_prob: Tensor  # (B,) in nats, of these by the map; a lower bound for more classes than the exact sum can do
    presence: Tensor  # (B, C), the probability by the map that each class occurs
    probs: Tensor  # (B, C+1, *positions), the map: the probability of each class at each position, background last
    evidence: Tensor  # (B, C, *positions), how strongly a position speaks for a class by the rule of the loss
    mask: Tensor  # (B, *positions) bool, where there is an instance

    def classes_of(self, bag: int) -> list[int]:
        """Return the label set of a bag as class numbers."""
        return [*self.labels[bag].nonzero().flatten().tolist()]


def find(models: Sequence[Trained], batches: Sequence[NamedBags]) -> Found:
    """Return what networks find in one batch of bags, which each network is given as its own task reads it.

    Of several networks probabilities and evidence are averaged, and how far presence scores are above the threshold of
    each; without thresholds the label set is the most probable one by the averaged map.
    """
    scores = [model.scores(one.bags) for model, one in zip(models, batches, strict=True)]
    maps = [logarithms(one.instances) for one in scores]
    probs = torch.stack([one.exp() for one in maps]).mean(dim=0)
    thresholds = [model.threshold for model in models if model.threshold is not None]
    if len(thresholds) == len(models):
        above = torch.stack([one.presence - threshold for one, threshold in zip(scores, thresholds, strict=True)])
        labels = predicted_sets(above.mean(dim=0), 0.0)
    else:
        labels, _ = best_label_set(probs.log(), validate=False)
    log_probs = torch.stack([_label_set_log_prob(one, labels) for one in maps])
    return Found(
        batch=batches[0],
        class_names=models[0].task.class_names,
        labels=labels,
        log_prob=log_probs.logsumexp(dim=0) - math.log(len(models)),
        presence=torch.stack([presence_log_prob(one, validate=False).exp() for one in maps]).mean(dim=0),
        probs=probs,
        evidence=torch.stack([one.evidence for one in scores]).mean(dim=0),
        mask=torch.ones_like(probs[:, 0], dtype=torch.bool) if scores[0].mask is None else scores[0].mask,
    )


def bag_table(found: Found) -> pd.DataFrame:
    """Return a row a bag: its name, what the loss finds, and where.

    `labels` are the classes with ";" between them, `probability` and `log_probability` those of this label set by the
    map (a lower bound for more classes than the exact sum can do), `positions` JSON: for each class of the label set
    the position that speaks most strongly for it by the loss's own evidence, and the probability of the class there.
    `presence CLASS` is the probability by the map that a class occurs in the bag.
    """
    names, bags = found.class_names, range(len(found.labels))
    frame = pd.DataFrame({
        found.batch.kind: found.batch.names,
        "labels": [";".join(names[c] for c in found.classes_of(bag)) for bag in bags],
        "probability": found.log_prob.exp().numpy(),
        "log_probability": found.log_prob.numpy(),
        "positions": [json.dumps([_strongest(found, bag, c) for c in found.classes_of(bag)]) for bag in bags],
    })  # fmt: skip
    return frame.join(pd.DataFrame(found.presence.numpy(), columns=[f"presence {name}" for name in names]))


def position_table(found: Found) -> pd.DataFrame:
    """Return a row a bag and position: where it is, and the probability of every class and of the background there."""
    columns = [*(f"P({name})" for name in found.class_names), "P(background)"]
    if columns[-1] in columns[:-1]:  # a class of that name
        columns[-1] = "P(no class)"
    is_position = found.mask.flatten(1)
    frame = pd.DataFrame({found.batch.kind: [found.batch.names[b] for b in is_position.nonzero()[:, 0].tolist()]})
    for column, place in found.batch.places.items():
        frame[column] = place.flatten(1)[is_position].numpy()
    return frame.join(pd.DataFrame(found.probs.flatten(2).movedim(1, 2)[is_position].numpy(), columns=columns))


def _label_set_log_prob(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return (B,) the log-probability of label sets by maps, a lower bound for more classes than the exact sum does."""
    log_prob = torch.empty(len(labels), dtype=log_probs.dtype)
    few = labels.sum(dim=1) <= EXACT_LABEL_LIMIT
    if few.any():
        log_prob[few] = bag_log_prob(log_probs[few], labels[few], validate=False)
    if not few.all():
        log_prob[~few] = bag_log_prob_bounds(log_probs[~few], labels[~few], validate=False).lower
    return log_prob


def _strongest(found: Found, bag: int, cls: int) -> dict[str, Any]:
    position = int(found.evidence[bag, cls].flatten().argmax())
    place = {column: values[bag].flatten()[position].item() for column, values in found.batch.places.items()}
    probability = found.probs[bag, cls].flatten()[position].item()
    return {"class": found.class_names[cls], **place, "probability": probability}
