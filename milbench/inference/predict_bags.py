"""What a trained network finds in bags without labels: label sets, probabilities, and at which positions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.named_bags import NamedBags
from milbench.api.task import Scores, Task
from milbench.errors import UsageError
from milbench.evaluation.calibration import best_temperature
from milbench.evaluation.metrics import predicted_sets
from milbench.evaluation.reading.decoders import logarithms
from milbench.inference.load import Trained
from milbench.likelihood import EXACT_LABEL_LIMIT, bag_log_prob, bag_log_prob_bounds, best_label_set, presence_prob

LEAST_LOG_PROB = -700.0
"""Nats. A label set that the map excludes counts as one of this log-probability: else no temperature would be best."""


def are_bags(paths: Sequence[Path], task: Task) -> bool:
    """Return whether paths are bags for a table of predictions, and not pictures to draw on."""
    from milbench.data.table_files import is_table

    kind = type(task)
    if kind.read_bags is Task.read_bags:
        return False
    has_pictures = kind.instances_from is not Task.instances_from
    return not has_pictures or any(path.is_dir() or is_table(path) for path in paths)


def predict_bags(model: Trained, batches: Iterable[NamedBags], temperature: float = 1.0) -> pd.DataFrame:
    """Return a row a bag: its label set, how probable that is, where its classes are, and the presence of every class.

    The log-probabilities of positions are divided by the temperature.

    Returns:
        The column of the names of bags, then `labels` (the classes that the loss finds, with ";" between them),
        `probability` and `log_probability` (of this label set, by the map of positions; a lower bound for more classes
        than the exact sum can do), `positions` (JSON, for each class of the label set the position that speaks most
        strongly for it by the loss's own evidence, with the probability of the class there), and for every class
        `presence CLASS`, the probability by the map that it occurs in the bag.
    """
    names = model.task.class_names
    rows: list[dict[str, Any]] = []
    for batch in batches:
        scores = model.scores_of(batch.bags)
        log_probs = tempered(scores.instances, temperature)
        labels, log_prob = label_sets(scores.presence, log_probs, model.threshold)
        presence = presence_prob(log_probs, validate=False)
        for b, name in enumerate(batch.names):
            found = labels[b].nonzero().flatten().tolist()
            rows.append({
                batch.kind: name,
                "labels": ";".join(names[c] for c in found),
                "probability": math.exp(log_prob[b]),
                "log_probability": float(log_prob[b]),
                "positions": json.dumps([_strongest(batch, scores, log_probs, b, c, names[c]) for c in found]),
                **{f"presence {name}": p for name, p in zip(names, presence[b].tolist(), strict=True)},
            })  # fmt: skip
    if not rows:
        about = ["bag", "labels", "probability", "log_probability", "positions"]
        return pd.DataFrame(columns=[*about, *(f"presence {name}" for name in names)])
    return pd.DataFrame(rows)


def position_table(model: Trained, batch: NamedBags, temperature: float = 1.0) -> pd.DataFrame:
    """Return a row a bag and position: where it is, and the probability of every class and of the background there."""
    columns = [*(f"P({name})" for name in model.task.class_names), "P(background)"]
    if columns[-1] in columns[:-1]:  # a class of that name
        columns[-1] = "P(no class)"
    probs = tempered(model.scores_of(batch.bags).instances, temperature).exp().flatten(2)
    there = torch.ones(probs[:, 0].shape, dtype=torch.bool)
    if batch.bags.mask is not None:
        there = batch.bags.mask.flatten(1)
    bag, _ = there.nonzero(as_tuple=True)
    frame = pd.DataFrame({batch.kind: [batch.names[b] for b in bag.tolist()]})
    for column, place in batch.places.items():
        frame[column] = place.flatten(1)[there].numpy()
    for c, name in enumerate(columns):
        frame[name] = probs[:, c][there].numpy()
    return frame


def fit_temperature(model: Trained, validation: Sequence[Bags]) -> float:
    """Return the temperature that makes the label sets of validation bags most probable by the map.

    Raises:
        UsageError: no bag has a label set within the exact limit.

    Source: C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, for
    single labels; here the likelihood is that of a bag's label set.
    """
    maps: list[tuple[Tensor, Tensor]] = []
    for bags in validation:
        labels = bags.labels.cpu().bool()
        few = labels.sum(dim=1) <= EXACT_LABEL_LIMIT
        if few.any():
            maps.append((model.scores_of(bags).instances[few], labels[few]))
    if not maps:
        raise UsageError(f"no validation bag of {model.cell} has at most {EXACT_LABEL_LIMIT} classes")

    def cost(log_temperature: float) -> float:
        total = 0.0
        for probs, labels in maps:
            log_prob = bag_log_prob(tempered(probs, math.exp(log_temperature)), labels, validate=False)
            total -= float(log_prob.clamp(min=LEAST_LOG_PROB).sum())
        return total

    with torch.no_grad():
        return best_temperature(cost)


def tempered(probs: Tensor, temperature: float) -> Tensor:
    """Return the logarithms of probs (B, C+1, *positions) to the power of 1 / temperature, normalised, in float64."""
    log_probs = logarithms(probs)
    return log_probs if temperature == 1 else (log_probs / temperature).log_softmax(dim=1)


def label_sets(presence: Tensor, log_probs: Tensor, threshold: float | None) -> tuple[Tensor, Tensor]:
    """Return the label sets of bags (B, C) bool, and their log-probabilities by the map (B,) in nats.

    A class is in the label set from the threshold on presence scores on; without one the most probable set is returned.
    The log-probability is a lower bound for more classes than the exact sum can do.
    """
    if threshold is None:
        return best_label_set(log_probs, validate=False)
    labels = predicted_sets(presence, threshold)
    log_prob = torch.empty(len(labels), dtype=log_probs.dtype)
    few = labels.sum(dim=1) <= EXACT_LABEL_LIMIT
    if few.any():
        log_prob[few] = bag_log_prob(log_probs[few], labels[few], validate=False)
    if not few.all():
        log_prob[~few] = bag_log_prob_bounds(log_probs[~few], labels[~few], validate=False).lower
    return labels, log_prob


def _strongest(batch: NamedBags, scores: Scores, log_probs: Tensor, bag: int, cls: int, name: str) -> dict[str, Any]:
    position = int(scores.strength[bag, cls].flatten().argmax())
    place = {column: values[bag].flatten()[position].item() for column, values in batch.places.items()}
    return {"class": name, **place, "probability": math.exp(log_probs[bag, cls].flatten()[position])}
