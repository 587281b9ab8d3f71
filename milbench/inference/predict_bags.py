"""Predictions for bags without labels: label sets, probabilities, and positions of classes, of one network or many."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from milbench.contracts.bags import NamedBags
from milbench.evaluation.reading.reader import logarithms
from milbench.evaluation.thresholds import predicted_sets
from milbench.inference.trained import Trained
from milbench.likelihood import (
    EXACT_LABEL_LIMIT,
    bag_log_prob,
    bag_log_prob_bounds,
    best_label_set,
    presence_log_prob,
)


@dataclass(frozen=True)
class BagPredictions:
    """The predictions of trained networks for B bags, averaged over the networks; C is the number of classes."""

    batch: NamedBags  # the bags with their names and places
    class_names: list[str]
    labels: Tensor  # (B, C) bool, the predicted label sets
    log_prob: Tensor  # (B,) in nats, of these by the map; a lower bound for more classes than the exact sum can do
    presence: Tensor  # (B, C), the probability by the map that each class occurs
    probs: Tensor  # (B, C+1, *positions), the map: the probability of each class at each position, background last
    evidence: Tensor  # (B, C, *positions), how strongly a position speaks for a class by the rule of the loss
    mask: Tensor  # (B, *positions) bool, where there is an instance

    def label_set(self, bag: int) -> list[int]:
        """Return the label set of a bag as class numbers."""
        return [*self.labels[bag].nonzero().flatten().tolist()]


def predict_bags(models: Sequence[Trained], batches: Sequence[NamedBags]) -> BagPredictions:
    """Return the predictions of networks for one batch of bags, which each network gets as its own task reads it.

    Of several networks probabilities and evidence are averaged, and how far presence scores are above the threshold of
    each; without thresholds the label set is the most probable one by the averaged map.
    """
    scores = [model.scores(batch.bags) for model, batch in zip(models, batches, strict=True)]
    maps = [logarithms(of_model.instances) for of_model in scores]
    probs = torch.stack([log_probs.exp() for log_probs in maps]).mean(dim=0)
    thresholds = [model.threshold for model in models if model.threshold is not None]
    if len(thresholds) == len(models):
        pairs = zip(scores, thresholds, strict=True)
        above = torch.stack([of_model.presence - threshold for of_model, threshold in pairs])
        labels = torch.from_numpy(predicted_sets(above.mean(dim=0).cpu().numpy(), 0.0))
    else:
        labels, _ = best_label_set(probs.log(), validate=False)
    set_log_probs = torch.stack([_label_set_log_prob(log_probs, labels) for log_probs in maps])
    return BagPredictions(
        batch=batches[0],
        class_names=list(models[0].format.class_names),
        labels=labels,
        log_prob=set_log_probs.logsumexp(dim=0) - math.log(len(models)),
        presence=torch.stack(
            [presence_log_prob(log_probs, validate=False).exp() for log_probs in maps]
        ).mean(dim=0),
        probs=probs,
        evidence=torch.stack([of_model.evidence for of_model in scores]).mean(dim=0),
        mask=torch.ones_like(probs[:, 0], dtype=torch.bool)
        if scores[0].mask is None
        else scores[0].mask,
    )


def bag_table(predictions: BagPredictions) -> pd.DataFrame:
    """Return a row a bag: its name, its label set, and where the classes are.

    `labels` are the classes with ";" between them, `probability` and `log_probability` those of this label set by the
    map (a lower bound for more classes than the exact sum can do), `positions` JSON: for each class of the label set
    the position that speaks most strongly for it by the loss's own evidence, and the probability of the class there.
    `presence CLASS` is the probability by the map that a class occurs in the bag.
    """
    names, bags = predictions.class_names, range(len(predictions.labels))
    sets = [predictions.label_set(bag) for bag in bags]
    frame = pd.DataFrame({
        predictions.batch.kind: predictions.batch.names,
        "labels": [";".join(names[c] for c in classes) for classes in sets],
        "probability": predictions.log_prob.exp().numpy(),
        "log_probability": predictions.log_prob.numpy(),
        "positions": [json.dumps([_strongest(predictions, bag, c) for c in sets[bag]]) for bag in bags],
    })  # fmt: skip
    return frame.join(
        pd.DataFrame(predictions.presence.numpy(), columns=[f"presence {name}" for name in names])
    )


def position_table(predictions: BagPredictions) -> pd.DataFrame:
    """Return a row a bag and position: where it is, and the probability of every class and of the background there."""
    columns = [*(f"P({name})" for name in predictions.class_names), "P(background)"]
    if columns[-1] in columns[:-1]:  # a class of that name
        columns[-1] = "P(no class)"
    is_position = predictions.mask.flatten(1)
    batch = predictions.batch
    frame = pd.DataFrame(
        {batch.kind: [batch.names[b] for b in is_position.nonzero()[:, 0].tolist()]}
    )
    for column, place in batch.places.items():
        frame[column] = place.flatten(1)[is_position].numpy()
    return frame.join(
        pd.DataFrame(
            predictions.probs.flatten(2).movedim(1, 2)[is_position].numpy(), columns=columns
        )
    )


def _label_set_log_prob(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return (B,) the log-probability of label sets by maps, a lower bound for more classes than the exact sum does."""
    log_prob = torch.empty(len(labels), dtype=log_probs.dtype)
    is_small = labels.sum(dim=1) <= EXACT_LABEL_LIMIT
    if is_small.any():
        log_prob[is_small] = bag_log_prob(log_probs[is_small], labels[is_small], validate=False)
    if not is_small.all():
        log_prob[~is_small] = bag_log_prob_bounds(
            log_probs[~is_small], labels[~is_small], validate=False
        ).lower
    return log_prob


def _strongest(predictions: BagPredictions, bag: int, cls: int) -> dict[str, Any]:
    position = int(predictions.evidence[bag, cls].flatten().argmax())
    place = {
        column: values[bag].flatten()[position].item()
        for column, values in predictions.batch.places.items()
    }
    probability = predictions.probs[bag, cls].flatten()[position].item()
    return {"class": predictions.class_names[cls], **place, "probability": probability}
