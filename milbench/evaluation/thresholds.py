"""Choosing the threshold: a class is predicted where its presence score is at least the threshold.

No code in this file imports torch, so that reports can use it quickly.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from milbench.contracts.predictions import Bools

EVEN_ODDS = 0.0
"""The threshold that is used where no bags show a better one.

If presence scores are log-odds, a class is then predicted if it is at least as likely as not.
"""
FEW_BAGS = 100
"""With fewer bags than this the choice of a threshold is uncertain, and a report says so."""
RESAMPLES = 50
"""How many bootstrap samples of the bags are taken to see how far the best threshold moves."""

Floats = NDArray[np.float64]


def predicted_sets(presence: NDArray[Any], threshold: float) -> Bools:
    """Return (n, C) bool, which classes have a presence score of at least the threshold."""
    sets: Bools = presence.astype(np.float64) >= threshold
    return sets


def choose_threshold(
    presence: NDArray[Any],
    labels: Bools,
    *,
    by: Literal["sets", "labels"],
    near: float | None = None,
    weights: Floats | None = None,
) -> float:
    """Return a threshold on presence scores with about the most right answers.

    A candidate is a gap between two neighbouring scores of these bags, as all thresholds in the gap
    make the same decisions. The ranges below all scores and above all scores are candidates too.

    With few bags the candidate with the most right answers is often a lucky one, far from where
    further bags would put it. So the number of right answers is smoothed by a moving average over
    neighbouring candidates, twice, before the largest is taken. The average reaches as far as the
    best candidate moves between bootstrap samples of the bags; with many bags it hardly moves.
    docs/statistics.md has simulations of what the smoothing costs and saves.

    Where several candidates are equally good, the middle one is taken. The threshold is the middle
    of its gap. Without `near` only the order of the scores matters: a monotone change of the scores
    changes no decision on these bags.

    Args:
        presence: (n, C), the scores; a class with a score of -inf is never predicted.
        labels: (n, C), the true label sets.
        by: what is counted as right: for `sets`, the bags whose whole label set is right; for
            `labels`, the pairs of a bag and a class that are right.
        near: to be set for bags that were trained on. A network may separate them by a wide gap, in
            which every threshold is equally good. The threshold is then `near` itself if it lies
            in one of the best gaps, else the middle of the best gap that is nearest to `near`.
        weights: (n,), above 0: how much the right answers of each bag count; None: all the same.

    Returns:
        A finite number.

    Examples:
        >>> presence = np.array([[5.0, 1.0], [4.0, 3.0]])
        >>> labels = np.array([[True, False], [True, True]])
        >>> choose_threshold(presence, labels, by="sets")  # above 1, and 3 at most
        2.0
        >>> choose_threshold(presence, labels, by="sets", near=2.5)
        2.5
    """
    scores = presence.astype(np.float64)
    # A gap is named by the score at its upper end.
    candidates = np.append(np.unique(scores[np.isfinite(scores)]), math.inf)
    # Where no bag has a class, all thresholds above the scores are right, and all at or below them
    # where all bags have every class.
    if not labels.any():
        return _above_all(candidates)
    if labels.all():
        return min(EVEN_ODDS, float(candidates[0]))
    bag_weights = _with_mean_one(weights, len(labels))
    steps_of = _steps_by_sets if by == "sets" else _steps_by_labels
    steps = steps_of(scores, labels, candidates)
    right = steps.count_right(bag_weights)
    reach = _uncertainty(steps, bag_weights)
    smooth = _moving_average(_moving_average(right, reach), reach)
    # Candidates that are equally good on paper may differ by rounding.
    rounding = 1e-9 * len(labels)
    best = np.flatnonzero(smooth >= smooth.max() - rounding)
    if near is None:
        return _in_gap(candidates, _middle(best))
    return _in_nearest_gap(candidates, best, near)


@dataclass(frozen=True)
class _Steps:
    """How the number of right answers changes as the threshold rises over the candidates.

    Entry i says that from candidate `at[i]` on bag `bag[i]` adds `sign[i]` right answers, 1 or -1.
    """

    at: NDArray[np.intp]
    sign: Floats
    bag: NDArray[np.intp]
    candidates: int
    """The number of candidates."""

    def count_right(self, bag_weights: Floats) -> Floats:
        """Return how many answers are right at each candidate, up to a constant.

        `bag_weights` (n,) say how much each bag counts.
        """
        changes = np.bincount(
            self.at, weights=self.sign * bag_weights[self.bag], minlength=self.candidates
        )
        # A step may be beyond the last candidate, where no threshold is tried.
        right: Floats = changes[: self.candidates].cumsum()
        return right


def _steps_by_sets(scores: Floats, labels: Bools, candidates: Floats) -> _Steps:
    """Return the steps of bags whose whole label set is to be right.

    A bag is right where the threshold is above the highest score of its absent classes, and at most
    the lowest score of its present classes.
    """
    absent = np.where(labels, -math.inf, scores).max(axis=1)
    present = np.where(labels, scores, math.inf).min(axis=1)
    bags = np.flatnonzero(absent < present)
    begins = np.searchsorted(candidates, absent[bags], side="right")
    ends = np.searchsorted(candidates, present[bags], side="right")
    return _Steps(
        at=np.concatenate([begins, ends]),
        sign=np.concatenate([np.ones(len(bags)), -np.ones(len(bags))]),
        bag=np.concatenate([bags, bags]),
        candidates=len(candidates),
    )


def _steps_by_labels(scores: Floats, labels: Bools, candidates: Floats) -> _Steps:
    """Return the steps of pairs of a bag and a class.

    A present class is right where the threshold is at most its score, an absent class where the
    threshold is above its score.
    """
    bags, classes = labels.shape
    return _Steps(
        at=np.searchsorted(candidates, scores.ravel(), side="right"),
        sign=np.where(labels.ravel(), -1.0, 1.0),
        bag=np.repeat(np.arange(bags), classes),
        candidates=len(candidates),
    )


def _with_mean_one(weights: Floats | None, bags: int) -> Floats:
    """Return the weights (n,) of bags, scaled so that their mean is 1; None: 1 for each bag."""
    if weights is None:
        return np.ones(bags)
    scaled: Floats = weights / weights.mean()
    return scaled


def _uncertainty(steps: _Steps, weights: Floats) -> int:
    """Return how many candidates the best one moves between bootstrap samples of the bags.

    It is the standard deviation of the index of the best candidate.
    """
    bags = len(weights)
    # The number of bags is the seed, so that all losses get the same bootstrap samples.
    rng = np.random.default_rng(bags)
    best = []
    for _ in range(RESAMPLES):
        # How many times the sample holds each bag.
        times = np.bincount(rng.integers(bags, size=bags), minlength=bags).astype(float)
        right = steps.count_right(times * weights)
        best.append(_middle(np.flatnonzero(right == right.max())))
    return round(float(np.std(best)))


def _moving_average(values: Floats, reach: int) -> Floats:
    """Return the mean of each value and of `reach` neighbours on each side.

    Beyond both ends, the value at the end is repeated.
    """
    if reach == 0:
        return values
    width = 2 * reach + 1
    # The sum of a window is the difference of two cumulative sums. The first window needs one more
    # value in front of it.
    sums = np.pad(values, (reach + 1, reach), mode="edge").cumsum()
    means: Floats = (sums[width:] - sums[:-width]) / width
    return means


def _middle(numbers: NDArray[np.intp]) -> int:
    """Return the middle one of sorted numbers, the higher one where two are in the middle."""
    return int(numbers[len(numbers) // 2])


def _in_gap(candidates: Floats, number: int) -> float:
    """Return the middle of the gap between the score of a candidate and the next lower score.

    All thresholds in the gap make the same decisions on these bags. The middle is the safest for
    the scores of other bags.
    """
    high = float(candidates[number])
    if math.isinf(high):
        return _above_all(candidates)
    if number == 0:
        return high
    low = float(candidates[number - 1])
    middle = low + (high - low) / 2
    # If no floating-point number lies between the scores, `middle` is rounded to one of them.
    return middle if low < middle else high


def _in_nearest_gap(candidates: Floats, best: NDArray[np.intp], near: float) -> float:
    """Return a threshold in the gap of the best candidate that is nearest to `near`.

    The threshold is `near` itself if it lies in the gap, else the middle of the gap.
    """
    below = np.append(-math.inf, candidates[:-1])
    # How far `near` lies outside of each gap; not positive where it lies in the gap.
    distance = np.maximum(below[best] - near, near - candidates[best])
    nearest = int(best[distance.argmin()])
    if below[nearest] < near <= candidates[nearest]:
        return near
    return _in_gap(candidates, nearest)


def _above_all(candidates: Floats) -> float:
    """Return a threshold above all finite scores, and not below even odds."""
    has_scores = len(candidates) > 1
    if not has_scores:
        return EVEN_ODDS
    return max(EVEN_ODDS, math.nextafter(float(candidates[-2]), math.inf))
