"""Score bags in batches and compute the metrics that all tasks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.outcomes import Outcomes
from milbench.api.reliability import Bin
from milbench.api.task import Evaluation, ScoreFunction, Scores, Split
from milbench.errors import UsageError
from milbench.evaluation import metrics
from milbench.evaluation.calibration import TEMPERATURES, Forecasts, calibration, presence_forecasts, set_forecasts
from milbench.evaluation.items import ItemsDigest, outcomes_of

Scored = tuple[Bags, Scores]
"""A batch of bags with its scores."""
Hook = Callable[[str, Scores, Bags, float], None]
"""Called with the split (or "calibration"), the scores and the bags of every batch, and the threshold that makes the
loss's own label sets of presence scores, to compute further metrics."""
Centres = Callable[[int, int], tuple[Tensor, Tensor]]
"""From height and width of an image to y of every row and x of every column of positions, all in pixels."""
CPU = torch.device("cpu")
THRESHOLD, LABEL_THRESHOLD = "chosen/threshold", "chosen/label_threshold"
"""The threshold on presence scores from which a class counts as detected, chosen by the set error, and another one
by the label error, which serves no other metric; both before the test bags are seen."""

EVEN_ODDS = 0.0
"""The threshold that is preferred among those that are equally good on bags that were trained on, which a network may
separate by a wide gap: where presence scores are log-odds, label sets then hold what is as likely as not."""


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
    """What a loss predicts for the B bags of a split, on the CPU.

    Args:
        classes: (B, C) class scores, see `milbench.api.task.Scores`.
        presence: (B, C) presence scores.
        labels: (B, C) bool, the true label sets.
        hits: (B, C) bool, see `milbench.evaluation.metrics.class_hits`; None without instance truth or, for images,
            without centres of positions.
        wrong: (B,) int64, how many instances have another most probable class than their own.
        sizes: (B,) int64, how many instances there are; 0 where their classes are not known by position.
        items: a digest of the bags, see `milbench.evaluation.items.ItemsDigest`.
        log_prob: (B,), see `milbench.api.task.Scores`; None where it is not known, as the two below.
        even_odds_log_prob: (B,).
        presence_log_odds: (B, C).
    """

    classes: Tensor
    presence: Tensor
    labels: Tensor
    hits: Tensor | None
    wrong: Tensor
    sizes: Tensor
    items: str
    log_prob: Tensor | None = None
    even_odds_log_prob: Tensor | None = None
    presence_log_odds: Tensor | None = None

    def forecasts(self, kind: str) -> Forecasts | None:
        """Return the forecasts of "presence", or of the "set" at even odds; None where the loss makes none."""
        if kind == "presence":
            return None if self.presence_log_odds is None else presence_forecasts(self.presence_log_odds, self.labels)
        if self.even_odds_log_prob is None:
            return None
        return set_forecasts(self.even_odds_log_prob, ~metrics.wrong_sets(self.presence, self.labels, EVEN_ODDS))


def evaluate_bags(
    score: ScoreFunction,
    splits: Mapping[Split, EvalSplit],
    calibration: Sequence[Bags] | None = None,
    centres: Centres | None = None,
    hook: Hook | None = None,
    limit: int | None = None,
) -> Evaluation:
    """Return the metrics of every split and the outcomes of the test items; a metric that is undefined is left out.

    Every loss is judged by its own label sets: the classes whose presence score is at or above a threshold, which is
    chosen before the test bags are seen. A hook needs it while it has the maps: the scores of the bags that it is
    chosen on are kept until then.

    Args:
        score: the scores of a batch of bags.
        splits: the bags of each split.
        calibration: bags to choose the threshold on, which may be training bags; None: those of the validation split.
        centres: for images, the centres of the positions; None: the hit rate is left out.
        hook: called once with every batch of bags, its scores and the threshold.
        limit: how many bags of each kind are used, the first ones; None: all. A task passes its `evaluation_limit`.

    Returns:
        Metrics by `split/metric`, what was chosen before the test bags are seen as `chosen/...`, the outcomes, and the
        bins behind the calibration errors. The temperatures are fitted on the validation split, without which there
        are none.

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
    chosen_on = splits["validation"].bags if calibration is None else first_bags(calibration, limit)
    kept = [] if hook is None else list(scored(score, chosen_on))
    if hook is not None or calibration is not None:
        presence, labels = _presence(kept or scored(score, chosen_on))
        threshold, by_labels = _thresholds(presence, labels, None if calibration is None else EVEN_ODDS)
    predictions = {}
    for name, split in splits.items():
        batches = kept if kept and calibration is None and name == "validation" else scored(score, split.bags)
        predictions[name] = predictions_of(_hooked(batches, hook, name, threshold) if hook else batches, centres)
    if hook is None and calibration is None:
        threshold, by_labels = _thresholds(predictions["validation"].presence, predictions["validation"].labels)
    if hook is not None and calibration is not None:
        for bags, scores in kept:
            hook("calibration", scores, bags, threshold)
    values, outcomes = {THRESHOLD: threshold, LABEL_THRESHOLD: by_labels}, {}
    for name, split in splits.items():
        found = predictions[name]
        terms = {"instance_error": _instance_terms(score, split, found), **bag_outcomes(found, threshold, by_labels)}
        known = {metric: term for metric, term in terms.items() if term is not None}
        values |= {f"{name}/{metric}": term.value for metric, term in known.items()}
        values[f"{name}/average_precision"] = metrics.average_precision(found.presence, found.labels)
        values[f"{name}/auroc"] = metrics.auroc(found.presence, found.labels)
        if name == "test":
            outcomes = known
    calibrated, curves = _calibration(predictions)
    known_values = {name: v for name, v in (values | calibrated).items() if not math.isnan(v)}
    return Evaluation(known_values, outcomes=outcomes or None, reliability=curves or None)


def scored(score: ScoreFunction, batches: Sequence[Bags]) -> Iterator[Scored]:
    """Yield every batch of bags with its scores, computed when it is asked for."""
    for number in range(len(batches)):  # batches may be made when they are accessed
        bags = batches[number]
        yield bags, score(bags)


def _hooked(batches: Iterable[Scored], hook: Hook, split: str, threshold: float) -> Iterator[Scored]:
    for bags, scores in batches:
        hook(split, scores, bags, threshold)
        yield bags, scores


def _presence(batches: Iterable[Scored]) -> tuple[Tensor, Tensor]:
    """Return (B, C) twice, the presence scores and the labels of all bags, on the CPU."""
    presence, labels = zip(*((scores.presence.cpu(), bags.labels.cpu()) for bags, scores in batches), strict=True)
    return torch.cat(presence), torch.cat(labels)


def _thresholds(presence: Tensor, labels: Tensor, near: float | None = None) -> tuple[float, float]:
    """Return the thresholds on presence scores with the smallest set and label error on these bags."""
    return metrics.best_threshold(presence, labels, near), metrics.best_label_threshold(presence, labels, near)


def bag_outcomes(predicted: Predictions, threshold: float, by_labels: float) -> dict[str, Outcomes | None]:
    """Return what each bag adds to the metrics of label sets, hits and instances, by metric; None where undefined.

    Args:
        predicted: what a loss predicts.
        threshold: on presence scores, chosen by the set error.
        by_labels: likewise, chosen by the label error.
    """
    labels, hits, items = predicted.labels, predicted.hits, predicted.items
    wrong = metrics.wrong_sets(predicted.presence, labels, threshold)
    misjudged, least = (metrics.wrong_labels(predicted.presence, labels, t) for t in (threshold, by_labels))
    return {
        "set_error": outcomes_of(wrong, torch.ones_like(wrong), items),
        "label_error": outcomes_of(misjudged, torch.full_like(misjudged, labels.shape[1]), items),
        "own_label_error": outcomes_of(least, torch.full_like(least, labels.shape[1]), items),
        "hit_rate": None if hits is None else outcomes_of((hits & labels).sum(dim=1), labels.sum(dim=1), items),
        "posterior_error": outcomes_of(predicted.wrong, predicted.sizes, items),
        "nll": _nll(predicted.log_prob, items),
    }


def instance_outcomes(class_scores: Tensor, labels: Tensor, items: str) -> Outcomes | None:
    """Return what each bag of one instance adds to the instance error.

    Args:
        class_scores: (B, C).
        labels: (B, C) bool, each row with one class.
        items: a digest of the bags.
    """
    wrong = metrics.wrong_classes(class_scores, labels.int().argmax(dim=1))
    return outcomes_of(wrong, torch.ones_like(wrong), items)


def limited_splits(splits: Mapping[Split, EvalSplit], limit: int | None) -> dict[Split, EvalSplit]:
    """Return each split with the first `limit` bags of each kind; None: all of them."""
    return {name: limited(split, limit) for name, split in splits.items()}


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


def single_instance_outcomes(score: ScoreFunction, single_instance: Sequence[Bags]) -> Outcomes | None:
    """Return what each of the one-instance bags, of which there are some, adds to the instance error.

    Examples:
        >>> import torch
        >>> bags = Bags(torch.zeros(2, 1, 1), torch.tensor([[True, False], [False, True]]))
        >>> def score(bags):
        ...     classes = torch.tensor([[0.9, 0.1], [0.7, 0.3]])  # the second bag is taken for class 0
        ...     return Scores(classes, classes, torch.zeros(2, 3, 1))
        >>> single_instance_outcomes(score, [bags]).value
        0.5
    """
    scores, labels, items = [], [], ItemsDigest()
    for bags in single_instance:
        scores.append(score(bags).classes.cpu())
        labels.append(bags.labels.cpu())
        items.add(bags)
    return instance_outcomes(torch.cat(scores), torch.cat(labels), str(items))


def predictions_of(batches: Iterable[Scored], centres: Centres | None = None) -> Predictions:
    """Return the predictions for bags, batch by batch: images of different batches may differ in size.

    Args:
        batches: bags with their scores, with instance truth in all of them or in none.
        centres: for images, the centres of the positions; None: hits are left out.

    Returns:
        The scores, the label sets and the errors of all B bags, joined over the batches and moved to the CPU. Without
        instance truth, hits are None and no instance counts as wrong.

    Raises:
        UsageError: some batches have truth and others have none.
    """
    parts: list[tuple[Tensor, ...]] = []
    probabilities: list[tuple[Tensor | None, ...]] = []
    hits: list[Tensor] = []
    items = ItemsDigest()
    for bags, scores in batches:
        where = centres(*bags.instances.shape[-2:]) if centres else None
        truth, mask = bags.truth and bags.truth.to(CPU), None if bags.mask is None else bags.mask.cpu()
        if truth is not None and (
            truth.position_classes is not None or (where is not None and truth.boxes is not None)
        ):
            hits.append(metrics.class_hits(scores.strength.cpu(), truth, where))
        wrong, sizes = _wrong_a_bag(scores.instances.cpu(), truth, mask)
        probabilities.append((scores.log_prob, scores.even_odds_log_prob, scores.presence_log_odds))
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


def _calibration(predictions: Mapping[Split, Predictions]) -> tuple[dict[str, float], dict[str, list[Bin]]]:
    """Return the calibration errors of all kinds of forecasts that the loss makes, and the bins behind them."""
    values: dict[str, float] = {}
    curves: dict[str, list[Bin]] = {}
    for kind in TEMPERATURES:
        found = {split: known for split, p in predictions.items() if (known := p.forecasts(kind)) is not None}
        more_values, more_curves = calibration(kind, found)
        values |= more_values
        curves |= more_curves
    return values, curves


def _nll(log_prob: Tensor | None, items: str) -> Outcomes | None:
    """Return what each bag adds to the negative log-likelihood; None where that is infinite or not known."""
    if log_prob is None or not bool(log_prob.isfinite().all()):
        return None
    return outcomes_of(-log_prob, torch.ones_like(log_prob), items)


def _joined(parts: Iterable[Tensor | None]) -> Tensor | None:
    """Return what is known of every batch, on the CPU; None where a batch lacks it."""
    of_batches = list(parts)
    known = [part.cpu() for part in of_batches if part is not None]
    return torch.cat(known) if len(known) == len(of_batches) else None


def _instance_terms(score: ScoreFunction, split: EvalSplit, predicted: Predictions) -> Outcomes | None:
    if split.single_instance is split.bags:
        return instance_outcomes(predicted.classes, predicted.labels, predicted.items)
    return single_instance_outcomes(score, split.single_instance) if split.single_instance else None


def _wrong_a_bag(instances: Tensor, truth: Truth | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (B,) int64 twice: of the instances of each bag how many are wrong, and how many there are."""
    wrong = torch.zeros(len(instances), dtype=torch.int64)
    if truth is None or truth.position_classes is None:
        return wrong, wrong
    there = torch.ones_like(truth.position_classes, dtype=torch.bool) if mask is None else mask
    sizes = there.sum(dim=1)
    bag = torch.arange(len(wrong)).repeat_interleave(sizes)
    return wrong.index_add(0, bag, metrics.wrong_instances(instances, truth, there).long()), sizes
