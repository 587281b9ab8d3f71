"""Metrics of reading. Maps are read batch by batch and then freed; only what the metrics need is kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch

from milbench.api.bags import Bags
from milbench.api.decoder import DECODERS
from milbench.api.task import Evaluation, Scores
from milbench.evaluation.evaluate import Centres
from milbench.evaluation.items import ItemsDigest, outcomes_of
from milbench.evaluation.localisation import box_average_precision, fit_margin, mean_iou, with_margin
from milbench.evaluation.reading.batches import ReadBatch, join_batches, read_bags
from milbench.evaluation.reading.component_decoder import fit_component_decoder
from milbench.evaluation.reading.error_patterns import error_patterns, pattern_shares
from milbench.evaluation.reading.examples import misread_examples
from milbench.evaluation.reading.reader import Reader, best_decoder, read_strings, string_error, wrong_strings


class ReadingMetrics:
    """A hook of `milbench.evaluation.evaluate.evaluate_bags`: one pass through the network then serves all metrics.

    In the method `evaluate` of a task::

        reading = ReadingMetrics(self.centres)
        evaluated = evaluate_bags(score, splits, calibration, self.centres, reading)
        found = reading.evaluation(splits["test"].bags)
    """

    def __init__(self, centres: Centres) -> None:
        """Create a hook that has read no batch yet.

        Args:
            centres: from height and width of an image to the centres of its positions, in pixels.
        """
        self._centres = centres
        self._threshold: float | None = None
        self._test_items = ItemsDigest()
        self.batches: dict[str, list[ReadBatch]] = {}

    def __call__(self, split: str, scores: Scores, bags: Bags, threshold: float) -> None:
        """Read one batch of a split, or of the "calibration" bags.

        Raises:
            ValueError: the bags have no truth.
        """
        read = read_bags(bags, scores, threshold, self._centres(*bags.instances.shape[-2:]))
        self.batches.setdefault(split, []).append(read)
        self._threshold = threshold
        if split == "test":
            self._test_items.add(bags)

    def evaluation(self, test_bags: Sequence[Bags] = ()) -> Evaluation:
        """Return the metrics of all batches read, the reader that was learnt and chosen, and what it reads wrongly.

        Args:
            test_bags: those that were read, of one size, for examples of misread ones; empty: no examples.
        """
        splits = {split: join_batches(batches) for split, batches in self.batches.items()}
        calibration = splits.pop("calibration", None)
        found = evaluate_reading(splits, calibration, self._threshold, str(self._test_items))
        if not test_bags or found.decoder is None:
            return found
        reader = Reader.from_json(found.decoder)
        return dataclasses.replace(found, misread=misread_examples(splits["test"], reader, test_bags))


def evaluate_reading(
    splits: Mapping[str, ReadBatch],
    calibration: ReadBatch | None = None,
    threshold: float | None = None,
    items: str = "unknown",
    classes: int = 10,
) -> Evaluation:
    """Return the reading metrics of every split by `split/metric`, and the reader that was learnt and chosen for them.

    Nothing is learnt from the test split, nor chosen on it.

    Args:
        splits: what the metrics need of all images of each split.
        calibration: the images that the reader is learnt from and chosen on, by strings and boxes; None: the
            validation split.
        threshold: of the label sets, which the reader keeps.
        items: a digest of the test images, see `milbench.evaluation.items.ItemsDigest`.
        classes: C, the background not counted.

    Returns:
        Metrics without those that are undefined for these images, the reader as JSON data, and which strings of the
        test split it reads wrongly.
    """
    learnt_from = splits["validation"] if calibration is None else calibration
    learnt = fit_component_decoder(learnt_from.components, learnt_from.truth, classes)
    if learnt_from.detections is not None:
        learnt = dataclasses.replace(learnt, margin=fit_margin(learnt_from.detections, learnt_from.instances))
    reader = Reader(learnt, best_decoder(learnt_from, learnt), threshold)
    values = {
        f"{split}/{name}": value
        for split, batch in splits.items()
        for name, value in split_metrics(batch, reader, classes).items()
    }
    outcomes = {}
    if test := splits.get("test"):
        wrong = torch.tensor(wrong_strings(reader.read(test), test.truth), dtype=torch.bool)
        if found := outcomes_of(wrong, torch.ones_like(wrong), items):
            outcomes["transcription_error"] = found
    return Evaluation({k: v for k, v in values.items() if not math.isnan(v)}, reader.to_json(), outcomes or None)


def split_metrics(batch: ReadBatch, reader: Reader, classes: int = 10) -> dict[str, float]:
    """Return the reading metrics of one split by name; NaN where one is undefined.

    Args:
        batch: what the metrics need of all images of the split.
        reader: learnt from other images, and chosen on them.
        classes: C, the background not counted.

    Returns:
        Shares in [0, 1] by the name of the metric, without the split.

    Examples:
        One image of the number 3: the middle one of three positions shows a 3, the others show background.

        >>> import torch
        >>> from milbench import Truth
        >>> from milbench.evaluation.reading.batches import read_batch
        >>> from milbench.evaluation.reading.component_decoder import ComponentDecoder
        >>> probs = torch.full((1, 11, 1, 3), 0.01)
        >>> probs[0, 10] = 0.9  # background
        >>> probs[0, :, 0, 1] = probs[0, :, 0, 1].roll(4)  # from channel 10 to channel 3
        >>> labels = torch.zeros(1, 10, dtype=torch.bool)
        >>> labels[0, 3] = True
        >>> batch = read_batch(probs, Truth(torch.tensor([[3]])), labels)
        >>> split_metrics(batch, Reader(ComponentDecoder()))["transcription_error"]
        0.0
    """
    chosen = reader.read(batch)
    values = {"transcription_error": string_error(chosen, batch.truth)}
    for decoder in DECODERS:
        read = read_strings(batch, decoder, reader.learnt)
        values[f"transcription_error_{decoder}"] = string_error(read, batch.truth)
    wrong = error_patterns(chosen, batch.truth, batch.vertical, batch.winning(classes))
    values |= {f"error_{name}": share for name, share in pattern_shares(wrong).items()}
    if batch.detections is not None:
        boxes = with_margin(batch.detections, reader.learnt.margin)
        values["mean_iou"] = mean_iou(boxes, batch.instances)
        values["box_average_precision"] = box_average_precision(boxes, batch.instances, classes)
    return values
