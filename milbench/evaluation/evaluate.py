"""Score bags in batches and compute the metrics that every task of a kind shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.task import ScoreFunction, Scores, Split
from milbench.evaluation import metrics

Watch = Callable[[str, Scores, Bags], None]
"""Who looks at every batch of bags as it is scored, for metrics of its own; told the split, or "calibration"."""
Centres = Callable[[int, int], tuple[Tensor, Tensor]]
CPU = torch.device("cpu")
THRESHOLD = "chosen/threshold"
"""The threshold on presence scores from which a class counts as detected, chosen before the test bags are seen."""


@dataclass(frozen=True, slots=True)
class Exam:
    """What a split asks: batches of one-instance bags, if there are any, and batches of bags with their truth."""

    singles: Sequence[Bags]
    bags: Sequence[Bags]


@dataclass(frozen=True, slots=True)
class Answers:
    """What a loss said of the bags of a split, on the CPU.

    presence, hits, labels: (B, C).
    wrong: flat, see `milbench.evaluation.metrics.wrong_instances`.
    """

    presence: Tensor
    hits: Tensor
    labels: Tensor
    wrong: Tensor


def evaluate(
    score: ScoreFunction,
    exams: Mapping[Split, Exam],
    calibration: Sequence[Bags] | None = None,
    centres: Centres | None = None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """Return the metrics of every split by `split/metric`; one that is undefined for these bags is left out.

    calibration: bags to choose the threshold of the set error on, where that is not the validation split.
    centres: for images, where the positions look, given height and width.
    watch: sees every batch of bags with its scores, once.
    """
    answers = {split: answer(_watched(score, split, watch), exam.bags, centres) for split, exam in exams.items()}
    if calibration is None:
        chosen_on = answers["validation"]
    else:
        chosen_on = answer(_watched(score, "calibration", watch), calibration, centres)
    threshold = metrics.best_threshold(chosen_on.presence, chosen_on.labels)
    values = {THRESHOLD: threshold}
    for split, exam in exams.items():
        presence, labels = answers[split].presence, answers[split].labels
        values[f"{split}/instance_error"] = singles_error(score, exam.singles)
        values[f"{split}/set_error"] = metrics.set_error(presence, labels, threshold)
        values[f"{split}/average_precision"] = metrics.average_precision(presence, labels)
        values[f"{split}/auroc"] = metrics.auroc(presence, labels)
        values[f"{split}/hit_rate"] = metrics.hit_rate(answers[split].hits, labels)
        values[f"{split}/posterior_error"] = metrics.share(answers[split].wrong)
    return {name: value for name, value in values.items() if not math.isnan(value)}


def singles_error(score: ScoreFunction, singles: Sequence[Bags]) -> float:
    """Return the instance error over batches of one-instance bags, NaN where there are none."""
    if not singles:
        return math.nan
    scores = torch.cat([score(bags).classes.cpu() for bags in singles])
    labels = torch.cat([bags.labels.cpu() for bags in singles])
    return metrics.instance_error(scores, labels.int().argmax(dim=1))


def answer(score: ScoreFunction, batches: Sequence[Bags], centres: Centres | None = None) -> Answers:
    """Score bags with their truth, batch by batch: canvases of different batches may differ in size."""
    parts = []
    for bags in batches:
        scores = score(bags)
        if bags.truth is None:
            raise ValueError("bags to evaluate on need their truth")
        where = centres(*bags.instances.shape[-2:]) if centres else None
        instances, truth = scores.instances.cpu(), bags.truth.to(CPU)
        hits = metrics.class_hits(instances, truth, where)
        wrong = metrics.wrong_instances(instances, truth, None if bags.mask is None else bags.mask.cpu())
        parts.append((scores.presence.cpu(), hits, bags.labels.cpu(), wrong))
    return Answers(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _watched(score: ScoreFunction, split: str, watch: Watch | None) -> ScoreFunction:
    def scored(bags: Bags) -> Scores:
        scores = score(bags)
        if watch is not None:
            watch(split, scores, bags)
        return scores

    return scored


def first(bags: Bags, count: int) -> Bags:
    """Return the first bags of a batch."""

    def cut(value: Tensor | None) -> Tensor | None:
        return None if value is None else value[:count]

    truth = bags.truth and Truth(bags.truth.classes[:count], cut(bags.truth.boxes), cut(bags.truth.position_classes))
    return Bags(bags.instances[:count], bags.labels[:count], cut(bags.mask), truth)
