"""The contenders: a set of losses that holds the truly best one with 95 % probability, from few seeds.

A loss leaves the set where another one is better beyond noise, at the one-sided level that suits the comparison of one
loss with all its rivals at once: multiple comparisons with the best (J. C. Hsu, "Constrained simultaneous confidence
intervals for multiple comparisons with the best", Annals of Statistics 12, 1984, pp. 1136-1144), with the quantile of
C. W. Dunnett, "A multiple comparison procedure for comparing several treatments with a control", Journal of the
American Statistical Association 50, 1955, pp. 1096-1121. The same quantities bound how much worse than the best a loss
may be. docs/statistics.md: how often set and bounds are wrong.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.pairs import Pairs, Scaled, common_means, compare_all, scaled
from milbench.report.statistics.sampling import Floats, SamplingNoise

MOST_SEEDS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Contenders:
    """What the values of losses say of the best one."""

    contender: NDArray[
        np.bool_
    ]  # (losses,), may be the best; False without any value, with one seed True for others
    worse_by: Floats  # (losses,), worse than the best by at most so much, in the unit of the metric; nan: not known
    rows: list[int]  # the losses in `pairs`: those with a value
    pairs: Pairs

    def seeds_to_separate(self, first: int, second: int) -> int | None:
        """Return how many seeds would separate two losses, given by their rows, if difference and variances stay.

        With so many, the better one leaves the worse one no contender in 80 % of comparisons of as many losses; None
        where thousands do not suffice, or nothing is known of variances.
        """
        pair = self.rows.index(first), self.rows.index(second)
        if not self.pairs.separate(*pair, MOST_SEEDS):
            return None
        return bisect_left(
            range(MOST_SEEDS), True, lo=2, key=lambda seeds: self.pairs.separate(*pair, seeds)
        )


def contenders(
    errors: ArrayLike,
    *,
    lower_is_better: bool = True,
    noise: SamplingNoise | None = None,
    overlap: float = 0.0,
) -> Contenders:
    """Return which losses may be the best one, with 95 % probability, and how much worse than it each may be.

    Losses are compared on their common seeds: what a seed does to all of them does not count. Shares are compared as
    logits and other positive values as logarithms, which makes variances alike.

    Args:
        errors: (losses, seeds), NaN where a seed is missing.
        lower_is_better: whether the smallest value is the best.
        noise: what the draw of the test items adds; None: the set holds for these test items alone.
        overlap: test bags for each training bag where seeds split the same bags, else 0; the variance of a mean is then
            1/n + overlap times that of its values (Nadeau and Bengio, Machine Learning 52, 2003, pp. 239-281).

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
    rows = np.flatnonzero(np.isfinite(given).any(axis=1))
    values = scaled(given[rows], lower_is_better, noise and noise.of(rows))
    pairs = compare_all(values, overlap)
    contender, worse_by = np.zeros(len(given), bool), np.full(len(given), np.nan)
    contender[rows] = True
    if len(rows) > 1 and np.isfinite(pairs.variances.values).all():  # seeds show variances
        widths = pairs.widths()
        contender[rows] = ~(pairs.difference > widths).any(axis=1)
        in_units, _ = common_means(given[rows] if lower_is_better else -given[rows])
        worse_by[rows] = _worse_by(values, contender[rows], pairs, widths, in_units)
    return Contenders(contender, worse_by, rows.tolist(), pairs)


def _worse_by(
    scaled: Scaled, contender: NDArray[np.bool_], pairs: Pairs, widths: Floats, in_units: Floats
) -> Floats:
    """Return Hsu's upper bounds of the difference from the best, which is one of the contenders, in the metric's unit.

    On the scale of the comparison a loss is worse than another one by at most their difference and the width. Of the
    two, the one that varies more moves more; what this leaves in place, their mean with weights 1 / variance, has an
    interval of its own. The largest difference within it counts: that of the means of all moved values, or of the
    values at the moved means, and never less than was `in_units`: means in the metric's unit, (m, m), where zeros are
    zeros. However wildly a rival varies, its mean is taken to be no lower than its best seed less a typical width.
    """
    v, half, values = pairs.variances.values, _half_widths(scaled, pairs.overlap), scaled.values
    share = v[:, None] / (v[:, None] + v)
    places = ((1 - share) * half[:, None] + share * half)[..., None] * np.linspace(-1, 1, 5)
    typical = replace(pairs.variances, values=np.minimum(v, np.median(v)))
    lowest = np.nanmin(values, axis=1) - pairs.means.T - replace(pairs, variances=typical).widths()
    lowest[
        (pairs.seeds < 5) | (pairs.overlap > 0)
    ] = -np.inf  # five seeds are all above a symmetric mean in 1 of 32
    up = places + (share * widths)[..., None]
    down = np.maximum(places - ((1 - share) * widths)[..., None], lowest[..., None])
    between = scaled.metric(pairs.means[..., None] + up) - scaled.metric(
        pairs.means.T[..., None] + down
    )
    moved = scaled.metric(values[:, None, None] + up[..., None]) - scaled.metric(
        values[:, None] + down[..., None]
    )
    of_seeds = np.nansum(moved, axis=3) / np.where(pairs.seeds > 0, pairs.seeds, np.nan)[..., None]
    bounds = np.maximum(np.maximum(between, of_seeds).max(axis=2), in_units - in_units.T)
    np.fill_diagonal(bounds, 0)
    return np.asarray(bounds[:, contender].max(axis=1, initial=0))


def _half_widths(scaled: Scaled, overlap: float) -> Floats:
    """Return the half widths of the one-sided intervals of the mean of each loss, (losses,)."""
    present = np.isfinite(scaled.values)
    seeds = present.sum(axis=1)
    several = seeds > 1
    squares = np.full(len(seeds), np.nan)
    spread = np.nanvar(scaled.values[several], axis=1, ddof=1)
    squares[several] = (
        special.stdtrit(seeds[several] - 1, LEVEL) ** 2 * spread * (1 / seeds[several] + overlap)
    )
    if scaled.noise is not None:
        of_items = np.einsum("isit,is,it->i", scaled.noise.covariance, present, present) / seeds**2
        squares += special.ndtri(LEVEL) ** 2 * of_items
    return np.sqrt(
        np.where(several, squares, np.fmax.reduce(squares))
    )  # one seed: known as badly as the worst
