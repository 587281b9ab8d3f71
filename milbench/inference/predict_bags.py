"""The predictions of one or several networks for bags without labels: label sets, probabilities, and positions."""

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
    """The predictions of trained networks for B bags, averaged over the networks; C is the number of classes."""

    batch: NamedBags
    """The bags with their names and places."""
    class_names: list[str]
    labels: Tensor
    """(B, C) bool, the predicted label sets."""
    log_prob: Tensor
    """(B,) in nats, of these label sets by the map; a lower bound where the exact sum would be too long."""
    presence: Tensor
    """(B, C), the probability by the map that each class occurs."""
    probs: Tensor
    """(B, C+1, *positions), the map: the probability of each class at each position, background last."""
    evidence: Tensor
    """(B, C, *positions), how strongly a position speaks for a class by the rule of the loss."""
    mask: Tensor
    """(B, *positions) bool, where there is an instance."""

    def label_set(self, bag: int) -> list[int]:
        """Return the label set of a bag as class numbers."""
        return [*self.labels[bag].nonzero().flatten().tolist()]


def predict_bags(models: Sequence[Trained], batches: Sequence[NamedBags]) -> BagPredictions:
    """Return the predictions of several networks for one batch of bags, averaged over the networks.

    Probabilities and evidence are averaged. A class is in the label set if its presence score is on
    average at or above the threshold of each network. Where a network has no threshold, the label
    set is the most probable one by the averaged map.

    Args:
        models: the networks.
        batches: the same bags for each network, as its own task reads them.
    """
    scores = [model.scores(batch.bags) for model, batch in zip(models, batches, strict=True)]
    log_maps = [logarithms(of_model.instances) for of_model in scores]
    probs = _mean([log_probs.exp() for log_probs in log_maps])
    labels = _label_sets(models, scores, probs)
    set_log_probs = [_label_set_log_prob(log_probs, labels) for log_probs in log_maps]
    presences = [presence_log_prob(log_probs, validate=False).exp() for log_probs in log_maps]
    # The networks have the same positions, since their maps can be averaged.
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
        evidence=_mean([of_model.evidence for of_model in scores]),
        mask=mask,
    )


def _label_sets(models: Sequence[Trained], scores: Sequence[Scores], probs: Tensor) -> Tensor:
    """Return the label sets (B, C) bool that networks find together; `probs` is their averaged map."""
    above_thresholds = []
    for model, of_model in zip(models, scores, strict=True):
        if model.threshold is None:
            most_probable, _ = best_label_set(probs.log(), validate=False)
            return most_probable
        above_thresholds.append(of_model.presence - model.threshold)
    above_on_average = _mean(above_thresholds).cpu().numpy()
    return torch.from_numpy(predicted_sets(above_on_average, 0.0))


def _mean(of_models: Sequence[Tensor]) -> Tensor:
    """Return the mean over the networks of what each of them gives."""
    return torch.stack(list(of_models)).mean(dim=0)


def bag_table(predictions: BagPredictions) -> pd.DataFrame:
    """Return a table with a row for each bag: its name, its label set, and where the classes are.

    The columns after the name of the bag:

    - `labels`: the classes of the label set, with ";" between them.
    - `probability`, `log_probability`: of this label set by the map; lower bounds where the exact
      sum would be too long.
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

    A row has the name of the bag, where the position is, and the probabilities of all classes and
    of background there.
    """
    is_position = predictions.mask.flatten(1)
    batch = predictions.batch
    bag_numbers = is_position.nonzero()[:, 0].tolist()
    frame = pd.DataFrame({batch.name_column: [batch.names[bag] for bag in bag_numbers]})
    for column, place in batch.places.items():
        frame[column] = place.flatten(1)[is_position].numpy()
    # (B, K, C+1), then a row for each position where there is an instance.
    probs_by_position = predictions.probs.flatten(2).movedim(1, 2)
    probs = pd.DataFrame(
        probs_by_position[is_position].numpy(),
        columns=_probability_columns(predictions.class_names),
    )
    return frame.join(probs)


def _probability_columns(class_names: Sequence[str]) -> list[str]:
    """Return the names of the columns with the probability of each class and, last, of background."""
    columns = [f"P({name})" for name in class_names]
    background = "P(background)"
    has_class_of_that_name = background in columns
    if has_class_of_that_name:
        background = "P(no class)"
    return [*columns, background]


def _label_set_log_prob(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probabilities (B,) of label sets (B, C) by a map (B, C+1, *positions).

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
    """Return where the evidence for a class is strongest in a bag, and its probability there."""
    position = int(predictions.evidence[bag, cls].flatten().argmax())
    described: dict[str, Any] = {"class": predictions.class_names[cls]}
    for column, values in predictions.batch.places.items():
        described[column] = values[bag].flatten()[position].item()
    described["probability"] = predictions.probs[bag, cls].flatten()[position].item()
    return described
