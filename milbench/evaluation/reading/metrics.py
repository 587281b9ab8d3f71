"""Metrics of reading. Maps are read batch by batch and then freed; only what the metrics need is kept."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.task import Evaluation, ScoreFunction, Scores
from milbench.evaluation.evaluate import CPU, Centres
from milbench.evaluation.localisation import (
    Detections,
    box_average_precision,
    detect,
    fit_margin,
    mean_iou,
    with_margin,
)
from milbench.evaluation.reading.component_decoder import ComponentDecoder, fit_component_decoder, read_components
from milbench.evaluation.reading.components import Components, class_map, concatenate, find_components
from milbench.evaluation.reading.decoders import PosteriorMap, posterior_given_likely_set, read_columns
from milbench.evaluation.reading.error_patterns import error_patterns, is_vertical, pattern_shares
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
        components: those of the posterior given the most probable label set.
        rescored: those after rescoring, see `rescore`; None without it.
        detections: the boxes of `components`; None where the truth has none.
        instances: the true instances.
    """

    truth: list[str]
    columns: list[str]
    posterior: list[str]
    winning: list[str]
    vertical: list[bool]
    components: Components
    rescored: Components | None
    detections: Detections | None
    instances: Truth

    def __len__(self) -> int:
        return len(self.truth)


def read_batch(
    probs: Tensor,
    truth: Truth,
    centres: tuple[Tensor, Tensor] | None = None,
    rescore_batch: Callable[[Tensor, PosteriorMap, Components], Components] | None = None,
) -> ReadBatch:
    """Read one batch of images by the decoders without learnt numbers, and find the components for the one with them.

    Args:
        probs: (B, C+1, h, w), the probability that a position shows each class, background last.
        truth: the instances of the images.
        centres: y of every row and x of every column of positions in pixels, needed where the truth has boxes.
        rescore_batch: from P, its posterior and the components of that to the components after rescoring.

    Returns:
        The strings, the components and the detections of the B images, on the CPU.
    """
    probs, truth = probs.detach().cpu(), truth.to(CPU)
    background = probs.shape[1] - 1
    class_maps, given = class_map(probs), posterior_given_likely_set(probs)
    components = find_components(given.probs, given.classes)
    boxed = truth.boxes is not None and centres is not None
    return ReadBatch(
        truth=strings(truth.classes),
        columns=read_columns(class_maps, background),
        posterior=read_columns(given.classes, background),
        winning=["".join(CHARACTERS[c] for c in one.unique().tolist() if c < background) for one in class_maps],
        vertical=[False] * len(probs) if truth.boxes is None else is_vertical(truth.classes, truth.boxes),
        components=components,
        rescored=rescore_batch(probs, given, components) if rescore_batch else None,
        detections=detect(components, centres) if boxed and centres is not None else None,
        instances=truth,
    )


def join_batches(batches: Sequence[ReadBatch]) -> ReadBatch:
    """Return all batches of a split as one."""
    first, components, rescored, detections, classes, boxes = 0, [], [], [], [], []
    most = max(batch.instances.classes.shape[1] for batch in batches)
    for batch in batches:
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
        components=concatenate(components),
        rescored=concatenate(rescored) if rescored else None,
        detections=(
            Detections(*(torch.cat([getattr(d, name) for d in detections]) for name in fields)) if detections else None
        ),
        instances=Truth(torch.cat(classes), torch.cat(boxes) if boxes else None),
    )


class ReadingMetrics:
    """A hook of `milbench.evaluation.evaluate.evaluate_splits`: one pass through the network then serves all metrics.

    In the method `evaluate` of a task::

        reading = ReadingMetrics(self.centres, score)
        metrics = evaluate_splits(score, splits, calibration, self.centres, reading)
        found = reading.evaluation()
    """

    def __init__(self, centres: Centres, score: ScoreFunction | None = None) -> None:
        """Create a hook that has read no batch yet.

        Args:
            centres: from height and width of an image to the centres of its positions, in pixels.
            score: the score function, with which images are rescored; None: no image is rescored.
        """
        self._centres, self._score = centres, score
        self.batches: dict[str, list[ReadBatch]] = {}

    def __call__(self, split: str, scores: Scores, bags: Bags) -> None:
        """Read one batch of a split, or of the "calibration" bags.

        Raises:
            ValueError: the bags have no truth.
        """
        if bags.truth is None:
            raise ValueError("bags to read need their truth")
        where = self._centres(*bags.instances.shape[-2:])
        # Nothing is learnt from rescored images: calibration bags need none.
        again = functools.partial(_rescore_bags, self._score, bags) if self._score and split != "calibration" else None
        self.batches.setdefault(split, []).append(read_batch(scores.instances, bags.truth, where, again))

    def evaluation(self) -> Evaluation:
        """Return the metrics of all batches read, and the decoder that was learnt for them."""
        splits = {split: join_batches(batches) for split, batches in self.batches.items()}
        calibration = splits.pop("calibration", None)
        return evaluate_reading(splits, calibration)


def _rescore_bags(
    score: ScoreFunction, bags: Bags, probs: Tensor, given: PosteriorMap, components: Components
) -> Components:
    def probs_of(images: Tensor) -> Tensor:
        return score(Bags(images, bags.labels[: len(images)])).instances  # a score function reads no labels

    return rescore(bags.instances, probs, given, components, probs_of)


def evaluate_reading(
    splits: Mapping[str, ReadBatch], calibration: ReadBatch | None = None, classes: int = 10
) -> Evaluation:
    """Return the reading metrics of every split by `split/metric`, and the decoder that was learnt for them.

    Nothing is learnt from the test split.

    Args:
        splits: what the metrics need of all images of each split.
        calibration: the images that the decoder is learnt from, its strings and its boxes; None: the validation split.
        classes: C, the background not counted.

    Returns:
        Metrics without those that are undefined for these images, and the decoder as JSON data.
    """
    learnt_from = splits["validation"] if calibration is None else calibration
    decoder = fit_component_decoder(learnt_from.components, learnt_from.truth, classes)
    if learnt_from.detections is not None:
        decoder = dataclasses.replace(decoder, margin=fit_margin(learnt_from.detections, learnt_from.instances))
    values = {
        f"{split}/{name}": value
        for split, batch in splits.items()
        for name, value in split_metrics(batch, decoder, classes).items()
    }
    return Evaluation({k: v for k, v in values.items() if not math.isnan(v)}, decoder.to_json())


def split_metrics(batch: ReadBatch, decoder: ComponentDecoder, classes: int = 10) -> dict[str, float]:
    """Return the reading metrics of one split by name; NaN where one is undefined.

    Args:
        batch: what the metrics need of all images of the split.
        decoder: learnt from other images.
        classes: C, the background not counted.

    Returns:
        Shares in [0, 1] by the name of the metric, without the split.

    Examples:
        One image of the number 3: the middle one of three positions shows a 3, the others show background.

        >>> import torch
        >>> probs = torch.full((1, 11, 1, 3), 0.01)
        >>> probs[0, 10] = 0.9  # background
        >>> probs[0, :, 0, 1] = probs[0, :, 0, 1].roll(4)  # from channel 10 to channel 3
        >>> batch = read_batch(probs, Truth(torch.tensor([[3]])))
        >>> split_metrics(batch, ComponentDecoder())["transcription_error"]
        0.0
    """
    read = read_components(batch.components, len(batch), decoder)
    values = {
        "transcription_error": string_error(read, batch.truth),
        "transcription_error_columns": string_error(batch.columns, batch.truth),
        "transcription_error_posterior": string_error(batch.posterior, batch.truth),
        "transcription_error_components": string_error(read, batch.truth),
    }
    if batch.rescored is not None:
        rescored = read_components(batch.rescored, len(batch), decoder)
        values["transcription_error_rescored"] = string_error(rescored, batch.truth)
    wrong = error_patterns(read, batch.truth, batch.vertical, batch.winning)
    values |= {f"error_{name}": share for name, share in pattern_shares(wrong).items()}
    if batch.detections is not None:
        boxes = with_margin(batch.detections, decoder.margin)
        values["mean_iou"] = mean_iou(boxes, batch.instances)
        values["box_average_precision"] = box_average_precision(boxes, batch.instances, classes)
    return values


def string_error(read: Sequence[str], truth: Sequence[str]) -> float:
    """Return the share of strings that are not read exactly; NaN of none.

    Examples:
        >>> string_error(["12", "7"], truth=["12", "17"])
        0.5
    """
    wrong = [a != b for a, b in zip(read, truth, strict=True)]
    return sum(wrong) / len(wrong) if wrong else math.nan
