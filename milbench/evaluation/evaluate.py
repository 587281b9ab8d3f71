"""Evaluate a network: score bags batch by batch, and compute all metrics from the scores."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from milbench.contracts.bags import Bags, Origin
from milbench.contracts.predictions import SINGLE, Predictions, SplitPredictions, TrainingLabels
from milbench.contracts.problem import EvalSplit, Evaluation, ScoreFunction, Split
from milbench.contracts.scores import Scores
from milbench.contracts.task import CPU
from milbench.errors import UsageError
from milbench.evaluation.maps import class_hits, fitting_truth, wrong_instances
from milbench.evaluation.metrics import chosen_thresholds, metrics_of

Scored = tuple[Bags, Scores]
Hook = Callable[[str, Scores, Bags, float], None]
"""A function that keeps what it needs of a batch before the scores over positions are freed.

It is called with the name of the split (or "calibration"), the scores of the batch, its bags, and
the threshold on presence scores from which a class is predicted.
"""
MOST_BAGS = 1000
"""How many bags `label_sets` takes, so that not all bags have to be made or read.

They are enough to show which label set is the most common.
"""


def evaluate_bags(
    score: ScoreFunction,
    splits: Mapping[Split, EvalSplit],
    calibration: Sequence[Bags] | None = None,
    hook: Hook | None = None,
    limit: int | None = None,
    training_labels: Tensor | None = None,
) -> Evaluation:
    """Return the predictions for the bags of every split, and their metrics.

    The predicted label set of a bag is the classes whose presence score is at or above a threshold,
    which is chosen before the test bags are seen. Undefined metrics are left out.

    Args:
        score: a function that returns the scores of a batch of bags.
        splits: the bags of each split.
        calibration: the bags on which the threshold is chosen, where there are no validation bags:
            training bags, or bags made of the same images. None: the validation bags.
        hook: called once with every batch of bags, its scores and the threshold.
        limit: use only this many bags of a split, and as many of its bags of one instance, the
            first ones; None: all.
        training_labels: (N, C) bool, the label sets of training bags, from which the errors of no
            skill are computed; None: they are left out.

    Raises:
        FloatingPointError: a score of a bag is NaN; the message names the bag.
    """
    splits = limited_splits(splits, limit)
    if calibration is None:
        choosing = "validation"
        batches = splits["validation"].bags
    else:
        choosing = "calibration"
        batches = first_bags(calibration, limit)
    scored = _scored(score, batches)
    # Without a hook nobody uses the threshold: `evaluation_of` chooses it again.
    threshold = math.nan
    found: dict[str, SplitPredictions] = {}
    if hook is None:
        found[choosing] = predictions_of(scored, choosing)
    else:
        found[choosing], threshold = _hooked_to_choose(scored, hook, choosing)

    for name, split in splits.items():
        if name != choosing:
            scored = _scored(score, split.bags)
            if hook is not None:
                scored = _hooked(scored, hook, name, threshold)
            found[name] = predictions_of(scored, name)
        # The one-instance error needs bags of one instance: either all bags of the split are, or
        # the split holds further bags for it.
        if split.is_single_instance:
            found[name] = replace(found[name], is_single_instance=True)
        elif split.single_instance:
            alone = predictions_of(_scored(score, split.single_instance), name + SINGLE)
            found[name + SINGLE] = replace(alone, is_single_instance=True)
    return evaluation_of(Predictions(found, training=about_training(training_labels)))


def evaluation_of(predictions: Predictions, decoder: dict[str, Any] | None = None) -> Evaluation:
    """Return predictions with all their metrics.

    `decoder` is the content of decoder.json where strings were read.
    """
    return Evaluation(metrics_of(predictions), decoder, predictions)


def _scored(score: ScoreFunction, batches: Sequence[Bags]) -> Iterator[Scored]:
    """Yield each batch with its scores."""
    # Python's loop over a sequence ends silently at an IndexError, which may also be an error in
    # the code of a task that makes the batch. With an index the error is seen.
    for number in range(len(batches)):
        bags = batches[number]
        yield bags, score(bags)


def _hooked_to_choose(
    scored: Iterable[Scored], hook: Hook, choosing: str
) -> tuple[SplitPredictions, float]:
    """Call a hook with the batches on which the threshold is chosen.

    Return the predictions for these batches, and the threshold.
    """
    # The hook needs the threshold, and the threshold needs the scores of all batches: so all are
    # kept in memory until it is chosen.
    retained = list(scored)
    predictions = predictions_of(retained, choosing)
    threshold = chosen_thresholds(Predictions({choosing: predictions})).by_sets
    while retained:
        # `pop` drops the scores of a batch, so that they are freed after the hook has used them.
        bags, scores = retained.pop(0)
        hook(choosing, scores, bags, threshold)
    return predictions, threshold


def _hooked(scored: Iterable[Scored], hook: Hook, split: str, threshold: float) -> Iterator[Scored]:
    """Call a hook with each batch, then yield the batch."""
    for bags, scores in scored:
        hook(split, scores, bags, threshold)
        yield bags, scores


def about_training(labels: Tensor | None) -> TrainingLabels | None:
    """Return what the errors of no skill need of the label sets (N, C) of training bags.

    Where several label sets are equally common, the first in the order of `torch.unique` is taken.
    None where the label sets are not known.
    """
    if labels is None:
        return None
    sets, counts = labels.bool().cpu().unique(dim=0, return_counts=True)
    return TrainingLabels(
        most_common_set=sets[counts.argmax()].numpy(),
        class_shares=labels.double().mean(dim=0).cpu().numpy(),
    )


def predictions_of(batches: Iterable[Scored], split: str) -> SplitPredictions:
    """Return the predictions for all bags of batches.

    It works batch by batch, as images of different batches may differ in size. `split` is the name
    of the split for messages. Raises UsageError where some batches have instance truth and others
    do not, and FloatingPointError where a score is NaN.
    """
    parts: list[dict[str, Tensor]] = []
    instances: list[Tensor] = []
    digest = hashlib.sha256()
    bags_before = 0
    for bags, scores in batches:
        _check_scores(scores, split, bags_before)
        parts.append(_batch_predictions(bags, scores, bags_before))
        instances.append(_instance_classes(bags, scores))
        update_digest(digest, bags)
        bags_before += len(bags)
    arrays: dict[str, Any] = _joined_parts(parts)

    counts = torch.cat(instances).bincount(minlength=arrays["labels"].shape[1] + 1)
    are_classes_known = bool(counts.any())
    if are_classes_known:
        arrays["instance_classes"] = counts.numpy()
    else:
        # They are 0 for all bags, as no instance has a known class, and would look like no errors.
        arrays.pop("wrong", None)
        arrays.pop("sizes", None)
    # Where a loss has log-odds, they are its presence scores, and need not be kept twice.
    arrays["presence_is_log_odds"] = arrays.pop("log_odds", None) is not None
    return SplitPredictions(**arrays, digest=digest.hexdigest()[:32])


def _joined_parts(parts: list[dict[str, Tensor]]) -> dict[str, NDArray[Any]]:
    """Return the parts of all batches joined to arrays, without those that some batch lacks.

    Raises UsageError where some batches have hits and others do not.
    """
    with_truth = len([part for part in parts if "hits" in part])
    if with_truth not in (0, len(parts)):
        raise UsageError(
            f"of {len(parts)} batches to evaluate on, {with_truth} have instance truth: "
            "expected all or none"
        )
    joined = {}
    for name in parts[0]:
        of_batches = [part[name] for part in parts if name in part]
        if len(of_batches) == len(parts):
            joined[name] = _joined(of_batches)
    return joined


def _batch_predictions(bags: Bags, scores: Scores, bags_before: int) -> dict[str, Tensor]:
    """Return what is kept of a batch on the CPU, by the names of the fields of `SplitPredictions`.

    `bags_before` is how many bags the batches before this one have.
    """
    origin = bags.origin or Origin(torch.arange(bags_before, bags_before + len(bags)))
    kept: dict[str, Tensor | None] = {
        "labels": bags.labels.bool(),
        "presence": scores.presence.float(),
        "classes": scores.classes.float(),
        "log_odds": scores.log_odds,
        "log_prob": scores.log_prob,
        "even_odds_log_prob": scores.even_odds_log_prob,
        "bag": origin.bag,
        "group": origin.group,
        "items": origin.items,
    }
    # Single precision is enough for metrics, and halves the file.
    for name in ("log_prob", "even_odds_log_prob"):
        value = kept[name]
        if value is not None:
            kept[name] = value.float()
    kept |= _about_instances(bags, scores)
    return {name: value.cpu() for name, value in kept.items() if value is not None}


def _about_instances(bags: Bags, scores: Scores) -> dict[str, Tensor]:
    """Return `hits`, `wrong` and `sizes` of a batch, as far as its instance truth allows."""
    if bags.truth is None:
        return {}
    truth = fitting_truth(bags.truth, scores).to(CPU)
    about: dict[str, Tensor] = {}
    is_boxed = truth.boxes is not None and scores.centres is not None
    if is_boxed or truth.position_classes is not None:
        about["hits"] = class_hits(scores.evidence.cpu(), truth, scores.centres)
    about["wrong"], about["sizes"] = wrong_instances(
        scores.instances.cpu(), truth, _mask_of(bags, scores)
    )
    return about


def _instance_classes(bags: Bags, scores: Scores) -> Tensor:
    """Return (N,) int64, the true classes of all instances of a batch.

    It is empty where the class of each position is not known.
    """
    position_classes = None
    if bags.truth is not None:
        position_classes = fitting_truth(bags.truth, scores).to(CPU).position_classes
    if position_classes is None:
        return torch.zeros(0, dtype=torch.int64)
    mask = _mask_of(bags, scores)
    if mask is None:
        return position_classes.flatten()
    return position_classes[mask]


def _mask_of(bags: Bags, scores: Scores) -> Tensor | None:
    """Return (B, K) bool, at which positions there is an instance; None: at all positions.

    A network may give a mask for its own positions, else the mask of the bags is taken.
    """
    mask = bags.mask if scores.mask is None else scores.mask
    return None if mask is None else mask.cpu()


def _check_scores(scores: Scores, split: str, bags_before: int) -> None:
    """Raise FloatingPointError where a score of a bag is NaN.

    Otherwise the bag would silently rank below all others.
    """
    names = ("presence", "classes", "evidence", "instances", "log_prob", "even_odds_log_prob")
    for name in names:
        values = getattr(scores, name)
        if values is None:
            continue
        is_nan = values.isnan()
        if is_nan.ndim > 1:
            is_nan = is_nan.flatten(1).any(dim=1)
        if bool(is_nan.any()):
            first_in_batch = int(is_nan.int().argmax())
            # Messages count bags from 1.
            bag = bags_before + first_in_batch + 1
            raise FloatingPointError(
                f"the loss's {name} of bag {bag} of the {split.replace('_', ' ')} bags is NaN, "
                "expected a number or an infinity"
            )


def _joined(parts: Sequence[Tensor]) -> NDArray[Any]:
    """Return the rows of all parts as one array.

    Parts (n, L) of integers may differ in L: shorter rows are filled up with -1.
    """
    if parts[0].ndim == 2:
        lengths = [part.shape[1] for part in parts]
        longest = max(lengths)
        if min(lengths) < longest:
            parts = [pad(part, (0, longest - part.shape[1]), value=-1) for part in parts]
    joined: NDArray[Any] = torch.cat(list(parts)).numpy()
    return joined


def update_digest(digest: Any, bags: Bags) -> None:
    """Add the shapes, label sets, masks and truth of bags to a digest of hashlib.

    Runs whose bags have the same digest are compared bag by bag. The values of instances are left
    out, as images would take long.
    """
    truth = bags.truth
    truth_parts: tuple[Tensor | None, ...] = ()
    if truth is not None:
        truth_parts = (truth.classes, truth.boxes, truth.position_classes)
    digest.update(repr(tuple(bags.instances.shape)).encode())
    for values in (bags.labels.bool(), bags.mask, *truth_parts):
        if values is None:
            digest.update(b"none")
            continue
        exact = values.detach().cpu().contiguous()
        digest.update(f"{exact.dtype} {tuple(exact.shape)} ".encode())
        digest.update(exact.numpy().tobytes())


def limited_splits(splits: Mapping[Split, EvalSplit], limit: int | None) -> dict[Split, EvalSplit]:
    """Return each split with only the first `limit` of its bags, and of its bags of one instance.

    With None all bags are kept.
    """
    limited = {}
    for name, split in splits.items():
        limited[name] = replace(
            split,
            single_instance=first_bags(split.single_instance, limit),
            bags=first_bags(split.bags, limit),
        )
    return limited


def first_bags(batches: Sequence[Bags], limit: int | None) -> Sequence[Bags]:
    """Return batches that hold the first `limit` bags; None: all bags."""
    if limit is None:
        return batches
    limited: list[Bags] = []
    lacking = limit
    # A batch may be read from a file when it is indexed, so that none is indexed in vain.
    while lacking > 0 and len(limited) < len(batches):
        batch = batches[len(limited)].selected(slice(lacking))
        limited.append(batch)
        lacking -= len(batch)
    return limited


def label_sets(batches: Iterable[Bags]) -> Tensor:
    """Return the label sets (N, C) of the first batches.

    As many batches are taken as are needed for MOST_BAGS bags, or all where there are fewer bags.
    """
    labels: list[Tensor] = []
    count = 0
    for bags in batches:
        labels.append(bags.labels.cpu())
        count += len(bags)
        if count >= MOST_BAGS:
            break
    return torch.cat(labels)
