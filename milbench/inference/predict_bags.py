"""Predictions for bags without labels: label sets, probabilities, and positions of classes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from milbench._utils.images import unique_stems
from milbench.api.bags import NamedBags
from milbench.api.scores import Scores
from milbench.api.task import Task
from milbench.evaluation.metrics import predicted_sets
from milbench.evaluation.reading.decoders import logarithms
from milbench.inference.load import Trained
from milbench.likelihood import EXACT_LABEL_LIMIT, bag_log_prob, bag_log_prob_bounds, best_label_set, presence_log_prob

MOST_CLASSES = 4
"""Panels of a map."""


def are_bags(paths: Sequence[Path], task: Task) -> bool:
    """Return whether paths are bags for a table of predictions, and not pictures to draw on."""
    from milbench.data.table_files import is_table

    kind = type(task)
    if kind.read_bags is Task.read_bags:
        return False
    has_pictures = kind.instances_from is not Task.instances_from
    return not has_pictures or any(path.is_dir() or is_table(path) for path in paths)


def bag_table(model: Trained, batch: NamedBags, scores: Scores) -> pd.DataFrame:
    """Return a row a bag: its label set, how probable that is, where its classes are, and the presence of every class.

    Returns:
        The column of the names of bags, then `labels` (the classes that the loss finds, with ";" between them),
        `probability` and `log_probability` (of this label set, by the map of positions; a lower bound for more classes
        than the exact sum can do), `positions` (JSON, for each class of the label set the position that speaks most
        strongly for it by the loss's own evidence, with the probability of the class there), and for every class
        `presence CLASS`, the probability by the map that it occurs in the bag.
    """
    names, log_probs = model.task.class_names, logarithms(scores.instances)
    labels, log_prob = label_sets(scores.presence, log_probs, model.threshold)
    sets = [label_set.nonzero().flatten().tolist() for label_set in labels]
    frame = pd.DataFrame({
        batch.kind: batch.names,
        "labels": [";".join(names[c] for c in label_set) for label_set in sets],
        "probability": log_prob.exp().numpy(),
        "log_probability": log_prob.numpy(),
        "positions": [
            json.dumps([_strongest(batch, scores, log_probs, b, c, names[c]) for c in label_set])
            for b, label_set in enumerate(sets)
        ],
    })  # fmt: skip
    presence = presence_log_prob(log_probs, validate=False).exp()
    return frame.join(pd.DataFrame(presence.numpy(), columns=[f"presence {name}" for name in names]))


def position_table(model: Trained, batch: NamedBags, scores: Scores) -> pd.DataFrame:
    """Return a row a bag and position: where it is, and the probability of every class and of the background there."""
    columns = [*(f"P({name})" for name in model.task.class_names), "P(background)"]
    if columns[-1] in columns[:-1]:  # a class of that name
        columns[-1] = "P(no class)"
    probs = logarithms(scores.instances).exp().flatten(2)
    is_position = torch.ones(probs[:, 0].shape, dtype=torch.bool)
    if batch.bags.mask is not None:
        is_position = batch.bags.mask.flatten(1)
    frame = pd.DataFrame({batch.kind: [batch.names[b] for b in is_position.nonzero()[:, 0].tolist()]})
    for column, place in batch.places.items():
        frame[column] = place.flatten(1)[is_position].numpy()
    return frame.join(pd.DataFrame(probs.movedim(1, 2)[is_position].numpy(), columns=columns))


def draw_maps(positions: pd.DataFrame, bags: pd.DataFrame, folder: Path) -> None:
    """Draw the probability of each class that was found in a bag, or of the likeliest where none was, as NAME.png.

    `positions` and `bags` are as `position_table` and `bag_table` return them, with x and y of every position.
    """
    from matplotlib.figure import Figure

    from milbench._utils.pictures import literal

    folder.mkdir(parents=True, exist_ok=True)
    kind = str(positions.columns[0])
    stems = unique_stems([Path(str(name)) for name in bags[kind]])
    for stem, (name, labels) in zip(stems, bags[[kind, "labels"]].itertuples(index=False), strict=True):
        places = positions[positions[kind] == name]
        columns = [f"P({cls})" for cls in labels.split(";") if cls][:MOST_CLASSES]
        columns = columns or [places.filter(like="P(").iloc[:, :-1].max().idxmax()]
        figure = Figure(figsize=(4.5 * len(columns), 4.2), layout="constrained")
        for axes, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
            size = max(1.0, 20_000 / len(places)) ** 0.5 * 2
            dots = axes.scatter(
                places["x"], places["y"], c=places[column], s=size, vmin=0, vmax=1, cmap="viridis", lw=0
            )
            axes.set(aspect="equal", title=literal(f"{name}: {column}"))
            axes.invert_yaxis()  # as pictures are: y grows downwards
            figure.colorbar(dots, ax=axes)
        figure.savefig(folder / f"{stem}.png", dpi=120)


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
    position = int(scores.evidence[bag, cls].flatten().argmax())
    place = {column: values[bag].flatten()[position].item() for column, values in batch.places.items()}
    return {"class": name, **place, "probability": math.exp(log_probs[bag, cls].flatten()[position])}
