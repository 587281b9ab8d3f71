"""Score bags in batches, and compute all metrics from what the scores say of each bag."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.contracts.bags import Bags, Origin
from milbench.contracts.predictions import SINGLE, Predictions, SplitPredictions, TrainingLabels
from milbench.contracts.problem import EvalSplit, Evaluation, ScoreFunction, Split
from milbench.contracts.scores import Scores
from milbench.errors import UsageError
from milbench.evaluation.maps import class_hits, fitting_truth, wrong_instances
from milbench.evaluation.metrics import chosen_thresholds, metrics_of

Scored = tuple[Bags, Scores]
Hook = Callable[[str, Scores, Bags, float], None]
"""Called with the split (or "calibration"), the scores and the bags of every batch, and the threshold that makes the
loss's own label sets of presence scores, to keep what needs the maps."""
CPU = torch.device("cpu")
MOST_BAGS = 1000  # so many label sets show which is the most common where bags are drawn anew or have to be read


def evaluate_bags(
    score: ScoreFunction,
    splits: Mapping[Split, EvalSplit],
    calibration: Sequence[Bags] | None = None,
    hook: Hook | None = None,
    limit: int | None = None,
    training_labels: Tensor | None = None,
) -> Evaluation:
    """Return the predictions for the bags of every split, and their metrics; a metric that is undefined is left out.

    Every loss is judged by its own label sets: the classes whose presence score is at or above a threshold, which is
    chosen before the test bags are seen.

    Args:
        score: from a batch of bags to their scores.
        splits: the bags of each split.
        calibration: bags to choose the threshold on, which may be training bags; None: those of the validation split.
        hook: called once with every batch of bags, its scores and the threshold.
        limit: how many bags of each kind are used, the first ones; None: all.
        training_labels: (N, C) bool, label sets of training bags, for the no-skill line; None: there is none.

    Raises:
        FloatingPointError: a score of a bag is NaN; the message names the bag.
    """
    splits = limited_splits(splits, limit)
    found: dict[str, SplitPredictions] = {}
    if calibration is None:
        choosing, batches = "validation", splits["validation"].bags
    else:
        choosing, batches = "calibration", first_bags(calibration, limit)
    if hook is None:
        threshold = math.nan  # a hook alone asks for it
        found[choosing] = predictions_of(_scored(score, batches), choosing)
    else:
        # The hook needs the threshold, and the threshold all of these bags: their maps wait until then.
        retained = list(_scored(score, batches))
        found[choosing] = predictions_of(retained, choosing)
        threshold = chosen_thresholds(Predictions(found)).by_sets
        while retained:
            bags, scores = retained.pop(0)  # frees the maps of each batch after its use
            hook(choosing, scores, bags, threshold)

    for name, split in splits.items():
        if name != choosing:
            scored = _scored(score, split.bags)
            if hook is not None:
                scored = _hooked(scored, hook, name, threshold)
            found[name] = predictions_of(scored, name)
        if split.is_single_instance:
            found[name] = replace(found[name], is_single_instance=True)
        elif split.single_instance:
            alone = predictions_of(_scored(score, split.single_instance), name + SINGLE)
            found[name + SINGLE] = replace(alone, is_single_instance=True)
    return evaluation_of(Predictions(found, training=about_training(training_labels)))


def evaluation_of(predictions: Predictions, decoder: dict[str, Any] | None = None) -> Evaluation:
    """Return predictions with all their metrics."""
    return Evaluation(metrics_of(predictions), decoder, predictions)


def _scored(score: ScoreFunction, batches: Sequence[Bags]) -> Iterator[Scored]:
    # By number: an IndexError inside of a task's batch would silently end a loop over the batches.
    for number in range(len(batches)):
        bags = batches[number]
        yield bags, score(bags)


def _hooked(scored: Iterable[Scored], hook: Hook, split: str, threshold: float) -> Iterator[Scored]:
    for bags, scores in scored:
        hook(split, scores, bags, threshold)
        yield bags, scores


def about_training(labels: Tensor | None) -> TrainingLabels | None:
    """Return what label sets (N, C) of training bags say about the best constant answer.

    Of several label sets that are equally common the first in their order as numbers is taken.
    """
    if labels is None:
        return None
    sets, counts = labels.bool().cpu().unique(dim=0, return_counts=True)
    return TrainingLabels(
        most_common_set=sets[counts.argmax()].numpy(),
        class_shares=labels.double().mean(dim=0).cpu().numpy(),
    )


def predictions_of(batches: Iterable[Scored], split: str) -> SplitPredictions:
    """Return the predictions for bags, batch by batch: images of different batches may differ in size.

    Raises UsageError where some batches have instance truth and others none, and FloatingPointError where a score
    is NaN.
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
    if counts.any():
        arrays["instance_classes"] = counts.numpy()
    else:  # the classes of instances are not known by position
        arrays.pop("wrong", None)
        arrays.pop("sizes", None)
    arrays["presence_is_log_odds"] = arrays.pop("log_odds", None) is not None
    return SplitPredictions(**arrays, digest=digest.hexdigest()[:32])


def _joined_parts(parts: list[dict[str, Tensor]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all batches; one that a batch lacks is left out. UsageError: hits are known of some."""
    with_truth = sum("hits" in part for part in parts)
    if with_truth not in (0, len(parts)):
        raise UsageError(
            f"of {len(parts)} batches to evaluate on, {with_truth} have instance truth: expected all or none"
        )
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: _joined([part[name] for part in parts]) for name in names}


def _batch_predictions(bags: Bags, scores: Scores, bags_before: int) -> dict[str, Tensor]:
    """Return what is kept of a batch, by the fields of `SplitPredictions`, on the CPU."""
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
    for name in ("log_prob", "even_odds_log_prob"):
        value = kept[name]
        if value is not None:
            kept[name] = value.float()
    kept |= _about_instances(bags, scores)
    return {name: value.cpu() for name, value in kept.items() if value is not None}


def _about_instances(bags: Bags, scores: Scores) -> dict[str, Tensor]:
    """Return `hits`, `wrong` and `sizes`; nothing without instance truth."""
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
    """Return, as int64, the classes of all instances of a batch, none where they are not known by position."""
    truth = bags.truth and fitting_truth(bags.truth, scores).to(CPU)
    if truth is None or truth.position_classes is None:
        return torch.zeros(0, dtype=torch.int64)
    mask = _mask_of(bags, scores)
    return truth.position_classes.flatten() if mask is None else truth.position_classes[mask]


def _mask_of(bags: Bags, scores: Scores) -> Tensor | None:
    mask = bags.mask if scores.mask is None else scores.mask
    return None if mask is None else mask.cpu()


def _check_scores(scores: Scores, split: str, bags_before: int) -> None:
    """Raise FloatingPointError where a score of a bag is NaN: it would rank below all others without a word."""
    names = ("presence", "classes", "evidence", "instances", "log_prob", "even_odds_log_prob")
    for name in names:
        values = getattr(scores, name)
        if values is None:
            continue
        is_nan = values.isnan().flatten(1).any(dim=1) if values.ndim > 1 else values.isnan()
        if bool(is_nan.any()):
            bag = bags_before + int(is_nan.int().argmax()) + 1
            raise FloatingPointError(
                f"the loss's {name} of bag {bag} of the {split.replace('_', ' ')} bags is NaN, expected a number "
                "or an infinity"
            )


def _joined(parts: Sequence[Tensor]) -> NDArray[Any]:
    """Return the rows of all parts as one array; rows of integers may differ in length and are filled with -1."""
    if parts[0].ndim == 2 and len({part.shape[1] for part in parts}) > 1:
        longest = max(part.shape[1] for part in parts)
        parts = [
            torch.nn.functional.pad(part, (0, longest - part.shape[1]), value=-1) for part in parts
        ]
    joined: NDArray[Any] = torch.cat(list(parts)).numpy()
    return joined


def update_digest(digest: Any, bags: Bags) -> None:
    """Add the shapes, label sets, masks and truth of bags to a digest of hashlib.

    Instances are left out: metrics are compared with the truth alone, and images would take long.
    """
    truth = bags.truth
    truth_parts = (truth.classes, truth.boxes, truth.position_classes) if truth else ()
    digest.update(repr(tuple(bags.instances.shape)).encode())
    for values in (bags.labels.bool(), bags.mask, *truth_parts):
        if values is None:
            digest.update(b"none")
            continue
        exact = values.detach().cpu().contiguous()
        digest.update(f"{exact.dtype} {tuple(exact.shape)} ".encode())
        digest.update(exact.numpy().tobytes())


def limited_splits(splits: Mapping[Split, EvalSplit], limit: int | None) -> dict[Split, EvalSplit]:
    """Return each split with the first `limit` bags of each kind; None: all of them."""
    limited = {}
    for name, split in splits.items():
        limited[name] = replace(
            split,
            single_instance=first_bags(split.single_instance, limit),
            bags=first_bags(split.bags, limit),
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


def label_sets(batches: Iterable[Bags]) -> Tensor:
    """Return the label sets (N, C) of the first batches, of as few as hold MOST_BAGS bags."""
    labels: list[Tensor] = []
    count = 0
    for bags in batches:
        labels.append(bags.labels.cpu())
        count += len(bags)
        if count >= MOST_BAGS:
            break
    return torch.cat(labels)
