"""The contenders: a set of losses that holds the truly best one with 95 % probability.

A loss is excluded from the set if another loss is better by more than noise. One loss is compared
with all its rivals at once, at a one-sided level. The method is multiple comparisons with the best:
J. C. Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with the best",
Annals of Statistics 12, 1984, pp. 1136-1144. Its quantile is that of C. W. Dunnett, "A multiple
comparison procedure for comparing several treatments with a control", Journal of the American
Statistical Association 50, 1955, pp. 1096-1121. The same quantities bound how much worse than the
best a loss may be.

docs/statistics.md says how often the set and the bounds are wrong, from few seeds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.pairs import (
    Pairs,
    Scale,
    Scaled,
    common_means,
    compare_all,
    put_on_scale,
    searches_on_scale,
)
from milbench.report.statistics.sampling import Floats, SamplingNoise
from milbench.report.statistics.selection import Search

MOST_SEEDS = 10_000
"""The largest number of seeds that `Contenders.seeds_to_separate` tries."""


@dataclass(frozen=True, eq=False)
class Contenders:
    """Which losses may be the best one, and how much worse than the best each may be."""

    contender: NDArray[np.bool_]
    """(losses,), whether each may be the best.

    It is False for a loss without any value. With only one seed it is True for all other losses.
    """
    rows: list[int]
    """The rows of the losses that have a value. All that follows is about these losses."""
    pairs: Pairs
    """The differences of every two of these losses."""
    scaled: Scaled
    """The values of these losses on the scale of the comparison."""
    bounds: Bounds | None
    """The bounds of the differences from the best; None if nothing is known of variances."""

    @cached_property
    def worse_by(self) -> Floats:
        """(losses,), the largest amount by which each loss may be worse than the best.

        It is in the unit of the metric; nan: not known.
        """
        worse_by = np.full(len(self.contender), np.nan)
        if self.bounds is not None:
            worse_by[self.rows] = self.bounds.worse_by(np.flatnonzero(self.contender[self.rows]))
        return worse_by

    def resolution(self) -> float:
        """Return the smallest true difference that would show with 80 % power.

        It is in the unit of the metric.

        A loss that is worse than the best by this difference would be excluded in 80 % of
        comparisons, if their seeds, test items and searches have the variances that were found
        here. The difference is computed for every loss but the best, and the median is returned.
        It is nan if nothing is known of variances.
        """
        if len(self.rows) < 2 or not np.isfinite(self.pairs.variances.values).all():
            return math.nan
        means = np.nanmean(self.scaled.values, axis=1)
        best = int(means.argmin())
        others = [loss for loss in range(len(means)) if loss != best]
        shown = [self.pairs.shown_difference(loss, best) for loss in others]
        known = [difference for difference in shown if math.isfinite(difference)]
        if not known:
            return math.nan
        # A mean would be large if a single loss varies wildly. A median is not.
        difference = float(np.median(known))
        # How much this difference is in the unit of the metric depends on where the best loss lies
        # on the scale. The best mean is probably a lucky one, so that the mean over all losses that
        # may be the best is taken in its place.
        mean_of_best = float(means[self.contender[self.rows]].mean())
        worse, at_best = self.scaled.metric(np.array([mean_of_best + difference, mean_of_best]))
        return float(worse - at_best)

    def seeds_to_separate(self, first: int, second: int) -> int | None:
        """Return how many seeds would separate two losses, if difference and variances stay.

        With this number of seeds the better loss would exclude the worse one in 80 % of comparisons
        of as many losses. None if MOST_SEEDS do not suffice, or if nothing is known of variances.

        Args:
            first: the row of one loss.
            second: the row of the other loss.
        """
        first_in_pairs = self.rows.index(first)
        second_in_pairs = self.rows.index(second)

        def suffice(seeds: int) -> bool:
            return self.pairs.separate(first_in_pairs, second_in_pairs, seeds)

        if not suffice(MOST_SEEDS):
            return None
        # If a number of seeds suffices, every larger number does: bisection finds the smallest.
        return bisect_left(range(MOST_SEEDS), True, lo=2, key=suffice)


def contenders(
    errors: ArrayLike,
    *,
    lower_is_better: bool = True,
    noise: SamplingNoise | None = None,
    overlap: float = 0.0,
    searches: Sequence[Search | None] | None = None,
    level: float = LEVEL,
    scale: Scale | None = None,
) -> Contenders:
    """Return which losses may be the best one, and how much worse than the best each may be.

    Losses are compared on their common seeds, so that the effect of a seed on all losses does not
    count. To make variances alike, shares are compared as logits and other positive values as
    logarithms.

    Args:
        errors: (losses, seeds), NaN where a seed is missing. Infinite values have no mean and raise
            a ValueError.
        lower_is_better: whether the smallest value is the best.
        noise: how far values move with other test items; None: the set holds for these test items
            alone.
        overlap: if seeds split the same bags, the number of test bags for each training bag, else
            0. The variance of the mean of n values is (1/n + overlap) times that of a value (Nadeau
            and Bengio, Machine Learning 52, 2003, pp. 239-281).
        searches: the search that chose the settings of each loss, with test values in the unit of
            `errors`; None for a loss without a search. Without searches the set holds for these
            settings alone.
        level: the probability with which the best loss is in the set. For k questions at once, of
            which one may be answered wrongly with a probability of 5 %, it is 1 - 0.05 / k.
        scale: the scale of the comparison, "logit" for shares and areas below curves, "log" for
            other positive values, "" for values as they are; None: a scale that the values allow,
            which takes any values below 1 for shares.

    Examples:
        Four losses with errors of about 1.6, 1.6, 2.6 and 10 %, and three seeds each:

        >>> errors = [
        ...     [0.015, 0.016, 0.017],
        ...     [0.016, 0.017, 0.015],
        ...     [0.025, 0.026, 0.028],
        ...     [0.08, 0.13, 0.10],
        ... ]
        >>> verdict = contenders(errors)
        >>> verdict.contender.tolist()
        [True, True, False, False]
        >>> verdict.worse_by.round(3).tolist()
        [0.003, 0.003, 0.015, 0.177]
    """
    given = np.asarray(errors, float)
    _check_finite(given)
    rows = np.flatnonzero(np.isfinite(given).any(axis=1))
    noise_of_rows = None if noise is None else noise.of(rows)
    values = put_on_scale(given[rows], lower_is_better, noise_of_rows, scale)
    searched = [None if searches is None else searches[row] for row in rows.tolist()]
    search = searches_on_scale(searched, given[rows], values)
    pairs = compare_all(values, overlap, search, level)
    is_contender = np.zeros(len(given), bool)
    is_contender[rows] = True
    bounds = None
    seeds_show_variances = bool(np.isfinite(pairs.variances.values).all())
    if len(rows) > 1 and seeds_show_variances:
        widths = pairs.widths()
        is_excluded = (pairs.difference > widths).any(axis=1)
        # With missing seeds, each of three losses may look worse than the next one, in a circle.
        # One of the three is the best, so that none is excluded then.
        if not is_excluded.all():
            is_contender[rows] = ~is_excluded
        smaller_is_better = given[rows] if lower_is_better else -given[rows]
        in_units, _ = common_means(smaller_is_better)
        bounds = Bounds(values, pairs, widths, in_units)
    return Contenders(is_contender, rows.tolist(), pairs, values, bounds)


def _check_finite(errors: Floats) -> None:
    """Raise ValueError for infinite values, which have no mean and no variance."""
    infinite = np.argwhere(np.isinf(errors))
    if len(infinite):
        loss, seed = infinite[0].tolist()
        value = errors[loss, seed]
        raise ValueError(
            f"expected finite values, or NaN for a missing one, got {value} in row {loss} (loss), "
            f"column {seed} (seed)"
        )


POINTS_OF_INTERVAL = np.linspace(-1, 1, 5)
"""The points of the interval of a mean at which `Bounds` compares two losses.

They are shares of its half width.
"""

SYMMETRIC = 5
"""With fewer seeds, a mean may well be better than the best seed: see `Bounds.lowest`.

If values are symmetric around their mean, five of them all lie above it in 1 of 32 cases.
"""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Hsu's upper bounds of the difference from the best, in the metric's unit.

    On the scale of the comparison, a loss is worse than another one by at most their difference
    plus the width. The bound in the unit of the metric depends on where on the scale the two losses
    lie, so that several pairs of points are compared.
    """

    scaled: Scaled
    """The values of m losses with n seeds on the scale of the comparison."""
    pairs: Pairs
    """The differences of every two of these losses."""
    widths: Floats
    """(m, m), how much worse than the second the first loss may look and still be the best."""
    in_units: Floats
    """(m, m), the mean of the first loss over the seeds of both, in the metric's unit.

    These means are of the given values, of which `scaled` has moved zeros off zero.
    """

    @cached_property
    def half_widths(self) -> Floats:
        """(m,), the half widths of the intervals of the means."""
        return _half_widths(self.scaled, self.pairs)

    @cached_property
    def lowest(self) -> Floats:
        """(m, m), how far the second of two losses may move from its mean: see `_lowest`."""
        return _lowest(self.scaled, self.pairs)

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """(m, n), whether each loss has a value with each seed."""
        return np.isfinite(self.scaled.values)

    def worse_by(self, contenders: NDArray[np.int64]) -> Floats:
        """Return by how much each loss may be worse than the best of the contenders, (m,)."""
        bounds = np.zeros_like(self.widths)
        for first in range(len(bounds)):
            for second in contenders.tolist():
                if first != second:
                    bounds[first, second] = self._bound(first, second)
        return np.asarray(bounds.max(axis=1))

    def _bound(self, first: int, second: int) -> float:
        """Return how much worse than the second the first may be; nan if they share no seed."""
        if not self.pairs.seeds[first, second]:
            return math.nan
        width = float(self.widths[first, second])
        v_first = self.pairs.variances.values[first]
        v_second = self.pairs.variances.values[second]
        # The width is divided between the two losses: the one that varies more moves further.
        share = v_first / (v_first + v_second)
        # Such moves do not change the mean of both with weights 1 / variance. This mean has an
        # interval of its own, in which it is moved as well.
        reach = (1 - share) * self.half_widths[first] + share * self.half_widths[second]
        moves = reach * POINTS_OF_INTERVAL
        up = moves + share * width
        down = np.maximum(moves - (1 - share) * width, self.lowest[first, second])
        return self._gap(first, second, up, down)

    def _gap(self, first: int, second: int, up: Floats, down: Floats) -> float:
        """Return the largest difference of two moved losses, in the metric's unit.

        The unit of the metric is not linear in the scale, so that two differences are computed for
        each move: that of the moved means, and that of the means of all moved values.

        Args:
            first: the row of the loss that is moved up.
            second: the row of the loss that is moved down.
            up: the moves of the first loss, on the scale of the comparison.
            down: the moves of the second loss.
        """
        values = self.scaled.values
        common = self.present[first] & self.present[second]
        of_first = self._in_units(values[first, common], self.pairs.means[first, second], up)
        of_second = self._in_units(values[second, common], self.pairs.means[second, first], down)
        gaps = of_first - of_second
        gap_of_means = gaps[:, -1]
        gap_of_seeds = gaps[:, :-1].sum(axis=1) / self.pairs.seeds[first, second]
        gap_found = self.in_units[first, second] - self.in_units[second, first]
        # A bound must not be smaller than the difference that was found.
        return float(max(gap_of_means.max(), gap_of_seeds.max(), gap_found))

    def _in_units(self, values: Floats, mean: float, moves: Floats) -> Floats:
        """Return moved values in the metric's unit, a row for each move; the mean comes last."""
        return self.scaled.metric(np.append(values, mean) + moves[:, None])


def _lowest(scaled: Scaled, pairs: Pairs) -> Floats:
    """Return a limit of how far below its mean the second of two losses may be moved, (m, m).

    A rival that varies wildly has a wide width, but its true mean is hardly much better than its
    best seed. It is taken to be no lower than the best seed less a width. This width is computed as
    if no loss varied more than the median loss. The limit is -inf where it is not known.
    """
    # With few seeds, or seeds that split the same bags, all values may lie above the true mean.
    is_known = (pairs.seeds >= SYMMETRIC) & (pairs.overlap == 0)
    if not is_known.any():
        return np.full_like(pairs.seeds, -np.inf)
    v = pairs.variances.values
    no_more_than_median = np.minimum(v, np.median(v))
    at_most_median = replace(pairs.variances, values=no_more_than_median)
    widths_of_median = replace(pairs, variances=at_most_median).widths()
    best_seed = np.nanmin(scaled.values, axis=1)
    return np.where(is_known, best_seed - pairs.means.T - widths_of_median, -np.inf)


def _half_widths(scaled: Scaled, pairs: Pairs) -> Floats:
    """Return the half width of the one-sided interval of the mean of each loss, (losses,)."""
    present = np.isfinite(scaled.values)
    seeds = present.sum(axis=1)
    z = special.ndtri(pairs.level)
    squares = np.full(len(seeds), np.nan)
    for loss, n in enumerate(seeds.tolist()):
        seeds_of_loss = np.flatnonzero(present[loss])
        if n > 1:
            t = special.stdtrit(n - 1, pairs.level)
            variance = scaled.values[loss, seeds_of_loss].var(ddof=1)
            squares[loss] = t**2 * variance * (1 / n + pairs.overlap)
        if scaled.noise is not None:
            covariance = scaled.noise.covariance[loss, :, loss]
            of_items = covariance[seeds_of_loss][:, seeds_of_loss].sum() / n**2
            squares[loss] += z**2 * of_items
        search = pairs.search.values[loss]
        if search > 0:
            u = special.stdtrit(pairs.search.freedom[loss], pairs.level)
            squares[loss] += u**2 * search
    # A single seed does not show how much a loss varies. Its interval is taken to be as wide as
    # the widest of the others.
    worst = np.fmax.reduce(squares)
    return np.sqrt(np.where(seeds > 1, squares, worst))
