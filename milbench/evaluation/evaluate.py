"""Score bags in batches and compute the metrics that all tasks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.api.bags import Bags
from milbench.api.task import ScoreFunction, Scores, Split
from milbench.evaluation import metrics

Hook = Callable[[str, Scores, Bags], None]
"""Called with the split (or "calibration"), the scores and the bags of every batch, to compute further metrics."""
Centres = Callable[[int, int], tuple[Tensor, Tensor]]
"""From height and width of an image to y of every row and x of every column of positions, all in pixels."""
CPU = torch.device("cpu")
THRESHOLD = "chosen/threshold"
"""The threshold on presence scores from which a class counts as detected, chosen before the test bags are seen."""


@dataclass(frozen=True, slots=True)
class EvalSplit:
    """The bags of a split.

    Args:
        single_instance: batches of bags that hold one instance each, possibly none. Where `bags` are such bags, this is
            the same object, and they are scored once.
        bags: batches of bags with their truth.
    """

    single_instance: Sequence[Bags]
    bags: Sequence[Bags]


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a loss predicts for the B bags of a split, on the CPU.

    Args:
        classes: (B, C) class scores, see `milbench.api.task.Scores`.
        presence: (B, C) presence scores.
        labels: (B, C) bool, the true label sets.
        hits: (B, C) bool, see `milbench.evaluation.metrics.class_hits`; None without centres of positions.
        wrong: flat bool, see `milbench.evaluation.metrics.wrong_instances`.
    """

    classes: Tensor
    presence: Tensor
    labels: Tensor
    hits: Tensor | None
    wrong: Tensor


def evaluate_splits(
    score: ScoreFunction,
    splits: Mapping[Split, EvalSplit],
    calibration: Sequence[Bags] | None = None,
    centres: Centres | None = None,
    hook: Hook | None = None,
    limit: int | None = None,
) -> dict[str, float]:
    """Return the metrics of every split by `split/metric`; one that is undefined for these bags is left out.

    Args:
        score: the scores of a batch of bags.
        splits: the bags of each split.
        calibration: bags to choose the threshold of the set error on; None: those of the validation split.
        centres: for images, the centres of the positions; None: the hit rate is left out.
        hook: called once with every batch of bags and its scores.
        limit: how many bags of each kind are used, the first ones; None: all. A task passes its `evaluation_limit`.

    Returns:
        Shares in [0, 1] by `split/metric`, and the threshold on presence scores as `chosen/threshold`.

    Examples:
        Two bags of two instances: {0} and {0, 1}. The scores miss class 1 of the second bag.

        >>> import torch
        >>> from milbench import Bags, Scores, Truth
        >>> position_classes = torch.tensor([[0, 2], [0, 1]])  # 2 is background
        >>> truth = Truth(torch.tensor([[0, -1], [0, 1]]), position_classes=position_classes)
        >>> bags = Bags(torch.zeros(2, 2, 1), torch.tensor([[True, False], [True, True]]), truth=truth)
        >>> def score(bags):
        ...     presence = torch.tensor([[0.9, 0.2], [0.8, 0.1]])
        ...     instances = torch.tensor([[[0.9, 0.1], [0.0, 0.1], [0.1, 0.8]], [[0.8, 0.6], [0.1, 0.3], [0.1, 0.1]]])
        ...     return Scores(presence, presence, instances)
        >>> found = evaluate_splits(score, {"validation": EvalSplit(single_instance=(), bags=[bags])})
        >>> found["validation/set_error"], found["validation/posterior_error"]
        (0.5, 0.25)
    """
    splits = {name: limited(split, limit) for name, split in splits.items()}
    predictions = {
        name: predict_bags(_with_hook(score, name, hook), split.bags, centres) for name, split in splits.items()
    }
    if calibration is None:
        chosen_on = predictions["validation"]
    else:
        chosen_on = predict_bags(_with_hook(score, "calibration", hook), first_bags(calibration, limit), centres)
    threshold = metrics.best_threshold(chosen_on.presence, chosen_on.labels)
    values = {THRESHOLD: threshold}
    for name, split in splits.items():
        presence, labels, hits = predictions[name].presence, predictions[name].labels, predictions[name].hits
        if split.single_instance is split.bags:
            error = metrics.instance_error(predictions[name].classes, labels.int().argmax(dim=1))
        else:
            error = single_instance_error(score, split.single_instance)
        values[f"{name}/instance_error"] = error
        values[f"{name}/set_error"] = metrics.set_error(presence, labels, threshold)
        values[f"{name}/average_precision"] = metrics.average_precision(presence, labels)
        values[f"{name}/auroc"] = metrics.auroc(presence, labels)
        values[f"{name}/hit_rate"] = math.nan if hits is None else metrics.hit_rate(hits, labels)
        values[f"{name}/posterior_error"] = metrics.share(predictions[name].wrong)
    return {name: value for name, value in values.items() if not math.isnan(value)}


def limited(split: EvalSplit, limit: int | None) -> EvalSplit:
    """Return the first bags of each kind of a split, at most `limit`; None: all."""
    bags = first_bags(split.bags, limit)
    same = split.single_instance is split.bags
    return EvalSplit(bags if same else first_bags(split.single_instance, limit), bags)


def first_bags(batches: Sequence[Bags], limit: int | None) -> Sequence[Bags]:
    """Return the batches of the first `limit` bags, the last one cut where needed; None: all.

    Examples:
        >>> batches = [Bags(torch.zeros(size, 2, 1), torch.zeros(size, 1)) for size in (3, 3, 3)]
        >>> [len(bags) for bags in first_bags(batches, 4)]
        [3, 1]
    """
    if limit is None:
        return batches
    taken: list[Bags] = []
    left = limit
    for number in range(len(batches)):  # batches may be made when they are accessed
        if left <= 0:
            break
        taken.append(batches[number].part(0, left))
        left -= len(taken[-1])
    return taken


def single_instance_error(score: ScoreFunction, single_instance: Sequence[Bags]) -> float:
    """Return the instance error over batches of one-instance bags, NaN where there are none.

    Examples:
        >>> import torch
        >>> bags = Bags(torch.zeros(2, 1, 1), torch.tensor([[True, False], [False, True]]))
        >>> def score(bags):
        ...     classes = torch.tensor([[0.9, 0.1], [0.7, 0.3]])  # the second bag is taken for class 0
        ...     return Scores(classes, classes, torch.zeros(2, 3, 1))
        >>> single_instance_error(score, [bags])
        0.5
    """
    if not single_instance:
        return math.nan
    scores = torch.cat([score(bags).classes.cpu() for bags in single_instance])
    labels = torch.cat([bags.labels.cpu() for bags in single_instance])
    return metrics.instance_error(scores, labels.int().argmax(dim=1))


def predict_bags(score: ScoreFunction, batches: Sequence[Bags], centres: Centres | None = None) -> Predictions:
    """Return the predictions for bags, scored batch by batch: images of different batches may differ in size.

    Args:
        score: the scores of a batch of bags.
        batches: bags with their truth.
        centres: for images, the centres of the positions; None: hits are left out.

    Returns:
        The scores, the label sets and the errors of all B bags, joined over the batches and moved to the CPU.

    Raises:
        ValueError: a batch has no truth.
    """
    parts: list[tuple[Tensor, ...]] = []
    hits: list[Tensor] = []
    for bags in batches:
        scores = score(bags)
        if bags.truth is None:
            raise ValueError("bags to evaluate on need their truth")
        where = centres(*bags.instances.shape[-2:]) if centres else None
        instances, truth = scores.instances.cpu(), bags.truth.to(CPU)
        if where is not None or truth.position_classes is not None:
            hits.append(metrics.class_hits(instances, truth, where))
        wrong = metrics.wrong_instances(instances, truth, None if bags.mask is None else bags.mask.cpu())
        parts.append((scores.classes.cpu(), scores.presence.cpu(), bags.labels.cpu(), wrong))
    classes, presence, labels, wrong = (torch.cat(column) for column in zip(*parts, strict=True))
    return Predictions(classes, presence, labels, torch.cat(hits) if hits else None, wrong)


def _with_hook(score: ScoreFunction, split: str, hook: Hook | None) -> ScoreFunction:
    def scored(bags: Bags) -> Scores:
        scores = score(bags)
        if hook is not None:
            hook(split, scores, bags)
        return scores

    return scored
