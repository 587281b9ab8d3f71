"""Metrics of reading. Maps are read batch by batch and then freed."""

from __future__ import annotations

import math

import torch

from milbench.api.bags import Bags
from milbench.api.decoder import DECODERS
from milbench.api.scores import Scores
from milbench.api.task import Evaluation
from milbench.errors import UsageError
from milbench.evaluation.items import ItemsDigest, outcomes_of
from milbench.evaluation.localisation import box_average_precision, fit_margin, mean_iou, with_margin
from milbench.evaluation.metrics import predicted_sets
from milbench.evaluation.reading.component_decoder import fit_component_decoder
from milbench.evaluation.reading.patterns import CLASSES, pattern_shares
from milbench.evaluation.reading.reader import ReadBatch, Reader, best_decoder, join_batches, read_batch, string_error


class ReadingMetrics:
    """A hook of `milbench.evaluation.evaluate.evaluate_bags`: one pass through the network then serves all metrics.

    In the method `evaluate` of a task::

        reading = ReadingMetrics()
        evaluated = evaluate_bags(score, splits, calibration, reading)
        found = reading.evaluation()
    """

    def __init__(self) -> None:
        self._test_items = ItemsDigest()
        self.batches: dict[str, list[ReadBatch]] = {}

    def __call__(self, split: str, scores: Scores, bags: Bags, threshold: float) -> None:
        """Read one batch of a split, or of the "calibration" bags, by the loss's own label sets and evidence.

        Raises:
            ValueError: the bags have no truth.
        """
        if bags.truth is None:
            raise ValueError("bags to read need their truth")
        if scores.centres is None:
            raise UsageError("strings are read by where positions are, which this network does not say")
        labels = predicted_sets(scores.presence.cpu(), threshold)
        read = read_batch(scores.instances, bags.truth, labels, scores.evidence, scores.centres)
        self.batches.setdefault(split, []).append(read)
        if split == "test":
            self._test_items.add(bags)

    def evaluation(self) -> Evaluation:
        """Return the metrics of all batches read, by `split/metric`, and the reader that was learnt and chosen.

        Nothing is learnt from the test split, nor chosen on it: that is what the calibration images are for, by default
        those of the validation split. The outcomes tell which strings of the test split the reader reads wrongly.
        """
        splits = {split: join_batches(batches) for split, batches in self.batches.items()}
        calibration = splits.pop("calibration", None) or splits["validation"]
        margin = fit_margin(calibration.components, calibration.boxes, calibration.instances)
        learnt = fit_component_decoder(calibration.components, calibration.truth).model_copy(update={"margin": margin})
        reader = Reader(learnt=learnt, decoder=best_decoder(calibration, learnt))
        values = {
            f"{split}/{name}": value
            for split, batch in splits.items()
            for name, value in split_metrics(batch, reader).items()
        }
        defined = {name: value for name, value in values.items() if not math.isnan(value)}
        outcomes = {}
        if test := splits.get("test"):
            read = test.strings(reader.decoder, learnt)
            wrong = torch.tensor([a != b for a, b in zip(read, test.truth, strict=True)], dtype=torch.bool)
            if error_outcomes := outcomes_of(wrong, torch.ones_like(wrong), str(self._test_items)):
                outcomes["transcription_error"] = error_outcomes
        return Evaluation(defined, reader.model_dump(mode="json"), outcomes or None)


def split_metrics(batch: ReadBatch, reader: Reader) -> dict[str, float]:
    """Return the reading metrics of one split by name; NaN where one is undefined."""
    strings = batch.strings(reader.decoder, reader.learnt)
    values = {"transcription_error": string_error(strings, batch.truth)}
    for decoder in DECODERS:
        read = batch.strings(decoder, reader.learnt)
        values[f"transcription_error_{decoder}"] = string_error(read, batch.truth)
    values |= {f"error_{name}": share for name, share in pattern_shares(batch.patterns(strings)).items()}
    boxes = with_margin(batch.boxes, reader.learnt.margin)
    values["mean_iou"] = mean_iou(batch.components, boxes, batch.instances)
    values["box_average_precision"] = box_average_precision(batch.components, boxes, batch.instances, CLASSES)
    return values
