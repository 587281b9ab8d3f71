"""Predictions of trained networks for bags without labels.

They are label sets, probabilities, and the positions of classes.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from milbench.contracts.bags import NamedBags
from milbench.contracts.scores import Scores
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
    """The predictions for B bags with C classes, averaged over one or several networks."""

    batch: NamedBags
    """The bags, with their names and with the places of positions."""
    class_names: list[str]
    """The names of the C classes."""
    labels: Tensor
    """(B, C) bool, the predicted label sets."""
    log_prob: Tensor
    """(B,), the log-probabilities of these label sets by the map, in nats.

    For large label sets, where the exact sum would take too long, they are lower bounds.
    """
    presence: Tensor
    """(B, C), the probability by the map that each class occurs."""
    probs: Tensor
    """(B, C+1, *positions), the map: the probability of each class at each position.

    Background is the last class.
    """
    evidence: Tensor
    """(B, C, *positions), how strongly a position speaks for a class by the rule of the loss."""
    mask: Tensor
    """(B, *positions) bool, where there is an instance."""

    def label_set(self, bag: int) -> list[int]:
        """Return the label set of a bag as class numbers."""
        return [*self.labels[bag].nonzero().flatten().tolist()]


def predict_bags(models: Sequence[Trained], batches: Sequence[NamedBags]) -> BagPredictions:
    """Return the predictions of one or several networks for one batch of bags.

    Probabilities and evidence are averaged over the networks. For each network, its threshold is
    subtracted from the presence scores. A class is in the label set if the mean of these
    differences is 0 or more. If a network has no threshold, the label set is the most probable one
    by the averaged map.

    Args:
        models: the networks.
        batches: for each network the same bags, as the task of the network reads them.
    """
    scores = [model.scores(batch.bags) for model, batch in zip(models, batches, strict=True)]
    log_maps = [logarithms(model_scores.instances) for model_scores in scores]
    probs = _mean([log_probs.exp() for log_probs in log_maps])
    labels = _label_sets(models, scores, probs)
    set_log_probs = [_label_set_log_prob(log_probs, labels) for log_probs in log_maps]
    presences = [presence_log_prob(log_probs, validate=False).exp() for log_probs in log_maps]
    # All networks have the same positions, as otherwise their maps could not be averaged.
    mask = scores[0].mask
    if mask is None:
        mask = torch.ones_like(probs[:, 0], dtype=torch.bool)
    return BagPredictions(
        batch=batches[0],
        class_names=list(models[0].format.class_names),
        labels=labels,
        # The logarithm of the mean probability.
        log_prob=torch.stack(set_log_probs).logsumexp(dim=0) - math.log(len(models)),
        presence=_mean(presences),
        probs=probs,
        evidence=_mean([model_scores.evidence for model_scores in scores]),
        mask=mask,
    )


def _label_sets(models: Sequence[Trained], scores: Sequence[Scores], probs: Tensor) -> Tensor:
    """Return the label sets (B, C) bool that networks predict together, see `predict_bags`.

    `probs` is the averaged map.
    """
    above_thresholds = []
    for model, model_scores in zip(models, scores, strict=True):
        if model.threshold is None:
            most_probable, _ = best_label_set(probs.log(), validate=False)
            return most_probable
        above_thresholds.append(model_scores.presence - model.threshold)
    above_on_average = _mean(above_thresholds).cpu().numpy()
    return torch.from_numpy(predicted_sets(above_on_average, 0.0))


def _mean(values: Sequence[Tensor]) -> Tensor:
    """Return the mean of tensors of the same shape, one from each network."""
    return torch.stack(list(values)).mean(dim=0)


def bag_table(predictions: BagPredictions) -> pd.DataFrame:
    """Return a table with a row for each bag: its name, its label set, and where the classes are.

    The columns after the name of the bag:

    - `labels`: the classes of the label set, with ";" between them.
    - `probability`, `log_probability`: the probability of this label set by the map, and its
      logarithm in nats. For large label sets, where the exact sum would take too long, they are
      lower bounds.
    - `positions`: JSON, with an entry for each class of the label set: the position with the
      strongest evidence for it, and the probability of the class there.
    - `presence CLASS`: the probability by the map that the class occurs in the bag.
    """
    names = predictions.class_names
    label_sets = []
    positions = []
    for bag in range(len(predictions.labels)):
        classes = predictions.label_set(bag)
        label_sets.append(";".join(names[cls] for cls in classes))
        strongest = [_strongest_position(predictions, bag, cls) for cls in classes]
        positions.append(json.dumps(strongest))
    columns = {
        predictions.batch.name_column: predictions.batch.names,
        "labels": label_sets,
        "probability": predictions.log_prob.exp().numpy(),
        "log_probability": predictions.log_prob.numpy(),
        "positions": positions,
    }
    presence_columns = [f"presence {name}" for name in names]
    presence = pd.DataFrame(predictions.presence.numpy(), columns=presence_columns)
    return pd.DataFrame(columns).join(presence)


def position_table(predictions: BagPredictions) -> pd.DataFrame:
    """Return a table with a row for each position of each bag.

    A row has the name of the bag, the place of the position in the bag, and the probabilities of
    all classes and of background at the position.
    """
    is_position = predictions.mask.flatten(1)
    batch = predictions.batch
    bag_numbers = is_position.nonzero()[:, 0].tolist()
    frame = pd.DataFrame({batch.name_column: [batch.names[bag] for bag in bag_numbers]})
    for column, place in batch.places.items():
        frame[column] = place.flatten(1)[is_position].numpy()
    # (B, K, C+1).
    probs_by_position = predictions.probs.flatten(2).movedim(1, 2)
    probs = pd.DataFrame(
        probs_by_position[is_position].numpy(),
        columns=_probability_columns(predictions.class_names),
    )
    return frame.join(probs)


def _probability_columns(class_names: Sequence[str]) -> list[str]:
    """Return the names of the columns of probabilities: for each class and, last, background."""
    columns = [f"P({name})" for name in class_names]
    background = "P(background)"
    has_class_of_that_name = background in columns
    if has_class_of_that_name:
        background = "P(no class)"
    return [*columns, background]


def _label_set_log_prob(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probabilities (B,) of label sets (B, C) by maps (B, C+1, *positions).

    For label sets of more than EXACT_LABEL_LIMIT classes they are lower bounds.
    """
    log_prob = torch.empty(len(labels), dtype=log_probs.dtype)
    is_small = labels.sum(dim=1) <= EXACT_LABEL_LIMIT
    if is_small.any():
        log_prob[is_small] = bag_log_prob(log_probs[is_small], labels[is_small], validate=False)
    is_large = ~is_small
    if is_large.any():
        bounds = bag_log_prob_bounds(log_probs[is_large], labels[is_large], validate=False)
        log_prob[is_large] = bounds.lower
    return log_prob


def _strongest_position(predictions: BagPredictions, bag: int, cls: int) -> dict[str, Any]:
    """Return the position with the strongest evidence for a class, as an entry of `positions`.

    It has the name of the class, the place of the position, and the probability of the class there.
    """
    position = int(predictions.evidence[bag, cls].flatten().argmax())
    described: dict[str, Any] = {"class": predictions.class_names[cls]}
    for column, values in predictions.batch.places.items():
        described[column] = values[bag].flatten()[position].item()
    described["probability"] = predictions.probs[bag, cls].flatten()[position].item()
    return described
