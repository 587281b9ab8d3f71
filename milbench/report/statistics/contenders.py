"""The contenders: a set of losses that holds the truly best one with 95 % probability, from few seeds.

A loss leaves the set where another one is better beyond noise, at the one-sided level that suits
the comparison of one loss with all its rivals at once: multiple comparisons with the best (J. C.
Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with the best", Annals
of Statistics 12, 1984, pp. 1136-1144), with the quantile of C. W. Dunnett, "A multiple comparison
procedure for comparing several treatments with a control", Journal of the American Statistical
Association 50, 1955, pp. 1096-1121. The same quantities bound how much worse than the best a loss
may be. docs/statistics.md: how often set and bounds are wrong.
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
"""More seeds are not tried where it is asked how many would separate two losses."""


@dataclass(frozen=True, eq=False)
class Contenders:
    """What the values of losses say of the best one."""

    contender: NDArray[np.bool_]
    """(losses,), may be the best; False without any value, with one seed True for others."""
    rows: list[int]
    """The losses in `pairs`: those with a value."""
    pairs: Pairs
    scaled: Scaled
    """The values of the losses in `pairs`."""
    bounds: Bounds | None
    """What bounds the differences from the best; None where nothing is known of variances."""

    @cached_property
    def worse_by(self) -> Floats:
        """(losses,), worse than the best by at most so much, in the unit of the metric; nan: not known."""
        worse_by = np.full(len(self.contender), np.nan)
        if self.bounds is not None:
            worse_by[self.rows] = self.bounds.worse_by(np.flatnonzero(self.contender[self.rows]))
        return worse_by

    def resolution(self) -> float:
        """Return the smallest true difference that would show with 80 % power, in the unit of the metric.

        That is how much worse than the best a loss has to be for leaving the set in 80 % of
        comparisons with these seeds, test items and searches, if their variances are what they were
        found to be; the median over all losses but the best, so that half of them would show a
        smaller difference. nan where nothing is known of variances.
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
        # One loss that varies wildly would make a mean large, however little all others vary.
        difference = float(np.median(known))
        # How much of the metric this is depends on where the best loss lies on the scale. The best
        # mean is a lucky one, so that the mean over all losses that may be the best stands for it.
        mean_of_best = float(means[self.contender[self.rows]].mean())
        worse, at_best = self.scaled.metric(np.array([mean_of_best + difference, mean_of_best]))
        return float(worse - at_best)

    def seeds_to_separate(self, first: int, second: int) -> int | None:
        """Return how many seeds would separate two losses, given by their rows, if difference and variances stay.

        With so many, the worse one is excluded by the better one in 80 % of comparisons of as many
        losses; None where thousands do not suffice, or nothing is known of variances.
        """
        place_of_first = self.rows.index(first)
        place_of_second = self.rows.index(second)

        def suffice(seeds: int) -> bool:
            return self.pairs.separate(place_of_first, place_of_second, seeds)

        if not suffice(MOST_SEEDS):
            return None
        # Where some number suffices, every larger one does.
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
    """Return which losses may be the best one, with 95 % probability, and how much worse than it each may be.

    Losses are compared on their common seeds: what a seed does to all of them does not count.
    Shares are compared as logits and other positive values as logarithms, which makes variances
    alike.

    Args:
        errors: (losses, seeds), NaN where a seed is missing. ValueError for infinity, which no mean
            can hold.
        lower_is_better: whether the smallest value is the best.
        noise: what the draw of the test items adds; None: the set holds for these test items alone.
        overlap: test bags for each training bag where seeds split the same bags, else 0; the
            variance of a mean is then 1/n + overlap times that of its values (Nadeau and Bengio,
            Machine Learning 52, 2003, pp. 239-281).
        searches: how the settings of each loss were chosen, test values in the unit of `errors`;
            None where they were not. Without any the set holds for these settings alone.
        level: the probability with which the best loss is in the set. Whoever asks k questions at
            once and may err in one of them with a probability of 5 % asks each with the level 1 -
            0.05 / k.
        scale: the scale of the comparison, "logit" for shares and areas below curves, "log" for
            other positive values, "" for values as they are; None: the one that the values allow,
            which takes any values below 1 for shares.

    Examples:
        Three seeds of about 1.6, 1.6, 2.6 and 10 %:

        >>> errors = [[0.015, 0.016, 0.017], [0.016, 0.017, 0.015], [0.025, 0.026, 0.028], [0.08, 0.13, 0.10]]
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
        # With missing seeds each of three losses may be worse than the next one, in a circle. One
        # of them is the best.
        if not is_excluded.all():
            is_contender[rows] = ~is_excluded
        smaller_is_better = given[rows] if lower_is_better else -given[rows]
        in_units, _ = common_means(smaller_is_better)
        bounds = Bounds(values, pairs, widths, in_units)
    return Contenders(is_contender, rows.tolist(), pairs, values, bounds)


def _check_finite(errors: Floats) -> None:
    """Refuse infinite values, of which no mean and no variance can be taken."""
    infinite = np.argwhere(np.isinf(errors))
    if len(infinite):
        loss, seed = infinite[0].tolist()
        value = errors[loss, seed]
        raise ValueError(
            f"expected finite values, or NaN for a missing one, got {value} in row {loss} (loss), "
            f"column {seed} (seed)"
        )


POINTS_OF_INTERVAL = np.linspace(-1, 1, 5)
"""Where in the interval of their mean two losses are looked at, as shares of its half width."""

SYMMETRIC = 5
"""So many seeds are all above a symmetric mean in 1 of 32 trainings: with fewer, the mean may lie below all."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Hsu's upper bounds of the difference from the best, in the metric's unit.

    On the scale of the comparison a loss is worse than another one by at most their difference and
    the width. The unit of the metric is not that of the scale, so that the bound depends on where
    on the scale the two losses lie.
    """

    scaled: Scaled
    pairs: Pairs
    widths: Floats
    """(m, m), by how much the first loss may look worse than the second and still be the best."""
    in_units: Floats
    """(m, m), the means over common seeds in the metric's unit, where zeros are zeros."""

    @cached_property
    def half_widths(self) -> Floats:
        """(m,), of the intervals of the means."""
        return _half_widths(self.scaled, self.pairs)

    @cached_property
    def lowest(self) -> Floats:
        """(m, m), how far below its mean the second of two losses lies at most."""
        return _lowest(self.scaled, self.pairs)

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Which losses have a value with which seeds, (m, n)."""
        return np.isfinite(self.scaled.values)

    def worse_by(self, contenders: NDArray[np.int64]) -> Floats:
        """Return by how much each loss may be worse than the best, which is one of the contenders, (m,)."""
        bounds = np.zeros_like(self.widths)
        for first in range(len(bounds)):
            for second in contenders.tolist():
                if first != second:
                    bounds[first, second] = self._bound(first, second)
        return np.asarray(bounds.max(axis=1))

    def _bound(self, first: int, second: int) -> float:
        """Return by how much the first loss may be worse than the second, nan if they share no seed."""
        if not self.pairs.seeds[first, second]:
            return math.nan
        width = float(self.widths[first, second])
        v_first = self.pairs.variances.values[first]
        v_second = self.pairs.variances.values[second]
        # Of the two, the one that varies more moves more.
        share = v_first / (v_first + v_second)
        # What this leaves in place is their mean with weights 1 / variance. It has an interval of
        # its own.
        reach = (1 - share) * self.half_widths[first] + share * self.half_widths[second]
        moves = reach * POINTS_OF_INTERVAL
        up = moves + share * width
        down = np.maximum(moves - (1 - share) * width, self.lowest[first, second])
        return self._gap(first, second, up, down)

    def _gap(self, first: int, second: int, up: Floats, down: Floats) -> float:
        """Return the difference of two losses in the metric's unit where it is largest, moved up and down.

        It is that of values at the moved means, or that of means of all moved values.
        """
        values = self.scaled.values
        common = self.present[first] & self.present[second]
        of_first = self._in_units(values[first, common], self.pairs.means[first, second], up)
        of_second = self._in_units(values[second, common], self.pairs.means[second, first], down)
        gaps = of_first - of_second
        gap_of_means = gaps[:, -1]
        gap_of_seeds = gaps[:, :-1].sum(axis=1) / self.pairs.seeds[first, second]
        gap_found = self.in_units[first, second] - self.in_units[second, first]
        # The largest difference within that interval counts, and never less than was found.
        return float(max(gap_of_means.max(), gap_of_seeds.max(), gap_found))

    def _in_units(self, values: Floats, mean: float, moves: Floats) -> Floats:
        """Return values and, last, their mean in the metric's unit, a row for each move."""
        return self.scaled.metric(np.append(values, mean) + moves[:, None])


def _lowest(scaled: Scaled, pairs: Pairs) -> Floats:
    """Return how far below its mean the second of two losses lies at most, (m, m).

    However wildly a rival varies, its mean is taken to be no lower than its best seed less the
    width that losses have with no more than the median variance.
    """
    # Few seeds may all lie above the mean, and so may all splits of the same bags.
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
    """Return the half widths of the one-sided intervals of the mean of each loss, (losses,)."""
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
    # The mean of one seed is known as badly as the worst of the others.
    worst = np.fmax.reduce(squares)
    return np.sqrt(np.where(seeds > 1, squares, worst))
