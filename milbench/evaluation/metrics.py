"""How the metrics of `milbench.api.metric_info` are computed. Tensors here are on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from milbench.api.bags import Truth


def instance_error(class_scores: Tensor, classes: Tensor) -> float:
    """Return the error of class_scores (B, C) on bags that hold one instance of `classes` (B,)."""
    named = ~(class_scores.isnan().any(dim=1) | (class_scores == -math.inf).all(dim=1))
    return 1 - share(named & (class_scores.argmax(dim=1) == classes))


def best_threshold(presence: Tensor, labels: Tensor) -> float:
    """Return the threshold on presence scores (B, C) that gives these labels (B, C) the smallest set error.

    A bag is right for the thresholds above its highest score of an absent class and not above its lowest of a present
    one; the threshold that most of these intervals contain is found by counting their ends. Candidates are the finite
    scores and infinity (-inf would name every class of every bag). Of several that are equally good the middle one in
    rank is returned, so that no monotone change of the scores changes a decision on these bags.
    """
    presence = _ordered(presence)
    lowest_present = presence.masked_fill(~labels, math.inf).amin(dim=1)
    highest_absent = presence.masked_fill(labels, -math.inf).amax(dim=1)
    possible = highest_absent < lowest_present
    candidates = torch.cat([presence[presence > -math.inf].sort().values, presence.new_tensor([math.inf])])
    opened = torch.searchsorted(highest_absent[possible].sort().values, candidates)
    closed = torch.searchsorted(lowest_present[possible].sort().values, candidates)
    right = opened - closed
    best = (right == right.max()).nonzero().flatten()
    return float(candidates[best[len(best) // 2]])


def set_error(presence: Tensor, labels: Tensor, threshold: float) -> float:
    """Return the share of bags where `presence >= threshold` (B, C) is not the label set (B, C)."""
    return 1 - share(((_ordered(presence) >= threshold) == labels).all(dim=1))


def average_precision(presence: Tensor, labels: Tensor) -> float:
    """Return the mean average precision of presence scores (B, C); NaN where no class has both outcomes."""
    from sklearn.metrics import average_precision_score

    return _macro(average_precision_score, presence, labels)


def auroc(presence: Tensor, labels: Tensor) -> float:
    """Return the mean area under the ROC curve of presence scores (B, C); NaN where no class has both outcomes."""
    from sklearn.metrics import roc_auc_score

    return _macro(roc_auc_score, presence, labels)


def class_hits(instances: Tensor, truth: Truth, centres: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return (B, C) bool, whether the strongest position of each class is on one of its instances.

    instances: (B, C+1, *positions), the probability that a position shows each class.
    centres: y of every row and x of every column of positions in pixels, where the truth is boxes.
    """
    strongest = instances[:, :-1].flatten(2).argmax(dim=2)
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


def hit_rate(hits: Tensor, labels: Tensor) -> float:
    """Return the share of hits (B, C) among the classes in the label sets (B, C); NaN where all sets are empty."""
    return share(hits[labels])


def wrong_instances(instances: Tensor, truth: Truth | None, mask: Tensor | None = None) -> Tensor:
    """Return a flat bool tensor, for every instance in mask (B, K) whether the argmax of (B, C+1, K) is not its class.

    Empty where the truth is not by position.
    """
    if truth is None or truth.position_classes is None:
        return torch.empty(0, dtype=torch.bool)
    wrong = instances.argmax(dim=1) != truth.position_classes
    return (wrong if mask is None else wrong[mask]).flatten()


def share(outcomes: Tensor) -> float:
    """Return the share of outcomes that are true; NaN of none."""
    return float(outcomes.double().mean())


def _ordered(scores: Tensor) -> Tensor:
    """Scores that can be compared: NaN says that nothing is known of a class and counts as its least."""
    return scores.double().nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)


def _macro(metric: Callable[..., float], presence: Tensor, labels: Tensor) -> float:
    """Average a metric of ranking over the classes that have both outcomes, by ranks: scores may be infinite."""
    both = labels.any(dim=0) & ~labels.all(dim=0)
    scores = _ordered(presence)[:, both].T.numpy()
    outcomes = labels[:, both].T.numpy()
    values = [metric(y, np.unique(s, return_inverse=True)[1]) for s, y in zip(scores, outcomes, strict=True)]
    return float(np.mean(values)) if values else math.nan
