"""Reading strings while bags are scored, and adding what was read to an evaluation.

The probability maps of all images together would be too large to keep, so that each batch is read
before its maps are freed.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Bags
from milbench.contracts.decoder import PATTERNS, Decoder
from milbench.contracts.predictions import Ratio, Reading, SplitPredictions
from milbench.contracts.problem import Evaluation
from milbench.contracts.scores import Scores
from milbench.errors import UsageError
from milbench.evaluation.evaluate import evaluation_of
from milbench.evaluation.localisation import best_ious, fit_margin, right_detections, with_margin
from milbench.evaluation.reading.component_decoder import fit_component_decoder
from milbench.evaluation.reading.patterns import String, error_pattern, is_vertical
from milbench.evaluation.reading.reader import ReadBatch, Reader, join_batches, read_batch
from milbench.evaluation.thresholds import predicted_sets


class ReadingHook:
    """A hook of `milbench.evaluation.evaluate.evaluate_bags` that reads each batch of images.

    It reads while batches are scored, so that the network runs only once.
    """

    def __init__(self) -> None:
        self.batches: dict[str, list[ReadBatch]] = {}

    def __call__(self, split: str, scores: Scores, bags: Bags, threshold: float) -> None:
        """Read one batch, given the label sets and the evidence of the loss.

        `split` is the name of a split, or "calibration".
        """
        if bags.truth is None:
            raise ValueError("bags to read need their truth")
        if scores.centres is None:
            raise UsageError(
                "strings cannot be read, since the network does not say where its positions are: "
                "write its method `centres_in`"
            )
        labels = predicted_sets(scores.presence.cpu().numpy(), threshold)
        read = read_batch(
            scores.instances, bags.truth, torch.from_numpy(labels), scores.evidence, scores.centres
        )
        self.batches.setdefault(split, []).append(read)

    def complete(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation with the strings that were read, their metrics, and the reader.

        The reader is learnt on the images by which the threshold is chosen: the calibration
        images, or the validation images where there are none.
        """
        predictions = evaluation.predictions
        if predictions is None:
            raise ValueError("reading needs an evaluation with predictions")
        images = {split: join_batches(batches) for split, batches in self.batches.items()}
        reader = fit_reader(images[predictions.choosing_split])
        splits = dict(predictions.splits)
        for split, images_of_split in images.items():
            splits[split] = with_reading(splits[split], images_of_split, reader)
        return evaluation_of(replace(predictions, splits=splits), reader.model_dump(mode="json"))


def fit_reader(images: ReadBatch) -> Reader:
    """Return the reader that suits images whose strings and boxes are known."""
    # How far boxes reach beyond components.
    margin = fit_margin(images.components, images.boxes, images.instances)
    # How components are read.
    learnt = fit_component_decoder(images.components, images.truth)
    learnt = learnt.model_copy(update={"margin": margin})
    # Which decoder reads the most strings without error.
    decoders: tuple[Decoder, ...] = get_args(Decoder)
    best = min(decoders, key=lambda decoder: int(images.wrong(decoder, learnt).sum()))
    return Reader(learnt=learnt, decoder=best)


def with_reading(bags: SplitPredictions, images: ReadBatch, reader: Reader) -> SplitPredictions:
    """Return the predictions of a split with the strings and boxes that a reader finds."""
    boxes = with_margin(images.boxes, reader.learnt.margin)
    ious = best_ious(images.components, boxes, images.instances)
    is_instance = images.instances.classes >= 0
    mean_iou = Ratio(
        sums=ious.masked_fill(~is_instance, 0.0).sum(dim=1).numpy().astype(np.float32),
        weights=is_instance.sum(dim=1).numpy().astype(np.float32),
    )
    ratios: Mapping[str, Ratio] = {**bags.ratios, "mean_iou": mean_iou}
    return replace(bags, ratios=ratios, reading=_reading(images, reader, boxes))


def _reading(images: ReadBatch, reader: Reader, boxes: Tensor) -> Reading:
    """Return what every decoder reads, and which components are right as detections.

    `boxes` (N, 4) are the boxes of the components, with their margin.
    """
    truth = images.truth
    strings = {decoder: images.strings(decoder, reader.learnt) for decoder in get_args(Decoder)}
    # All rows are as long as the longest string, so that strings are compared as arrays.
    all_strings = itertools.chain(truth, *strings.values())
    longest = max((len(string) for string in all_strings), default=0)
    return Reading(
        true=_rows(truth, longest),
        columns=_rows(strings["columns"], longest),
        strongest=_rows(strings["strongest"], longest),
        components=_rows(strings["components"], longest),
        pattern=_patterns(images, strings[reader.decoder]),
        detection_image=images.components.image,
        detection_class=images.components.cls,
        detection_mass=images.components.mass,
        detection_right=right_detections(images.components, boxes, images.instances),
    )


def _patterns(images: ReadBatch, strings: Sequence[String]) -> NDArray[np.int8]:
    """Return (B,), the index in PATTERNS of the error in each string, -1 where it is right."""
    numbers = []
    are_vertical = is_vertical(images.instances)
    rows = zip(strings, images.truth, are_vertical, images.winning, strict=True)
    for read, truth, vertical, winning in rows:
        pattern = error_pattern(read, truth, vertical, winning)
        numbers.append(-1 if pattern is None else PATTERNS.index(pattern))
    return np.array(numbers, np.int8)


def _rows(strings: Sequence[String], longest: int) -> NDArray[np.int8]:
    """Return strings as rows, with -1 after the end of each."""
    rows = np.full((len(strings), longest), -1, np.int8)
    for row, string in zip(rows, strings, strict=True):
        row[: len(string)] = string
    return rows
