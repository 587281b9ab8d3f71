"""Score bags in batches and compute the metrics that all tasks share."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.outcomes import Outcomes
from milbench.api.reliability import Bin, calibration_error
from milbench.api.scores import Scores
from milbench.api.task import Evaluation, ScoreFunction, Split
from milbench.errors import UsageError
from milbench.evaluation import metrics

Scored = tuple[Bags, Scores]
Hook = Callable[[str, Scores, Bags, float], None]
"""Called with the split (or "calibration"), the scores and the bags of every batch, and the threshold that makes the
loss's own label sets of presence scores, to compute further metrics."""
CPU = torch.device("cpu")
THRESHOLD, LABEL_THRESHOLD = "chosen/threshold", "chosen/label_threshold"
"""The threshold on presence scores from which a class counts as detected, chosen by the set error, and another one
by the label error, which serves no other metric; both before the test bags are seen."""
ROUNDED = -(2.0**-24)
"""The log-probability of what rounds to 1 in single precision, in which networks compute."""


@dataclass(frozen=True, slots=True)
class EvalSplit:
    """The bags of a split, in batches.

    Where the bags themselves hold one instance each, `single_instance` is the same object, and they are scored once.
    """

    single_instance: Sequence[Bags]  # bags that hold one instance each, possibly none
    bags: Sequence[
        Bags
    ]  # with their truth where it is known; without it the metrics of label sets are left


@dataclass(frozen=True, slots=True)
class Predictions:
    """The predictions of a loss for the B bags of a split, on the CPU; see `milbench.Scores`."""

    classes: Tensor  # (B, C)
    presence: Tensor  # (B, C)
    labels: Tensor  # (B, C) bool, the true label sets
    hits: (
        Tensor | None
    )  # (B, C) bool, see `metrics.class_hits`; None without instance truth, or centres for images
    wrong: Tensor  # (B,) int64, how many instances have another most probable class than their own
    sizes: Tensor  # (B,) int64, how many instances there are; 0 where their classes are not known by position
    instances: Tensor  # (M,) int64, the classes of all these instances
    items: str  # a digest of the bags in their order, see `add_items`
    log_odds: Tensor | None = None  # (B, C), of the presence
    log_prob: Tensor | None = None  # (B,)
    even_odds_log_prob: Tensor | None = None  # (B,)

    def reliability(self) -> dict[str, list[Bin]]:
        """Return the bins behind the calibration errors of presence and of label sets that the loss has."""
        from scipy.special import expit  # scipy takes a while, and a plan needs none of it

        forecasts = {}
        if (odds := self.log_odds) is not None:
            forecasts["presence_ece"] = (
                expit(odds.double().flatten().numpy()),
                self.labels.flatten(),
            )
        if (log_prob := self.even_odds_log_prob) is not None:
            right = ~metrics.wrong_sets(self.presence, self.labels, metrics.EVEN_ODDS)
            forecasts["set_ece"] = log_prob.double().clamp(max=ROUNDED).exp().numpy(), right
        return {
            name: metrics.reliability_bins(probs, happened.numpy())
            for name, (probs, happened) in forecasts.items()
            if not np.isnan(probs).any()
        }


def evaluate_bags(
    score: ScoreFunction,
    splits: Mapping[Split, EvalSplit],
    calibration: Sequence[Bags] | None = None,
    hook: Hook | None = None,
    limit: int | None = None,
    training_labels: Tensor | None = None,
) -> Evaluation:
    """Return the metrics of every split and the outcomes of the test items; a metric that is undefined is left out.

    Every loss is judged by its own label sets: the classes whose presence score is at or above a threshold, which is
    chosen before the test bags are seen.

    Args:
        score: from a batch of bags to their scores.
        splits: the bags of each split.
        calibration: bags to choose the threshold on, which may be training bags; None: those of the validation split.
        hook: called once with every batch of bags, its scores and the threshold.
        limit: how many bags of each kind are used, the first ones; None: all. A task passes its `evaluation_limit`.
        training_labels: (N, C) bool, label sets of training bags, for the no-skill line; None: there is none.

    Returns:
        Metrics by `split/metric`, what was chosen before the test bags are seen as `chosen/...`, and of the test split
        the outcomes, the bins behind the calibration errors, and the counts by class.
    """

    def scored(batches: Sequence[Bags], split: str = "") -> Iterator[Scored]:
        for number in range(len(batches)):
            bags = batches[number]
            scores = score(bags)
            if hook and split:
                hook(split, scores, bags, threshold)
            yield bags, scores

    splits = limited_splits(splits, limit)
    chosen_on, near = (
        ("validation", None) if calibration is None else ("calibration", metrics.EVEN_ODDS)
    )
    batches = scored(
        splits["validation"].bags if calibration is None else first_bags(calibration, limit)
    )
    retained = (
        list(batches) if hook else []
    )  # a hook needs the maps, and the threshold that is chosen by them
    chosen_by = predictions_of(retained or batches)
    threshold = metrics.best_threshold(chosen_by.presence, chosen_by.labels, near)
    by_labels = metrics.best_threshold(chosen_by.presence, chosen_by.labels, near, by="labels")

    while hook and retained:
        bags, scores = retained.pop(0)  # maps are large
        hook(chosen_on, scores, bags, threshold)
    values, outcomes, reliability = {THRESHOLD: threshold, LABEL_THRESHOLD: by_labels}, {}, {}
    class_counts = None
    for name, split in splits.items():
        predicted = chosen_by if name == chosen_on else predictions_of(scored(split.bags, name))
        alone = predicted if split.single_instance is split.bags else None
        if split.single_instance and alone is None:
            alone = predictions_of(scored(split.single_instance))
        terms, curves = (
            outcomes_by_metric(predicted, alone, threshold, by_labels),
            predicted.reliability(),
        )
        of_split = {metric: term.value for metric, term in terms.items()}
        of_split |= metrics.ranking_metrics(predicted.presence, predicted.labels)
        if training_labels is not None:
            one_instance = alone.labels if alone else None
            of_split |= metrics.no_skill_errors(
                training_labels, predicted.labels, one_instance, predicted.instances
            )
        of_split |= {metric: calibration_error(bins) for metric, bins in curves.items()}
        values |= {
            f"{name}/{metric}": value for metric, value in of_split.items() if not math.isnan(value)
        }
        if name == "test":
            outcomes, reliability = terms, curves
            named = metrics.predicted_sets(predicted.presence, threshold)
            class_counts = metrics.class_counts(named, predicted.labels).tolist()
    return Evaluation(values, None, outcomes or None, reliability or None, class_counts)


def outcomes_by_metric(
    predicted: Predictions, alone: Predictions | None, threshold: float, by_labels: float
) -> dict[str, Outcomes]:
    """Return what each bag adds to the metrics of label sets, hits and instances that are defined.

    `alone` is of bags of one instance. The thresholds are chosen by the set error, and by the label error.
    """
    presence, labels, hits, items = (
        predicted.presence,
        predicted.labels,
        predicted.hits,
        predicted.items,
    )
    misjudged, least = (
        (metrics.predicted_sets(presence, t) != labels).sum(dim=1) for t in (threshold, by_labels)
    )
    log_prob, count = predicted.log_prob, labels.shape[1]
    outcomes = {
        "set_error": outcomes_of(metrics.wrong_sets(presence, labels, threshold), items),
        "label_error": outcomes_of(misjudged, items, count),
        "own_label_error": outcomes_of(least, items, count),
        "hit_rate": None
        if hits is None
        else outcomes_of((hits & labels).sum(dim=1), items, labels.sum(dim=1)),
        "posterior_error": outcomes_of(predicted.wrong, items, predicted.sizes),
        "nll": None
        if log_prob is None or not log_prob.isfinite().all()
        else outcomes_of(-log_prob, items),
    }
    if alone:
        wrong = metrics.wrong_classes(alone.classes, alone.labels.int().argmax(dim=1))
        outcomes = {"instance_error": outcomes_of(wrong, alone.items), **outcomes}
    return {metric: of_bags for metric, of_bags in outcomes.items() if of_bags is not None}


def add_items(digest: Any, bags: Bags) -> None:
    """Add the shapes, label sets, masks and truth of bags to a digest of hashlib, not their instances."""
    truth = bags.truth
    truth_parts = (truth.classes, truth.boxes, truth.position_classes) if truth else ()
    digest.update(repr(tuple(bags.instances.shape)).encode())
    for values in (bags.labels.bool(), bags.mask, *truth_parts):
        exact = None if values is None else values.detach().cpu().contiguous()
        head = "none" if exact is None else f"{exact.dtype} {tuple(exact.shape)} "
        digest.update(head.encode() + (b"" if exact is None else exact.numpy().tobytes()))


def outcomes_of(sums: Tensor, items: str, weights: Tensor | int = 1) -> Outcomes | None:
    """Return one metric's outcomes from what each of n items adds to its two sums; None where no item has a weight."""
    if isinstance(weights, int):
        weights = torch.full_like(sums, weights, dtype=torch.float32)
    return (
        Outcomes(sums.float().numpy(), weights.float().numpy(), items)
        if (weights > 0).any()
        else None
    )


def limited_splits(splits: Mapping[Split, EvalSplit], limit: int | None) -> dict[Split, EvalSplit]:
    """Return each split with the first `limit` bags of each kind; None: all of them."""
    limited = {}
    for name, split in splits.items():
        bags, is_same = first_bags(split.bags, limit), split.single_instance is split.bags
        limited[name] = EvalSplit(
            bags if is_same else first_bags(split.single_instance, limit), bags
        )
    return limited


def first_bags(batches: Sequence[Bags], limit: int | None) -> Sequence[Bags]:
    """Return the batches of the first `limit` bags, the last one cut where needed; None: all."""
    if limit is None:
        return batches
    limited: list[Bags] = []
    while limit > 0 and len(limited) < len(batches):
        limited.append(batches[len(limited)].selected(slice(limit)))
        limit -= len(limited[-1])
    return limited


def predictions_of(batches: Iterable[Scored]) -> Predictions:
    """Return the predictions for bags, batch by batch: images of different batches may differ in size.

    Without instance truth no instance counts as wrong. Raises UsageError where some batches have truth and others none.
    """
    parts: list[tuple[Tensor, ...]] = []
    probabilities: list[tuple[Any, ...]] = []  # None where the loss has none
    hits, digest = list[Tensor](), hashlib.sha256()
    for bags, scores in batches:
        truth = bags.truth and fitting_truth(bags.truth, scores).to(CPU)
        mask = bags.mask if scores.mask is None else scores.mask
        boxed = truth is not None and truth.boxes is not None and scores.centres is not None
        if truth is not None and (boxed or truth.position_classes is not None):
            hits.append(metrics.class_hits(scores.evidence.cpu(), truth, scores.centres))
        mask = None if mask is None else mask.cpu()
        wrong, sizes = metrics.wrong_instances(scores.instances.cpu(), truth, mask)
        by_place = truth.position_classes if sizes.any() and truth else None
        instances = (
            wrong[:0] if by_place is None else by_place[... if mask is None else mask].flatten()
        )
        probabilities.append((scores.log_odds, scores.log_prob, scores.even_odds_log_prob))
        parts.append(
            (
                scores.classes.cpu(),
                scores.presence.cpu(),
                bags.labels.cpu(),
                wrong,
                sizes,
                instances,
            )
        )
        add_items(digest, bags)
    if len(hits) not in (0, count := len(parts)):
        raise UsageError(
            f"of {count} batches to evaluate on, {len(hits)} have instance truth: expected all or none"
        )
    classes, presence, labels, wrong, sizes, instances = (
        torch.cat(column) for column in zip(*parts, strict=True)
    )
    known = (
        None if any(p is None for p in ps) else torch.cat(ps).cpu()
        for ps in zip(*probabilities, strict=True)
    )
    return Predictions(
        classes, presence, labels, torch.cat(hits) if hits else None, wrong, sizes, instances, digest.hexdigest()[:32],
        *known,
    )  # fmt: skip


def fitting_truth(truth: Truth, scores: Scores) -> Truth:
    """Return the truth without classes by position where a network has more or fewer positions than instances."""
    known = truth.position_classes
    fits = known is None or known.shape[1:] == scores.instances.shape[2:]
    return truth if fits else replace(truth, position_classes=None)
