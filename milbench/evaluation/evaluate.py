"""Score bags in batches and compute the metrics that all tasks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
from milbench.evaluation.calibration import reliability_bins
from milbench.evaluation.items import ItemsDigest, outcomes_of
from milbench.evaluation.no_skill import no_skill_errors

Scored = tuple[Bags, Scores]
"""A batch of bags with its scores."""
Hook = Callable[[str, Scores, Bags, float], None]
"""Called with the split (or "calibration"), the scores and the bags of every batch, and the threshold that makes the
loss's own label sets of presence scores, to compute further metrics."""
CPU = torch.device("cpu")
THRESHOLD, LABEL_THRESHOLD = "chosen/threshold", "chosen/label_threshold"
"""The threshold on presence scores from which a class counts as detected, chosen by the set error, and another one
by the label error, which serves no other metric; both before the test bags are seen."""

EVEN_ODDS = 0.0
"""The threshold that is preferred among those that are equally good on bags that were trained on, which a network may
separate by a wide gap: where presence scores are log-odds, label sets then hold what is as likely as not."""

ROUNDED = -(2.0**-24)
"""The log-probability of what rounds to 1 in single precision, in which networks compute."""


@dataclass(frozen=True, slots=True)
class EvalSplit:
    """The bags of a split.

    Args:
        single_instance: batches of bags that hold one instance each, possibly none. Where `bags` are such bags, this is
            the same object, and they are scored once.
        bags: batches of bags, with their truth where it is known. Without it the metrics of label sets are left.
    """

    single_instance: Sequence[Bags]
    bags: Sequence[Bags]


@dataclass(frozen=True, slots=True)
class Predictions:
    """The predictions of a loss for the B bags of a split, on the CPU; see `milbench.Scores`."""

    classes: Tensor  # (B, C)
    presence: Tensor  # (B, C)
    labels: Tensor  # (B, C) bool, the true label sets
    hits: Tensor | None  # (B, C) bool, see `metrics.class_hits`; None without instance truth, or centres for images
    wrong: Tensor  # (B,) int64, how many instances have another most probable class than their own
    sizes: Tensor  # (B,) int64, how many instances there are; 0 where their classes are not known by position
    items: str  # a digest of the bags, see `ItemsDigest`
    log_odds: Tensor | None = None  # (B, C), of the presence
    log_prob: Tensor | None = None  # (B,)
    even_odds_log_prob: Tensor | None = None  # (B,)

    def reliability(self) -> dict[str, list[Bin]]:
        """Return the bins behind the calibration errors of presence and of the label sets at even odds.

        One that needs probabilities which the loss has not is left out.
        """
        from scipy.special import expit  # scipy takes a while, and a plan needs none of it

        forecasts = {}
        if (odds := self.log_odds) is not None:
            forecasts["presence_ece"] = expit(odds.double().flatten().numpy()), self.labels.flatten()
        if (log_prob := self.even_odds_log_prob) is not None:
            right = ~metrics.wrong_sets(self.presence, self.labels, EVEN_ODDS)
            forecasts["set_ece"] = log_prob.double().clamp(max=ROUNDED).exp().numpy(), right
        return {
            name: reliability_bins(probs, happened.numpy())
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
    chosen before the test bags are seen. A hook needs it while it has the maps: the scores of the bags that it is
    chosen on are kept until then.

    Args:
        score: the scores of a batch of bags.
        splits: the bags of each split.
        calibration: bags to choose the threshold on, which may be training bags; None: those of the validation split.
        hook: called once with every batch of bags, its scores and the threshold.
        limit: how many bags of each kind are used, the first ones; None: all. A task passes its `evaluation_limit`.
        training_labels: (N, C) bool, label sets of training bags, for the no-skill line; None: there is none.

    Returns:
        Metrics by `split/metric`, what was chosen before the test bags are seen as `chosen/...`, the outcomes, and the
        bins behind the calibration errors.

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
        >>> found = evaluate_bags(score, {"validation": EvalSplit(single_instance=(), bags=[bags])})
        >>> found.metrics["validation/set_error"], found.metrics["validation/posterior_error"]
        (0.5, 0.25)
    """
    splits = limited_splits(splits, limit)
    chosen_on = "validation" if calibration is None else "calibration"
    batches = scored(score, splits["validation"].bags if calibration is None else first_bags(calibration, limit))
    retained = list(batches) if hook else []
    chosen_by = predictions_of(retained or batches)
    near = None if calibration is None else EVEN_ODDS
    threshold = metrics.best_threshold(chosen_by.presence, chosen_by.labels, near)
    by_labels = metrics.best_label_threshold(chosen_by.presence, chosen_by.labels, near)
    if hook:
        for bags, scores in retained:
            hook(chosen_on, scores, bags, threshold)
    retained.clear()  # maps are large
    values, outcomes, reliability = {THRESHOLD: threshold, LABEL_THRESHOLD: by_labels}, {}, {}
    for name, split in splits.items():
        predicted = chosen_by
        if name != chosen_on:
            predicted = predictions_of(_hooked(scored(score, split.bags), hook, name, threshold))
        alone = _alone(score, split, predicted)
        terms = {"instance_error": _instance_outcomes(alone), **bag_outcomes(predicted, threshold, by_labels)}
        defined = {metric: term for metric, term in terms.items() if term is not None}
        values |= {f"{name}/{metric}": term.value for metric, term in defined.items()}
        values[f"{name}/average_precision"] = metrics.average_precision(predicted.presence, predicted.labels)
        values[f"{name}/auroc"] = metrics.auroc(predicted.presence, predicted.labels)
        if training_labels is not None:
            line = no_skill_errors(training_labels, predicted.labels, None if alone is None else alone.labels)
            values |= {f"{name}/{metric}": value for metric, value in line.items()}
        curves = predicted.reliability()
        values |= {f"{name}/{metric}": calibration_error(bins) for metric, bins in curves.items()}
        if name == "test":
            outcomes, reliability = defined, curves
    defined_values = {name: value for name, value in values.items() if not math.isnan(value)}
    return Evaluation(defined_values, outcomes=outcomes or None, reliability=reliability or None)


def scored(score: ScoreFunction, batches: Sequence[Bags]) -> Iterator[Scored]:
    """Yield every batch of bags with its scores, computed when it is asked for."""
    for number in range(len(batches)):  # batches may be made when they are accessed
        bags = batches[number]
        yield bags, score(bags)


def _hooked(batches: Iterable[Scored], hook: Hook | None, split: str, threshold: float) -> Iterator[Scored]:
    for bags, scores in batches:
        if hook:
            hook(split, scores, bags, threshold)
        yield bags, scores


def bag_outcomes(predicted: Predictions, threshold: float, by_labels: float) -> dict[str, Outcomes | None]:
    """Return the outcomes of each bag for the metrics of label sets, hits and instances; None where undefined.

    The thresholds on presence scores are chosen by the set error, and by the label error.
    """
    labels, hits, items = predicted.labels, predicted.hits, predicted.items
    wrong = metrics.wrong_sets(predicted.presence, labels, threshold)
    log_prob = predicted.log_prob
    if log_prob is not None and not bool(log_prob.isfinite().all()):
        log_prob = None
    misjudged, least = (metrics.wrong_labels(predicted.presence, labels, t) for t in (threshold, by_labels))
    return {
        "set_error": outcomes_of(wrong, torch.ones_like(wrong), items),
        "label_error": outcomes_of(misjudged, torch.full_like(misjudged, labels.shape[1]), items),
        "own_label_error": outcomes_of(least, torch.full_like(least, labels.shape[1]), items),
        "hit_rate": None if hits is None else outcomes_of((hits & labels).sum(dim=1), labels.sum(dim=1), items),
        "posterior_error": outcomes_of(predicted.wrong, predicted.sizes, items),
        "nll": None if log_prob is None else outcomes_of(-log_prob, torch.ones_like(log_prob), items),
    }


def limited_splits(splits: Mapping[Split, EvalSplit], limit: int | None) -> dict[Split, EvalSplit]:
    """Return each split with the first `limit` bags of each kind; None: all of them."""
    limited = {}
    for name, split in splits.items():
        bags, is_same = first_bags(split.bags, limit), split.single_instance is split.bags
        limited[name] = EvalSplit(bags if is_same else first_bags(split.single_instance, limit), bags)
    return limited


def first_bags(batches: Sequence[Bags], limit: int | None) -> Sequence[Bags]:
    """Return the batches of the first `limit` bags, the last one cut where needed; None: all."""
    if limit is None:
        return batches
    limited: list[Bags] = []
    left = limit
    for number in range(len(batches)):  # batches may be made when they are accessed
        if left <= 0:
            break
        limited.append(batches[number].part(0, left))
        left -= len(limited[-1])
    return limited


def predictions_of(batches: Iterable[Scored]) -> Predictions:
    """Return the predictions for bags, batch by batch: images of different batches may differ in size.

    Without instance truth, hits are None and no instance counts as wrong; without centres of the positions in their
    scores hits on images and sequences are None.

    Raises:
        UsageError: some batches have truth and others have none.
    """
    parts: list[tuple[Tensor, ...]] = []
    probabilities: list[tuple[Tensor | None, ...]] = []
    hits: list[Tensor] = []
    items = ItemsDigest()
    for bags, scores in batches:
        where = scores.centres
        truth = bags.truth and fitting_truth(bags.truth, scores).to(CPU)
        mask = bags.mask if scores.mask is None else scores.mask
        if truth is not None and (
            truth.position_classes is not None or (where is not None and truth.boxes is not None)
        ):
            hits.append(metrics.class_hits(scores.evidence.cpu(), truth, where))
        wrong, sizes = metrics.wrong_instances(scores.instances.cpu(), truth, None if mask is None else mask.cpu())
        probabilities.append((scores.log_odds, scores.log_prob, scores.even_odds_log_prob))
        parts.append((scores.classes.cpu(), scores.presence.cpu(), bags.labels.cpu(), wrong, sizes))
        items.add(bags)
    if len(hits) not in (0, len(parts)):
        raise UsageError(
            f"of {len(parts)} batches to evaluate on, {len(hits)} have instance truth: expected all or none"
        )
    classes, presence, labels, wrong, sizes = (torch.cat(column) for column in zip(*parts, strict=True))
    return Predictions(
        classes, presence, labels, torch.cat(hits) if hits else None, wrong, sizes, str(items),
        *(_joined(column) for column in zip(*probabilities, strict=True)),
    )  # fmt: skip


def fitting_truth(truth: Truth, scores: Scores) -> Truth:
    """Return the truth without classes by position where a network has more or fewer positions than instances."""
    known = truth.position_classes
    fits = known is None or known.shape[1:] == scores.instances.shape[2:]
    return truth if fits else replace(truth, position_classes=None)


def _joined(parts: Iterable[Tensor | None]) -> Tensor | None:
    """Return the values of all batches as one tensor on the CPU; None where a batch has none."""
    of_batches = list(parts)
    present = [part.cpu() for part in of_batches if part is not None]
    return torch.cat(present) if len(present) == len(of_batches) else None


def _alone(score: ScoreFunction, split: EvalSplit, predicted: Predictions) -> Predictions | None:
    """Return the predictions for the bags of one instance; None where there are none."""
    if not split.single_instance:
        return None
    return predicted if split.single_instance is split.bags else predictions_of(scored(score, split.single_instance))


def _instance_outcomes(alone: Predictions | None) -> Outcomes | None:
    """Return what each bag of one instance adds to the instance error."""
    if alone is None:
        return None
    wrong = metrics.wrong_classes(alone.classes, alone.labels.int().argmax(dim=1))
    return outcomes_of(wrong, torch.ones_like(wrong), alone.items)
