"""The metrics of label sets and instances, as `milbench.api.metric_info` defines them. Tensors are on the CPU."""

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from milbench.api.bags import Bags, Truth
from milbench.api.reliability import BINS, Bin

EVEN_ODDS = 0.0
"""The threshold where nothing is known, preferred among equally good ones on bags that were trained on, which a network
may separate by a wide gap: where presence scores are log-odds, label sets then hold what is as likely as not."""
MOST_CONFUSED = 30  # of more classes nobody reads which is taken for which
MOST_BAGS = 1000  # so many label sets show which is the most common where bags are drawn anew or have to be read


def wrong_classes(class_scores: Tensor, classes: Tensor) -> Tensor:
    """Return (B,) bool, whether the class of bags of one instance is not the one with the largest score.

    A row of `class_scores` (B, C) with a NaN, or of -inf alone, names no class and is an error.
    """
    named = ~(class_scores.isnan().any(dim=1) | (class_scores == -math.inf).all(dim=1))
    return ~named | (class_scores.argmax(dim=1) != classes)


def best_threshold(
    presence: Tensor,
    labels: Tensor,
    near: float | None = None,
    by: Literal["sets", "labels"] = "sets",
) -> float:
    """Return the threshold on presence scores with the smallest set error or label error, always a finite one.

    It is that of even odds where these bags have no class, or all of them all classes.

    Candidates are the finite scores and what is above them all (-inf would name every class of every bag). Of several
    that are equally good the middle one in rank is returned, so that no monotone change of the scores changes a
    decision on these bags; or, with `near`, this value where it is one of them, and else the middle of the gap between
    scores that is nearest to it.

    Examples:
        >>> import torch
        >>> presence, labels = torch.tensor([[5.0, 1.0], [4.0, 3.0]]), torch.tensor([[True, False], [True, True]])
        >>> best_threshold(presence, labels), best_threshold(presence, labels, near=2.5)  # above 1, and 3 at most
        (3.0, 2.5)
    """
    if labels.all() or not labels.any():
        return EVEN_ODDS  # every threshold at one end is as good, however far
    presence = _ordered(presence)
    candidates = torch.cat(
        [presence[presence > -math.inf].sort().values, presence.new_tensor([math.inf])]
    )
    absent, present = presence[~labels], presence[labels]
    if (
        by == "sets"
    ):  # a bag is right above its highest score of an absent class and up to its lowest of a present one
        present = presence.masked_fill(~labels, math.inf).amin(dim=1)
        absent = presence.masked_fill(labels, -math.inf).amax(dim=1)
        absent, present = absent[absent < present], present[absent < present]
    right = torch.searchsorted(absent.sort().values, candidates) - torch.searchsorted(
        present.sort().values, candidates
    )
    best = (right == right.max()).nonzero().flatten()
    if near is None:
        return _finite(float(candidates[best[len(best) // 2]]), candidates)
    # Each candidate stands for all thresholds above the one before it, a gap between two scores.
    above, below = (
        candidates[best],
        torch.cat([candidates.new_tensor([-math.inf]), candidates[:-1]])[best],
    )
    distance = torch.maximum(below - near, near - above)
    nearest = distance.argmin()
    if distance[nearest] <= 0 and below[nearest] < near:
        return near
    low, high = float(below[nearest]), float(above[nearest])
    return (low + high) / 2 if math.isfinite(low + high) else _finite(high, candidates)


def _finite(threshold: float, candidates: Tensor) -> float:
    """Return a threshold, or even odds or more for infinity, so that no class of these bags is named either way."""
    if math.isfinite(threshold):
        return threshold
    finite = candidates[candidates.isfinite()]
    return (
        max(EVEN_ODDS, math.nextafter(float(finite.max()), math.inf)) if len(finite) else EVEN_ODDS
    )


def predicted_sets(presence: Tensor, threshold: float) -> Tensor:
    """Return (B, C) bool, the classes whose presence score is the threshold or more; NaN ranks below all."""
    return _ordered(presence) >= threshold


def wrong_sets(presence: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Return (B,) bool, whether the predicted label set is not exactly the true one."""
    return (predicted_sets(presence, threshold) != labels).any(dim=1)


def class_counts(predicted: Tensor, labels: Tensor) -> Tensor:
    """Return (C, 3 + C) int64, of label sets (B, C), bool, in how many bags a class is present, predicted, and both.

    Then in how many it is missed while another one, the column, is predicted wrongly; not for many classes.
    """
    counts = torch.stack([labels, predicted, labels & predicted]).sum(dim=1).T
    instead = (labels & ~predicted).double().T @ (predicted & ~labels).double()
    return torch.cat([counts, instead.long()], dim=1) if len(counts) <= MOST_CONFUSED else counts


def ranking_metrics(presence: Tensor, labels: Tensor) -> dict[str, float]:
    """Return average precision and area under the ROC curve of presence scores (B, C), NaN where undefined.

    They are means over the classes that some bags have and some not. Of the scores ranks alone matter; NaN ranks last.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    both = labels.any(dim=0) & ~labels.all(dim=0)
    ranks = [
        np.unique(scores, return_inverse=True)[1]
        for scores in _ordered(presence)[:, both].T.numpy()
    ]
    cases = [*zip(labels[:, both].T.numpy(), ranks, strict=True)]
    return {
        name: float(np.mean([metric(*case) for case in cases])) if cases else math.nan
        for name, metric in (
            ("average_precision", average_precision_score),
            ("auroc", roc_auc_score),
        )
    }


def class_hits(
    strength: Tensor, truth: Truth, centres: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Return (B, C) bool, whether the position with the largest strength for each class is on one of its instances.

    The strength is (B, C, *positions). Where the truth is boxes, `centres` are y of every row and x of every column of
    positions in pixels.
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


def wrong_instances(
    instances: Tensor, truth: Truth | None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return (B,) int64 twice: how many instances of each bag are wrong by (B, C+1, K) scores, and how many there are.

    Both are 0 where the truth is not by position.
    """
    if truth is None or truth.position_classes is None:
        return (torch.zeros(len(instances), dtype=torch.int64),) * 2
    is_instance = (
        torch.ones_like(truth.position_classes, dtype=torch.bool) if mask is None else mask
    )
    wrong = (instances.argmax(dim=1) != truth.position_classes) & is_instance
    return wrong.sum(dim=1), is_instance.sum(dim=1)


def posterior_error(batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the share of wrong instances from what `wrong_instances` returns of each batch; NaN of none."""
    wrong, count = (int(torch.cat(parts).sum()) for parts in zip(*batches, strict=True))
    return wrong / count if count else math.nan


def reliability_bins(probabilities: NDArray[Any], happened: NDArray[Any]) -> list[Bin]:
    """Return forecasts in bins of equal mass, by rank; equal ones are all in the bin of the first of them.

    Otherwise the order of the bags would decide which of equal forecasts are counted together. Source of the expected
    calibration error: M. P. Naeini, G. F. Cooper and M. Hauskrecht, "Obtaining Well Calibrated Probabilities Using
    Bayesian Binning", AAAI 2015.
    """
    index = BINS * np.searchsorted(np.sort(probabilities), probabilities) // len(probabilities)
    counts, sums, hits = (
        np.bincount(index, weights, minlength=BINS)
        for weights in (None, probabilities, happened.astype(float))
    )
    return [
        Bin(b, int(counts[b]), min(1.0, float(sums[b] / counts[b])), float(hits[b] / counts[b]))
        for b in np.flatnonzero(counts).tolist()
    ]


def label_sets(batches: Iterable[Bags]) -> Tensor:
    """Return the label sets (N, C) of the first batches, of as few as hold MOST_BAGS bags."""
    labels: list[Tensor] = []
    for bags in batches:
        labels.append(bags.labels.cpu())
        if sum(map(len, labels)) >= MOST_BAGS:
            break
    return torch.cat(labels)


def no_skill_errors(
    training: Tensor, labels: Tensor, alone: Tensor | None, instances: Tensor | None = None
) -> dict[str, float]:
    """Return the errors of the best constant answers, by the names of the metrics.

    The label set is the most common one of the training bags (the first of equals in their order as numbers), the
    classes by themselves are those of more than half of these bags, and the class of an instance is the most common.
    The label sets are bool: `training` (N, C), `labels` (B, C) of the bags of a split, `alone` (K, C) of its bags of
    one instance. `instances` (M,) are the classes of its instances, whose most common one training bags do not tell.
    """
    sets, counts = training.unique(dim=0, return_counts=True)
    wrong = labels != sets[counts.argmax()]
    shares = training.double().mean(dim=0)
    errors = {
        "no_skill_set_error": wrong.any(dim=1).double().mean(),
        "no_skill_label_error": (labels != (shares > 0.5)).double().mean(),
    }
    if alone is not None:
        errors["no_skill_instance_error"] = 1 - alone[:, shares.argmax()].double().mean()
    if instances is not None and len(instances):
        errors["no_skill_posterior_error"] = 1 - instances.bincount().max().double() / len(
            instances
        )
    return {name: float(error) for name, error in errors.items()}


def _ordered(scores: Tensor) -> Tensor:
    """Return the scores in float64 with -inf for NaN: a score that is not defined ranks last."""
    return scores.double().nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
