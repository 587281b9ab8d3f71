"""The metrics of label sets and instances, as `milbench.api.metric_info` defines them. Tensors are on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from milbench.api.bags import Truth


def wrong_classes(class_scores: Tensor, classes: Tensor) -> Tensor:
    """Return (B,) bool, whether the class of bags of one instance is not the one with the largest score.

    A row of `class_scores` (B, C) with a NaN, or of -inf alone, names no class and is an error.
    """
    named = ~(class_scores.isnan().any(dim=1) | (class_scores == -math.inf).all(dim=1))
    return ~named | (class_scores.argmax(dim=1) != classes)


def best_threshold(presence: Tensor, labels: Tensor, near: float | None = None) -> float:
    """Return the threshold on presence scores with the smallest set error.

    A bag is right for the thresholds above its highest score of an absent class and not above its lowest of a present
    one; the threshold that most of these intervals contain is found by counting their ends. Candidates are the finite
    scores and infinity (-inf would name every class of every bag). Of several that are equally good the middle one in
    rank is returned, so that no monotone change of the scores changes a decision on these bags; or, with `near`, this
    value where it is one of them, and else the middle of the gap between scores that is nearest to it.

    Examples:
        >>> import torch
        >>> presence, labels = torch.tensor([[5.0, 1.0], [4.0, 3.0]]), torch.tensor([[True, False], [True, True]])
        >>> best_threshold(presence, labels), best_threshold(presence, labels, near=2.5)  # above 1, and 3 at most
        (3.0, 2.5)
    """
    presence = _ordered(presence)
    candidates = _candidates(presence)
    lowest_present = presence.masked_fill(~labels, math.inf).amin(dim=1)
    highest_absent = presence.masked_fill(labels, -math.inf).amax(dim=1)
    possible = highest_absent < lowest_present
    opened = torch.searchsorted(highest_absent[possible].sort().values, candidates)
    closed = torch.searchsorted(lowest_present[possible].sort().values, candidates)
    return _best_of(candidates, opened - closed, near)


def best_label_threshold(presence: Tensor, labels: Tensor, near: float | None = None) -> float:
    """Return the threshold on presence scores with the smallest label error, chosen as `best_threshold` chooses."""
    presence = _ordered(presence)
    candidates = _candidates(presence)
    lost = torch.searchsorted(presence[labels].sort().values, candidates)  # present, with a smaller score
    avoided = torch.searchsorted(presence[~labels].sort().values, candidates)
    return _best_of(candidates, avoided - lost, near)


def _candidates(presence: Tensor) -> Tensor:
    return torch.cat([presence[presence > -math.inf].sort().values, presence.new_tensor([math.inf])])


def _best_of(candidates: Tensor, right: Tensor, near: float | None) -> float:
    best = (right == right.max()).nonzero().flatten()
    if near is None:
        return float(candidates[best[len(best) // 2]])
    # Each candidate stands for all thresholds above the one before it, a gap between two scores.
    above, below = candidates[best], torch.cat([candidates.new_tensor([-math.inf]), candidates[:-1]])[best]
    distance = torch.maximum(below - near, near - above)
    nearest = distance.argmin()
    if distance[nearest] <= 0 and below[nearest] < near:
        return near
    low, high = float(below[nearest]), float(above[nearest])
    return (low + high) / 2 if math.isfinite(low + high) else high


def predicted_sets(presence: Tensor, threshold: float) -> Tensor:
    """Return (B, C) bool, the classes whose presence score is the threshold or more; NaN ranks below all."""
    return _ordered(presence) >= threshold


def wrong_sets(presence: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Return (B,) bool, whether the predicted label set is not exactly the true one."""
    return (predicted_sets(presence, threshold) != labels).any(dim=1)


def wrong_labels(presence: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Return (B,) int64, how many classes of each bag are predicted and absent, or present and not predicted."""
    return (predicted_sets(presence, threshold) != labels).sum(dim=1)


def average_precision(presence: Tensor, labels: Tensor) -> float:
    """Return the average precision of presence scores (B, C), the mean over classes that some bags have and some not.

    NaN where there is no such class. The value of a class depends on the ranks of its scores alone; NaN ranks last.
    """
    from sklearn.metrics import average_precision_score

    return _macro(average_precision_score, presence, labels)


def auroc(presence: Tensor, labels: Tensor) -> float:
    """Return the area under the ROC curve of presence scores (B, C), the mean over classes as above."""
    from sklearn.metrics import roc_auc_score

    return _macro(roc_auc_score, presence, labels)


def class_hits(strength: Tensor, truth: Truth, centres: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return (B, C) bool, whether the strongest position of each class is on one of its instances.

    Args:
        strength: (B, C, *positions), larger where a position speaks more strongly for the class.
        truth: the instances, by position or with boxes.
        centres: y of every row and x of every column of positions in pixels, needed where the truth is boxes.

    Raises:
        ValueError: the truth is not by position, and boxes or centres are missing.
    """
    strongest = strength.flatten(2).argmax(dim=2)
    classes = torch.arange(strongest.shape[1])
    if truth.position_classes is not None:
        return truth.position_classes.gather(1, strongest) == classes
    if truth.boxes is None or centres is None:
        raise ValueError("hits on images are judged by boxes and by the centres of the positions")
    ys, xs = centres
    y, x = ys[strongest // len(xs)].unsqueeze(2), xs[strongest % len(xs)].unsqueeze(2)
    left, top, right, bottom = truth.boxes.unsqueeze(1).unbind(dim=-1)
    inside = (left <= x) & (x < right) & (top <= y) & (y < bottom)
    return (inside & (truth.classes.unsqueeze(1) == classes.view(1, -1, 1))).any(dim=2)


def wrong_instances(instances: Tensor, truth: Truth | None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return (B,) int64 twice: how many instances of each bag are wrong, and how many there are, by (B, C+1, K) scores.

    An instance in the mask is wrong if its most probable class is not its own. Both are 0 where the truth is not by
    position.
    """
    if truth is None or truth.position_classes is None:
        nothing = torch.zeros(len(instances), dtype=torch.int64)
        return nothing, nothing
    is_instance = torch.ones_like(truth.position_classes, dtype=torch.bool) if mask is None else mask
    wrong = (instances.argmax(dim=1) != truth.position_classes) & is_instance
    return wrong.sum(dim=1), is_instance.sum(dim=1)


def posterior_error(batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the share of wrong instances from what `wrong_instances` returns of each batch; NaN of none."""
    wrong, count = (int(torch.cat(parts).sum()) for parts in zip(*batches, strict=True))
    return wrong / count if count else math.nan


def share(outcomes: Tensor) -> float:
    """Return the share of outcomes that are true; NaN of none."""
    return float(outcomes.double().mean())


def _ordered(scores: Tensor) -> Tensor:
    """Return the scores in float64 with -inf for NaN: a score that is not defined ranks last."""
    return scores.double().nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)


def _macro(metric: Callable[..., float], presence: Tensor, labels: Tensor) -> float:
    """Return the mean of a ranking metric over the classes with both outcomes; ranks allow for infinite scores."""
    both = labels.any(dim=0) & ~labels.all(dim=0)
    scores = _ordered(presence)[:, both].T.numpy()
    outcomes = labels[:, both].T.numpy()
    values = [metric(y, np.unique(s, return_inverse=True)[1]) for s, y in zip(scores, outcomes, strict=True)]
    return float(np.mean(values)) if values else math.nan
