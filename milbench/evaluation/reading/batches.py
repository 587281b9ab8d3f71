"""Batches of images after reading: strings, components and boxes, without the probability maps that they are from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from milbench.api.bags import Bags, Truth
from milbench.api.task import Scores
from milbench.evaluation.evaluate import CPU
from milbench.evaluation.localisation import Detections, detect
from milbench.evaluation.metrics import predicted_sets
from milbench.evaluation.reading.components import (
    Components,
    class_map,
    concatenate,
    find_components,
    strongest_positions,
)
from milbench.evaluation.reading.decoders import posterior_given, read_columns
from milbench.evaluation.reading.error_patterns import is_vertical
from milbench.evaluation.reading.strings import CHARACTERS, strings


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """What the metrics need of B images, kept on the CPU after the probability maps are freed.

    Args:
        truth: B true strings.
        columns: B strings as the decoder `columns` reads them.
        vertical: B, whether the number is written from top to bottom.
        class_maps: B of (h, w) uint8, the most probable class of every position.
        strengths: B of (h, w) float16, its probability.
        strongest: the strongest position of each class in the loss's own label set.
        components: those of the posterior given that label set.
        detections: the boxes of `components`; None where the truth has none.
        instances: the true instances.
    """

    truth: list[str]
    columns: list[str]
    vertical: list[bool]
    class_maps: list[Tensor]
    strengths: list[Tensor]
    strongest: Components
    components: Components
    detections: Detections | None
    instances: Truth

    def __len__(self) -> int:
        return len(self.truth)

    def winning(self, background: int) -> list[str]:
        """Return B strings, the classes that win a position of each image."""
        return [
            "".join(CHARACTERS[c] for c in classes.unique().tolist() if c < background) for classes in self.class_maps
        ]


def read_batch(
    probs: Tensor,
    truth: Truth,
    labels: Tensor,
    strength: Tensor | None = None,
    centres: tuple[Tensor, Tensor] | None = None,
) -> ReadBatch:
    """Read one batch of images by the decoder without learnt numbers, and find the components for those with them.

    Args:
        probs: (B, C+1, h, w), the probability that a position shows each class, background last.
        truth: the instances of the images.
        labels: (B, C) bool, the label sets that the loss finds.
        strength: (B, C, h, w), larger where a position speaks more strongly for a class; None: the probabilities.
        centres: y of every row and x of every column of positions in pixels, needed where the truth has boxes.
    """
    probs, labels, truth = probs.detach().cpu(), labels.cpu(), truth.to(CPU)
    class_maps = class_map(probs)
    components = find_components(*posterior_given(probs, labels))
    boxed = truth.boxes is not None and centres is not None
    return ReadBatch(
        truth=strings(truth.classes),
        columns=read_columns(class_maps, probs.shape[1] - 1),
        vertical=[False] * len(probs) if truth.boxes is None else is_vertical(truth.classes, truth.boxes),
        class_maps=list(class_maps.byte()),
        strengths=list(probs.amax(dim=1).half()),
        strongest=strongest_positions(probs[:, :-1] if strength is None else strength, probs, labels),
        components=components,
        detections=detect(components, centres) if boxed and centres is not None else None,
        instances=truth,
    )


def read_bags(bags: Bags, scores: Scores, threshold: float, centres: tuple[Tensor, Tensor] | None = None) -> ReadBatch:
    """Read one batch of bags by the loss's own label sets and evidence.

    Args:
        bags: images with their truth.
        scores: those of the bags.
        threshold: the presence score from which a class is in the label set.
        centres: y of every row and x of every column of positions in pixels, needed for boxes.

    Raises:
        ValueError: the bags have no truth.
    """
    if bags.truth is None:
        raise ValueError("bags to read need their truth")
    labels = predicted_sets(scores.presence.cpu(), threshold)
    return read_batch(scores.instances, bags.truth, labels, scores.strength, centres)


def join_batches(batches: Sequence[ReadBatch]) -> ReadBatch:
    """Return all batches of a split as one."""
    first, strongest, components, detections, classes, boxes = 0, [], [], [], [], []
    most = max(batch.instances.classes.shape[1] for batch in batches)
    for batch in batches:
        strongest.append(replace(batch.strongest, image=batch.strongest.image + first))
        components.append(replace(batch.components, image=batch.components.image + first))
        if batch.detections is not None:
            detections.append(replace(batch.detections, image=batch.detections.image + first))
        short = most - batch.instances.classes.shape[1]
        classes.append(pad(batch.instances.classes, (0, short), value=-1))
        if batch.instances.boxes is not None:
            boxes.append(pad(batch.instances.boxes, (0, 0, 0, short)))
        first += len(batch)
    names = [f.name for f in fields(Detections)]
    return ReadBatch(
        truth=[string for batch in batches for string in batch.truth],
        columns=[string for batch in batches for string in batch.columns],
        vertical=[flag for batch in batches for flag in batch.vertical],
        class_maps=[one for batch in batches for one in batch.class_maps],
        strengths=[one for batch in batches for one in batch.strengths],
        strongest=concatenate(strongest),
        components=concatenate(components),
        detections=(
            Detections(*(torch.cat([getattr(d, name) for d in detections]) for name in names)) if detections else None
        ),
        instances=Truth(torch.cat(classes), torch.cat(boxes) if boxes else None),
    )
