"""What is kept of images that are read: strings, error patterns and boxes.

Maps are read batch by batch and then freed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.decoder import PATTERNS, Decoder
from milbench.api.predictions import Ratio, Reading, SplitPredictions
from milbench.api.scores import Scores
from milbench.api.task import Evaluation
from milbench.errors import UsageError
from milbench.evaluation.evaluate import evaluation_of
from milbench.evaluation.localisation import best_ious, fit_margin, right_detections, with_margin
from milbench.evaluation.reading.component_decoder import fit_component_decoder
from milbench.evaluation.reading.patterns import String, error_pattern, is_vertical
from milbench.evaluation.reading.reader import ReadBatch, Reader, join_batches, read_batch
from milbench.evaluation.thresholds import predicted_sets


class ReadingMetrics:
    """A hook of `milbench.evaluation.evaluate.evaluate_bags`: one pass through the network then serves all metrics."""

    def __init__(self) -> None:
        self.batches: dict[str, list[ReadBatch]] = {}

    def __call__(self, split: str, scores: Scores, bags: Bags, threshold: float) -> None:
        """Read one batch of a split, or of the "calibration" bags, by the loss's own label sets and evidence."""
        if bags.truth is None:
            raise ValueError("bags to read need their truth")
        if scores.centres is None:
            raise UsageError(
                "strings are read by where positions are, which this network does not say"
            )
        labels = predicted_sets(scores.presence.cpu().numpy(), threshold)
        read = read_batch(
            scores.instances, bags.truth, torch.from_numpy(labels), scores.evidence, scores.centres
        )
        self.batches.setdefault(split, []).append(read)

    def added_to(self, of_sets: Evaluation) -> Evaluation:
        """Return an evaluation with what was read, its metrics, and the reader.

        The reader is learnt and chosen on the calibration images, else on those of the validation split.
        """
        assert of_sets.predictions is not None  # noqa: S101 it comes from evaluate_bags
        splits = {split: join_batches(batches) for split, batches in self.batches.items()}
        reader = fit_reader(splits[of_sets.predictions.chosen_by])
        read = {
            split: with_reading(of_sets.predictions[split], batch, reader)
            for split, batch in splits.items()
        }
        predictions = replace(of_sets.predictions, splits={**of_sets.predictions.splits, **read})
        return evaluation_of(predictions, reader.model_dump(mode="json"))


def fit_reader(images: ReadBatch) -> Reader:
    """Return the reader that suits images whose strings are known."""
    margin = fit_margin(images.components, images.boxes, images.instances)
    learnt = fit_component_decoder(images.components, images.truth)
    learnt = learnt.model_copy(update={"margin": margin})
    decoders: tuple[Decoder, ...] = get_args(Decoder)
    best = min(decoders, key=lambda decoder: int(images.wrong(decoder, learnt).sum()))
    return Reader(learnt=learnt, decoder=best)


def with_reading(bags: SplitPredictions, images: ReadBatch, reader: Reader) -> SplitPredictions:
    """Return the predictions for the bags of a split with what a reader reads and finds in them."""
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
    strings = {decoder: images.strings(decoder, reader.learnt) for decoder in get_args(Decoder)}
    lengths = [len(string) for string in images.truth]
    for read_strings in strings.values():
        lengths += [len(string) for string in read_strings]
    longest = max(lengths, default=0)
    patterns = []
    cases = zip(
        strings[reader.decoder],
        images.truth,
        is_vertical(images.instances),
        images.winning,
        strict=True,
    )
    for read, truth, vertical, winning in cases:
        pattern = error_pattern(read, truth, vertical, winning)
        patterns.append(-1 if pattern is None else PATTERNS.index(pattern))
    return Reading(
        true=_rows(images.truth, longest),
        columns=_rows(strings["columns"], longest),
        strongest=_rows(strings["strongest"], longest),
        components=_rows(strings["components"], longest),
        pattern=np.array(patterns, np.int8),
        detection_image=images.components.image,
        detection_class=images.components.cls,
        detection_mass=images.components.mass,
        detection_right=right_detections(images.components, boxes, images.instances),
    )


def _rows(strings: Sequence[String], longest: int) -> NDArray[np.int8]:
    """Return strings as rows, with -1 after the end of each."""
    rows = np.full((len(strings), longest), -1, np.int8)
    for row, string in zip(rows, strings, strict=True):
        row[: len(string)] = string
    return rows
