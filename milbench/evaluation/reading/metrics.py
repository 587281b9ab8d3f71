"""Metrics of reading. Maps are read batch by batch and then freed."""

import math
from dataclasses import replace
from typing import get_args

from milbench.api.bags import Bags
from milbench.api.decoder import Decoder
from milbench.api.scores import Scores
from milbench.api.task import Evaluation
from milbench.errors import UsageError
from milbench.evaluation.evaluate import outcomes_of
from milbench.evaluation.localisation import (
    box_average_precision,
    fit_margin,
    mean_iou,
    with_margin,
)
from milbench.evaluation.metrics import predicted_sets
from milbench.evaluation.reading.component_decoder import fit_component_decoder
from milbench.evaluation.reading.patterns import CLASSES, error_pattern, is_vertical, pattern_shares
from milbench.evaluation.reading.reader import ReadBatch, Reader, join_batches, read_batch


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
        labels = predicted_sets(scores.presence.cpu(), threshold)
        read = read_batch(scores.instances, bags.truth, labels, scores.evidence, scores.centres)
        self.batches.setdefault(split, []).append(read)

    def added_to(self, of_sets: Evaluation) -> Evaluation:
        """Return an evaluation with the metrics of what was read, the reader, and which test strings it reads wrongly.

        The reader is learnt and chosen on the calibration images, else on those of the validation split.
        """
        splits = {split: join_batches(batches) for split, batches in self.batches.items()}
        calibration = splits.pop("calibration", None) or splits["validation"]
        margin = fit_margin(calibration.components, calibration.boxes, calibration.instances)
        learnt = fit_component_decoder(calibration.components, calibration.truth).model_copy(
            update={"margin": margin}
        )
        best = min(
            get_args(Decoder), key=lambda decoder: int(calibration.wrong(decoder, learnt).sum())
        )
        reader = Reader(learnt=learnt, decoder=best)
        defined = {
            f"{split}/{name}": value
            for split, batch in splits.items()
            for name, value in split_metrics(batch, reader).items()
            if not math.isnan(value)
        }
        outcomes = of_sets.outcomes
        if outcomes and (
            errors := outcomes_of(splits["test"].wrong(best, learnt), outcomes["set_error"].items)
        ):
            outcomes = outcomes | {"transcription_error": errors}
        decoder = reader.model_dump(mode="json")
        return replace(
            of_sets, metrics=of_sets.metrics | defined, decoder=decoder, outcomes=outcomes
        )


def split_metrics(batch: ReadBatch, reader: Reader) -> dict[str, float]:
    """Return the reading metrics of one split by name; NaN where one is undefined."""
    errors = {
        decoder: float(batch.wrong(decoder, reader.learnt).double().mean())
        for decoder in get_args(Decoder)
    }
    values = {f"transcription_error_{decoder}": error for decoder, error in errors.items()}
    values["transcription_error"] = errors[reader.decoder]
    read, vertical = batch.strings(reader.decoder, reader.learnt), is_vertical(batch.instances)
    patterns = [
        error_pattern(*case)
        for case in zip(read, batch.truth, vertical, batch.winning, strict=True)
    ]
    values |= {f"error_{name}": share for name, share in pattern_shares(patterns).items()}
    boxes = with_margin(batch.boxes, reader.learnt.margin)
    values["mean_iou"] = mean_iou(batch.components, boxes, batch.instances)
    values["box_average_precision"] = box_average_precision(
        batch.components, boxes, batch.instances, CLASSES
    )
    return values
