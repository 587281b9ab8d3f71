"""Metrics of reading: batches of maps and their truth in, `split/metric` out, nothing of the maps kept in between."""

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
from milbench.evaluation.localisation import (
    Detections,
    box_average_precision,
    detections,
    grown,
    learn_margin,
    mean_iou,
)
from milbench.evaluation.reading.component_decoder import CHARACTERS, Reader, learn_reader, spell
from milbench.evaluation.reading.components import Blobs, concatenate, find_blobs, winners
from milbench.evaluation.reading.decoders import Shown, read_columns, shown_given_best, strings
from milbench.evaluation.reading.error_patterns import is_vertical, patterns, shares
from milbench.evaluation.reading.rescoring import rescore

Centres = Callable[[int, int], tuple[Tensor, Tensor]]
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """What is needed of a batch of images once their maps are gone, on the CPU.

    truth, columns, posterior: B strings; the two decoders need nothing learnt.
    seen: B strings, the classes that win a position.
    vertical: B, whether the number is written from top to bottom.
    blobs: components of what the positions show given the most probable label set.
    again: the same after another look at the images that leave doubt, see `rescore`; None if none was taken.
    found: the boxes of `blobs`; None where the truth has none.
    instances: the truth.
    """

    truth: list[str]
    columns: list[str]
    posterior: list[str]
    seen: list[str]
    vertical: list[bool]
    blobs: Blobs
    again: Blobs | None
    found: Detections | None
    instances: Truth

    def __len__(self) -> int:
        return len(self.truth)


def read_batch(
    probs: Tensor,
    truth: Truth,
    centres: tuple[Tensor, Tensor] | None = None,
    again: Callable[[Tensor, Shown, Blobs], Blobs] | None = None,
) -> ReadBatch:
    """Read one batch: probs (B, C+1, h, w), the probability that a position shows each class.

    centres: y of every row and x of every column of positions in pixels, needed where the truth has boxes.
    again: from P, what positions show given the most probable label set and its components to those of a second look.
    """
    probs, truth = probs.detach().cpu(), truth.to(CPU)
    background = probs.shape[1] - 1
    won, shown = winners(probs), shown_given_best(probs)
    blobs = find_blobs(shown.probs, shown.classes)
    boxed = truth.boxes is not None and centres is not None
    return ReadBatch(
        truth=strings(truth.classes),
        columns=read_columns(won, background),
        posterior=read_columns(shown.classes, background),
        seen=["".join(CHARACTERS[c] for c in row.unique().tolist() if c < background) for row in won],
        vertical=[False] * len(probs) if truth.boxes is None else is_vertical(truth.classes, truth.boxes),
        blobs=blobs,
        again=again(probs, shown, blobs) if again else None,
        found=detections(blobs, centres) if boxed and centres is not None else None,
        instances=truth,
    )


def join(pages: Sequence[ReadBatch]) -> ReadBatch:
    """Return the pages of a split as one."""
    first, blobs, again, found, classes, boxes = 0, [], [], [], [], []
    most = max(page.instances.classes.shape[1] for page in pages)
    for page in pages:
        blobs.append(dataclasses.replace(page.blobs, image=page.blobs.image + first))
        if page.again is not None:
            again.append(dataclasses.replace(page.again, image=page.again.image + first))
        if page.found is not None:
            found.append(dataclasses.replace(page.found, image=page.found.image + first))
        short = most - page.instances.classes.shape[1]
        classes.append(torch.nn.functional.pad(page.instances.classes, (0, short), value=-1))
        if page.instances.boxes is not None:
            boxes.append(torch.nn.functional.pad(page.instances.boxes, (0, 0, 0, short)))
        first += len(page)
    fields = [f.name for f in dataclasses.fields(Detections)]
    return ReadBatch(
        truth=[string for page in pages for string in page.truth],
        columns=[string for page in pages for string in page.columns],
        posterior=[string for page in pages for string in page.posterior],
        seen=[string for page in pages for string in page.seen],
        vertical=[flag for page in pages for flag in page.vertical],
        blobs=concatenate(blobs),
        again=concatenate(again) if again else None,
        found=Detections(*(torch.cat([getattr(f, name) for f in found]) for name in fields)) if found else None,
        instances=Truth(torch.cat(classes), torch.cat(boxes) if boxes else None),
    )


class ReadingMetrics:
    """Reads the bags of every split as they are scored, so that one pass through the network serves all metrics.

    read = ReadingMetrics(self.centres, score)
    metrics = evaluate(score, splits, calibration, self.centres, read)
    reading = read.evaluation()
    """

    def __init__(self, centres: Centres, score: ScoreFunction | None = None) -> None:
        """Take where positions look, given height and width; with a score, images in doubt get a second look."""
        self._centres, self._score = centres, score
        self.pages: dict[str, list[ReadBatch]] = {}

    def __call__(self, split: str, scores: Scores, bags: Bags) -> None:
        """Read one batch, of a split or of the "calibration" bags. Raises ValueError without truth."""
        if bags.truth is None:
            raise ValueError("bags to read need their truth")
        where = self._centres(*bags.instances.shape[-2:])
        # Nothing is learnt from second looks: calibration bags need none.
        again = functools.partial(_look_again, self._score, bags) if self._score and split != "calibration" else None
        self.pages.setdefault(split, []).append(read_batch(scores.instances, bags.truth, where, again))

    def evaluation(self) -> Evaluation:
        """Return the metrics of all batches read, and the decoder that was learnt for them."""
        pages = {split: join(many) for split, many in self.pages.items()}
        calibration = pages.pop("calibration", None)
        return evaluate_reading(pages, calibration)


def _look_again(score: ScoreFunction, bags: Bags, probs: Tensor, shown: Shown, blobs: Blobs) -> Blobs:
    def look(images: Tensor) -> Tensor:
        return score(Bags(images, bags.labels[: len(images)])).instances  # whatever the labels, a score reads none

    return rescore(bags.instances, probs, shown, blobs, look)


def evaluate_reading(
    pages: Mapping[str, ReadBatch], calibration: ReadBatch | None = None, classes: int = 10
) -> Evaluation:
    """Return the reading metrics of every split by `split/metric`, and the decoder that was learnt for them.

    Nothing is learnt from the test split.

    Args:
        pages: what is needed of all images of each split.
        calibration: the images that the decoder is learnt from, its strings and its boxes; None: the validation split.
        classes: C, the background not counted.

    Returns:
        Metrics without those that are undefined for these images, and the decoder as JSON data.
    """
    learnt_from = pages["validation"] if calibration is None else calibration
    reader = learn_reader(learnt_from.blobs, learnt_from.truth, classes)
    if learnt_from.found is not None:
        reader = dataclasses.replace(reader, margin=learn_margin(learnt_from.found, learnt_from.instances))
    values = {
        f"{split}/{name}": value
        for split, page in pages.items()
        for name, value in page_metrics(page, reader, classes).items()
    }
    return Evaluation({k: v for k, v in values.items() if not math.isnan(v)}, reader.to_json())


def page_metrics(page: ReadBatch, reader: Reader, classes: int = 10) -> dict[str, float]:
    """Return the reading metrics of one split by name; NaN where one is undefined."""
    read = spell(page.blobs, len(page), reader)
    values = {
        "transcription_error": error(read, page.truth),
        "transcription_error_columns": error(page.columns, page.truth),
        "transcription_error_posterior": error(page.posterior, page.truth),
        "transcription_error_components": error(read, page.truth),
    }
    if page.again is not None:
        values["transcription_error_rescored"] = error(spell(page.again, len(page), reader), page.truth)
    wrong = patterns(read, page.truth, page.vertical, page.seen)
    values |= {f"error_{name}": share for name, share in shares(wrong).items()}
    if page.found is not None:
        boxes = grown(page.found, reader.margin)
        values["mean_iou"] = mean_iou(boxes, page.instances)
        values["box_average_precision"] = box_average_precision(boxes, page.instances, classes)
    return values


def error(read: Sequence[str], truth: Sequence[str]) -> float:
    """Return the share of strings that are not read exactly; NaN of none."""
    wrong = [a != b for a, b in zip(read, truth, strict=True)]
    return sum(wrong) / len(wrong) if wrong else math.nan
