"""Score bags in batches and compute the metrics that every task of a kind shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench import metrics
from milbench.bags import Bags, Truth
from milbench.task import ScoreFunction, Scores, Split

Judge = Callable[[Scores, Bags], Mapping[str, Tensor]]
"""What a task says of every bag of a batch on top: values (B,) by the name of the metric that is their mean."""
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
    wrong: flat, see `milbench.metrics.wrong_instances`.
    judged: (B,) each, what the task's own judge says.
    """

    presence: Tensor
    hits: Tensor
    labels: Tensor
    wrong: Tensor
    judged: Mapping[str, Tensor]


def evaluate(
    score: ScoreFunction,
    exams: Mapping[Split, Exam],
    calibration: Sequence[Bags] | None = None,
    centres: Centres | None = None,
    judge: Judge | None = None,
) -> dict[str, float]:
    """Return the metrics of every split by `split/metric`; one that is undefined for these bags is left out.

    calibration: bags to choose the threshold of the set error on, where that is not the validation split.
    centres: for images, where the positions look, given height and width.
    judge: metrics of the task's own, from the scores of a batch and its bags.
    """
    answers = {split: answer(score, exam.bags, centres, judge) for split, exam in exams.items()}
    chosen_on = answer(score, calibration, centres) if calibration is not None else answers["validation"]
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
        values |= {f"{split}/{name}": metrics.share(each) for name, each in answers[split].judged.items()}
    return {name: value for name, value in values.items() if not math.isnan(value)}


def singles_error(score: ScoreFunction, singles: Sequence[Bags]) -> float:
    """Return the instance error over batches of one-instance bags, NaN where there are none."""
    if not singles:
        return math.nan
    scores = torch.cat([score(bags).classes.cpu() for bags in singles])
    labels = torch.cat([bags.labels.cpu() for bags in singles])
    return metrics.instance_error(scores, labels.int().argmax(dim=1))


def answer(
    score: ScoreFunction, batches: Sequence[Bags], centres: Centres | None = None, judge: Judge | None = None
) -> Answers:
    """Score bags with their truth, batch by batch: canvases of different batches may differ in size."""
    parts, judged = [], []
    for bags in batches:
        scores = score(bags)
        if bags.truth is None:
            raise ValueError("bags to evaluate on need their truth")
        where = centres(*bags.instances.shape[-2:]) if centres else None
        instances, truth = scores.instances.cpu(), bags.truth.to(CPU)
        hits = metrics.class_hits(instances, truth, where)
        wrong = metrics.wrong_instances(instances, truth, None if bags.mask is None else bags.mask.cpu())
        judged.append(judge(scores, bags) if judge else {})
        parts.append((scores.presence.cpu(), hits, bags.labels.cpu(), wrong))
    own = {name: torch.cat([values[name].cpu() for values in judged]) for name in judged[0]}
    presence, hits, labels, wrong = (torch.cat(column) for column in zip(*parts, strict=True))
    return Answers(presence, hits, labels, wrong, own)


def first(bags: Bags, count: int) -> Bags:
    """Return the first bags of a batch."""

    def cut(value: Tensor | None) -> Tensor | None:
        return None if value is None else value[:count]

    truth = bags.truth and Truth(bags.truth.classes[:count], cut(bags.truth.boxes), cut(bags.truth.position_classes))
    return Bags(bags.instances[:count], bags.labels[:count], cut(bags.mask), truth)
