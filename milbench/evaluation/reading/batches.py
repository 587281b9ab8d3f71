"""Batches of images after reading: strings, components and boxes, without the probability maps that they are from."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.task import ScoreFunction, Scores
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
from milbench.evaluation.reading.decoders import PosteriorMap, posterior_given, read_columns
from milbench.evaluation.reading.error_patterns import is_vertical
from milbench.evaluation.reading.rescoring import rescore
from milbench.evaluation.reading.strings import CHARACTERS, strings


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """What the metrics need of B images, kept on the CPU after the probability maps are freed.

    Args:
        truth: B true strings.
        columns: B strings as the decoder `columns` reads them.
        posterior: B strings as the decoder `posterior` reads them.
        winning: B strings, the classes that win a position.
        vertical: B, whether the number is written from top to bottom.
        strongest: the strongest position of each class in the loss's own label set.
        components: those of the posterior given that label set.
        rescored: those after rescoring, see `rescore`; None without it.
        detections: the boxes of `components`; None where the truth has none.
        instances: the true instances.
    """

    truth: list[str]
    columns: list[str]
    posterior: list[str]
    winning: list[str]
    vertical: list[bool]
    strongest: Components
    components: Components
    rescored: Components | None
    detections: Detections | None
    instances: Truth

    def __len__(self) -> int:
        return len(self.truth)


def read_batch(
    probs: Tensor,
    truth: Truth,
    labels: Tensor,
    strength: Tensor | None = None,
    centres: tuple[Tensor, Tensor] | None = None,
    rescore_batch: Callable[[Tensor, PosteriorMap, Components], Components] | None = None,
) -> ReadBatch:
    """Read one batch of images by the decoders without learnt numbers, and find the components for the one with them.

    Args:
        probs: (B, C+1, h, w), the probability that a position shows each class, background last.
        truth: the instances of the images.
        labels: (B, C) bool, the label sets that the loss finds.
        strength: (B, C, h, w), larger where a position speaks more strongly for a class; None: the probabilities.
        centres: y of every row and x of every column of positions in pixels, needed where the truth has boxes.
        rescore_batch: from P, its posterior and the components of that to the components after rescoring.

    Returns:
        The strings, the components and the detections of the B images, on the CPU.
    """
    probs, labels, truth = probs.detach().cpu(), labels.cpu(), truth.to(CPU)
    background = probs.shape[1] - 1
    class_maps, given = class_map(probs), posterior_given(probs, labels)
    components = find_components(given.probs, given.classes)
    boxed = truth.boxes is not None and centres is not None
    return ReadBatch(
        truth=strings(truth.classes),
        columns=read_columns(class_maps, background),
        posterior=read_columns(given.classes, background),
        winning=["".join(CHARACTERS[c] for c in one.unique().tolist() if c < background) for one in class_maps],
        vertical=[False] * len(probs) if truth.boxes is None else is_vertical(truth.classes, truth.boxes),
        strongest=strongest_positions(probs[:, :-1] if strength is None else strength, probs, labels),
        components=components,
        rescored=rescore_batch(probs, given, components) if rescore_batch else None,
        detections=detect(components, centres) if boxed and centres is not None else None,
        instances=truth,
    )


def read_bags(
    bags: Bags,
    scores: Scores,
    threshold: float,
    centres: tuple[Tensor, Tensor] | None = None,
    rescored_by: ScoreFunction | None = None,
) -> ReadBatch:
    """Read one batch of bags by the loss's own label sets and evidence.

    Args:
        bags: images with their truth.
        scores: those of the bags.
        threshold: the presence score from which a class is in the label set.
        centres: y of every row and x of every column of positions in pixels, needed for boxes.
        rescored_by: the score function, with which images are rescored; None: no image is rescored.

    Raises:
        ValueError: the bags have no truth.
    """
    if bags.truth is None:
        raise ValueError("bags to read need their truth")
    again = functools.partial(_rescore_bags, rescored_by, threshold, bags) if rescored_by else None
    labels = predicted_sets(scores.presence.cpu(), threshold)
    return read_batch(scores.instances, bags.truth, labels, scores.strength, centres, again)


def join_batches(batches: Sequence[ReadBatch]) -> ReadBatch:
    """Return all batches of a split as one."""
    first, strongest, components, rescored, detections, classes, boxes = 0, [], [], [], [], [], []
    most = max(batch.instances.classes.shape[1] for batch in batches)
    for batch in batches:
        strongest.append(dataclasses.replace(batch.strongest, image=batch.strongest.image + first))
        components.append(dataclasses.replace(batch.components, image=batch.components.image + first))
        if batch.rescored is not None:
            rescored.append(dataclasses.replace(batch.rescored, image=batch.rescored.image + first))
        if batch.detections is not None:
            detections.append(dataclasses.replace(batch.detections, image=batch.detections.image + first))
        short = most - batch.instances.classes.shape[1]
        classes.append(torch.nn.functional.pad(batch.instances.classes, (0, short), value=-1))
        if batch.instances.boxes is not None:
            boxes.append(torch.nn.functional.pad(batch.instances.boxes, (0, 0, 0, short)))
        first += len(batch)
    fields = [f.name for f in dataclasses.fields(Detections)]
    return ReadBatch(
        truth=[string for batch in batches for string in batch.truth],
        columns=[string for batch in batches for string in batch.columns],
        posterior=[string for batch in batches for string in batch.posterior],
        winning=[string for batch in batches for string in batch.winning],
        vertical=[flag for batch in batches for flag in batch.vertical],
        strongest=concatenate(strongest),
        components=concatenate(components),
        rescored=concatenate(rescored) if rescored else None,
        detections=(
            Detections(*(torch.cat([getattr(d, name) for d in detections]) for name in fields)) if detections else None
        ),
        instances=Truth(torch.cat(classes), torch.cat(boxes) if boxes else None),
    )


def _rescore_bags(
    score: ScoreFunction, threshold: float, bags: Bags, probs: Tensor, given: PosteriorMap, components: Components
) -> Components:
    def scored(images: Tensor) -> tuple[Tensor, Tensor]:
        scores = score(Bags(images, bags.labels[: len(images)]))  # what is read of the scores below depends on no label
        return scores.instances, predicted_sets(scores.presence.cpu(), threshold)

    return rescore(bags.instances, probs, given, components, scored)
