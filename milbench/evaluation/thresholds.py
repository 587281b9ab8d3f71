"""The threshold on presence scores from which a class counts as detected. Nothing here imports torch."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from milbench.contracts.predictions import Bools

EVEN_ODDS = 0.0
"""The threshold where nothing is known: a presence that is a log-odds then names what is as likely as not."""
FEW_BAGS = 100
"""Of fewer bags the choice of a threshold is uncertain, and a report says so."""
RESAMPLES = 50
"""How many bootstrap samples of the bags show how far the best threshold moves."""

Floats = NDArray[np.float64]


def predicted_sets(presence: NDArray[Any], threshold: float) -> Bools:
    """Return (n, C), the classes whose presence score is the threshold or more."""
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
    """Return the threshold with the most right answers, smoothed so that one lucky candidate does not win.

    The candidates are the gaps between the distinct scores of these bags, and what lies beyond
    them, each named by the score at its upper end. With few bags the candidate with the fewest
    errors is often a lucky one, far from where the next bags would put it. So the number of right
    answers is averaged over neighbouring candidates, and once more, before the largest is taken.
    The average reaches as far as the best candidate moves between bootstrap samples of the bags;
    with many bags that is hardly at all. docs/statistics.md has simulations of what it costs and
    saves.

    Of several candidates that are equally good the middle one is taken, and of a gap its middle.
    Without `near` only ranks matter: a monotone change of the scores changes no decision on these
    bags.

    Args:
        presence: (n, C), the scores; a class with a score of -inf is never detected.
        labels: (n, C), the true label sets.
        by: `sets`: a bag is right where its whole label set is. `labels`: pairs of a bag and a
            class.
        near: to be set for bags that were trained on. A network may separate them by a wide gap, in
            which every threshold is as good. The threshold is then `near` if it lies in the best
            gap, else the middle of the best gap that is nearest to it.
        weights: (n,), above 0: how much the right answers of each bag count; None: all alike.

    Returns:
        A finite number.

    Examples:
        >>> presence, labels = np.array([[5.0, 1.0], [4.0, 3.0]]), np.array([[True, False], [True, True]])
        >>> choose_threshold(presence, labels, by="sets")  # above 1, and 3 at most
        2.0
        >>> choose_threshold(presence, labels, by="sets", near=2.5)
        2.5
    """
    scores = presence.astype(np.float64)
    candidates = np.append(np.unique(scores[np.isfinite(scores)]), math.inf)
    # Where no bag has a class, or all have every class, every threshold beyond the scores is as
    # good.
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
    # Sums in another order differ by rounding.
    rounding = 1e-9 * len(labels)
    best = np.flatnonzero(smooth >= smooth.max() - rounding)
    if near is None:
        return _in_gap(candidates, _middle(best))
    return _in_nearest_gap(candidates, best, near)


@dataclass(frozen=True)
class _Steps:
    """How the number of right answers changes as the threshold rises over the candidates.

    Entry i says: from candidate `at[i]` on, bag `bag[i]` adds `sign[i]`, 1 or -1. A bag that a
    bootstrap sample holds twice counts twice.
    """

    at: NDArray[np.intp]
    sign: Floats
    bag: NDArray[np.intp]
    candidates: int
    """How many there are."""

    def count_right(self, times: Floats) -> Floats:
        """Return how many answers are right at each candidate, up to a constant; bags count so many times."""
        changes = np.bincount(
            self.at, weights=self.sign * times[self.bag], minlength=self.candidates
        )
        right: Floats = changes[: self.candidates].cumsum()
        return right


def _steps_by_sets(scores: Floats, labels: Bools, candidates: Floats) -> _Steps:
    """Return the steps of bags, which are right between two of their scores.

    They are the highest score of an absent class and the lowest score of a present one.
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
    """Return the steps of pairs of a bag and a class: one present is right up to its own score, one absent above it."""
    bags, classes = labels.shape
    return _Steps(
        at=np.searchsorted(candidates, scores.ravel(), side="right"),
        sign=np.where(labels.ravel(), -1.0, 1.0),
        bag=np.repeat(np.arange(bags), classes),
        candidates=len(candidates),
    )


def _with_mean_one(weights: Floats | None, bags: int) -> Floats:
    """Return the weights (n,) of bags on the scale of bags that all count alike."""
    if weights is None:
        return np.ones(bags)
    scaled: Floats = weights / weights.mean()
    return scaled


def _uncertainty(steps: _Steps, weights: Floats) -> int:
    """Return how far the best candidate moves between bootstrap samples: the standard deviation of its rank."""
    bags = len(weights)
    # The number of bags is the seed, so that all losses get the same samples.
    rng = np.random.default_rng(bags)
    ranks = []
    for _ in range(RESAMPLES):
        times = np.bincount(rng.integers(bags, size=bags), minlength=bags).astype(float)
        right = steps.count_right(times * weights)
        ranks.append(_middle(np.flatnonzero(right == right.max())))
    return round(float(np.std(ranks)))


def _moving_average(values: Floats, reach: int) -> Floats:
    """Return the mean of each value and `reach` neighbours on both sides; beyond an end, its value is repeated."""
    if reach == 0:
        return values
    width = 2 * reach + 1
    # One value more in front: the sum of a window is the difference of two cumulative sums.
    sums = np.pad(values, (reach + 1, reach), mode="edge").cumsum()
    means: Floats = (sums[width:] - sums[:-width]) / width
    return means


def _middle(numbers: NDArray[np.intp]) -> int:
    """Return the middle one of numbers in rising order, of two the higher one."""
    return int(numbers[len(numbers) // 2])


def _in_gap(candidates: Floats, number: int) -> float:
    """Return the middle of the gap between a candidate and the one below it.

    All thresholds in the gap make the same decisions on these bags, and scores of other bags may
    lie in it.
    """
    high = float(candidates[number])
    if math.isinf(high):
        return _above_all(candidates)
    if number == 0:
        return high
    low = float(candidates[number - 1])
    middle = low + (high - low) / 2
    # Between two neighbouring numbers there is no other.
    return middle if low < middle else high


def _in_nearest_gap(candidates: Floats, best: NDArray[np.intp], near: float) -> float:
    """Return a threshold in the gap below one of the best candidates, the one that is nearest to `near`."""
    below = np.append(-math.inf, candidates[:-1])
    # How far `near` lies outside of each gap; 0 or less inside of it.
    distance = np.maximum(below[best] - near, near - candidates[best])
    nearest = int(best[distance.argmin()])
    if below[nearest] < near <= candidates[nearest]:
        return near
    return _in_gap(candidates, nearest)


def _above_all(candidates: Floats) -> float:
    """Return a threshold above all scores, and not below even odds."""
    has_scores = len(candidates) > 1
    if not has_scores:
        return EVEN_ODDS
    return max(EVEN_ODDS, math.nextafter(float(candidates[-2]), math.inf))
