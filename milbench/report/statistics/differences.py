"""The difference of two losses with its interval, over training seeds and test items.

With each seed that both losses have, one loss less the other is a difference. The mean of these n
differences is reported. Its error has two parts.

- One part differs from seed to seed. The variance S^2 of the n differences shows it, with n - 1
  degrees of freedom.
- The other part is common to all seeds, since they share test items. Only the outcomes of single
  items show it.

The half width of an interval that misses the true difference with the probability a is

    sqrt( max(t^2 S^2, z^2 own) (1/n + r)  +  z^2 shared )

where

- t and z are the quantiles 1 - a/2 of Student's distribution with n - 1 degrees of freedom, and of
  the normal distribution;
- `shared` is the covariance that the test items give to the differences with two seeds;
- `own` is the variance that the test items give to the difference with one seed, less `shared`;
- r (`overlap` in code) is the number of test bags for each training bag if every seed splits the
  same bags in another way, else 0. The mean of such differences varies by about r S^2 more than
  that of independent ones: C. Nadeau and Y. Bengio, "Inference for the Generalization Error",
  Machine Learning 52, 2003, pp. 239-281 (the corrected resampled t-test).

Without the maximum this is Banerjee's interval (Sankhya 22, 1960, pp. 357-358). For normal errors
it holds the true difference with a probability of at least 1 - a. The maximum can only make it
wider.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from milbench.report.statistics.sampling import Floats, SamplingNoise

LEVEL = 0.95
"""The confidence of all intervals of a report."""

FEWEST_SEEDS = 3
"""With fewer common seeds there is no interval: too few differences do not show their variance."""

_ROUNDING = 1e-12
"""A standard deviation below this one is a rounding error of floating point."""

_SMALLEST_P = 1e-12
"""Smaller p values are not told from this one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two losses and the parts of its variance."""

    seeds: int
    """The number of seeds that both losses have."""
    difference: float
    """The mean over these seeds of the first loss less the second."""
    variance: float
    """The sample variance S^2 of the differences between seeds; nan for fewer than two seeds."""
    own: float = 0.0
    """The variance that the test items give to the difference with a single seed alone."""
    shared: float = 0.0
    """The variance that the test items give to the differences with all seeds alike."""
    items: int = 0
    """The number of test items, or 0 if the interval does not cover other test items."""
    overlap: float = 0.0
    """If seeds split the same bags: the number of test bags for each training bag, else 0."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval.

        It is (nan, nan) for fewer than FEWEST_SEEDS seeds, and if neither seeds nor items vary.
        """
        half = self.half_width() if self._has_interval else math.nan
        return self.difference - half, self.difference + half

    @property
    def p(self) -> float:
        """The two-sided p value of no difference; nan without an interval.

        It is the miss probability of the interval that ends at zero.
        """
        if not self._has_interval:
            return math.nan

        def excess(log_p: float) -> float:
            return self.half_width(math.exp(log_p)) - abs(self.difference)

        least = math.log(_SMALLEST_P)
        most = math.log1p(-1e-9)
        if excess(least) < 0:
            return math.exp(least)
        if excess(most) > 0:
            return 1.0
        return math.exp(optimize.brentq(excess, least, most))

    @property
    def _has_interval(self) -> bool:
        varies = self.items > 0 or self.variance > _ROUNDING**2
        return self.seeds >= FEWEST_SEEDS and varies

    def half_width(self, miss: float = 1 - LEVEL) -> float:
        """Return the half width of the interval that misses with the probability `miss`."""
        t = -float(special.stdtrit(self.seeds - 1, miss / 2))
        z = -float(special.ndtri(miss / 2))
        of_seeds = max(t**2 * self.variance, z**2 * self.own)
        return math.sqrt(of_seeds * (1 / self.seeds + self.overlap) + z**2 * self.shared)


def compare_pair(
    values: Floats,
    first: int,
    second: int,
    noise: SamplingNoise | None = None,
    overlap: float = 0.0,
) -> Difference:
    """Return the difference of two losses: the first row of values less the second.

    Args:
        values: (losses, seeds), NaN where there is no value.
        first: the row of the first loss.
        second: the row of the second loss.
        noise: how far values move with other test items; None: the interval holds for these test
            items alone.
        overlap: if seeds split the same bags, the number of test bags for each training bag.
    """
    common = np.isfinite(values[first]) & np.isfinite(values[second])
    differences = values[first, common] - values[second, common]
    seeds = differences.size
    difference = float(differences.mean()) if seeds else math.nan
    variance = float(differences.var(ddof=1)) if seeds > 1 else math.nan
    if noise is None or not seeds:
        return Difference(seeds, difference, variance, overlap=overlap)
    parts = item_parts(noise, first, second, common)
    return Difference(
        seeds, difference, variance, parts.own, parts.shared, parts.items, overlap=overlap
    )


@dataclass(frozen=True, slots=True)
class ItemParts:
    """What the sampling of the test items adds to the variance of a difference."""

    own: float = 0.0
    """The variance of the difference with a single seed alone."""
    shared: float = 0.0
    """The variance that the differences with all seeds have in common."""
    items: int = 0
    """The number of test items; 0 if the items of some value are not known."""


def item_parts(
    noise: SamplingNoise, first: int, second: int, common: NDArray[np.bool_]
) -> ItemParts:
    """Return what the test items add to the variance of the difference of two losses.

    `common`, (seeds,), says which seeds both losses have: one at least.
    """
    seeds = np.flatnonzero(common)
    items = int(min(noise.items[first, seeds].min(), noise.items[second, seeds].min()))
    if not items:
        return ItemParts()
    between = noise.covariance[first, :, second]
    of_all_seeds = (
        noise.covariance[first, :, first]
        + noise.covariance[second, :, second]
        - between
        - between.T
    )
    # (n, n): the covariance of the differences with every two of the n common seeds.
    covariance = of_all_seeds[seeds][:, seeds]
    n = len(seeds)
    of_one_seed = float(np.trace(covariance)) / n
    of_two_seeds = of_one_seed
    if n > 1:
        off_diagonal = float(covariance.sum()) - n * of_one_seed
        of_two_seeds = off_diagonal / (n * (n - 1))
    # Losses that differ on few items show too small a variance, and none if they differ on no item.
    # So each loss gets one more item, on which this loss alone is wrong. Agresti and Min
    # (Statistics in Medicine 24, 2005, pp. 729-740) add half an item each for one comparison. Many
    # comparisons at once have a higher level, for which half an item is too little.
    first_units = noise.unit[first, seeds]
    second_units = noise.unit[second, seeds]
    added = float((first_units**2 + second_units**2).sum()) / n
    # The added variance is split like the items: pairs of seeds with the same items share it.
    same_items = _share_with_same_items(noise.sets[first, seeds], noise.sets[second, seeds])
    own = max(of_one_seed - of_two_seeds, 0.0) + (1 - same_items) * added
    shared = max(of_two_seeds, 0.0) + same_items * added
    return ItemParts(own, shared, items)


def _share_with_same_items(first_sets: NDArray[np.int64], second_sets: NDArray[np.int64]) -> float:
    """Return the share of all pairs of seeds that were tested on the same items.

    `first_sets` and `second_sets`, (n,), say on which set of items two losses were tested with each
    of n seeds. Two small folds may be the same set by chance.
    """
    n = len(first_sets)
    if n == 1:
        return 1.0
    is_same = (first_sets[:, None] == first_sets) & (second_sets[:, None] == second_sets)
    # The diagonal, on which every seed is paired with itself, does not count.
    return float(is_same.sum() - n) / (n * (n - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number by Holm's method; NaN stays NaN.

    NaN is left out of the number.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
    of Statistics 6, 1979, pp. 65-70.
    """
    known = [test for test, value in enumerate(p) if not math.isnan(value)]
    smallest_first = sorted(known, key=lambda test: p[test])
    adjusted = [math.nan] * len(p)
    largest = 0.0
    for rank, test in enumerate(smallest_first):
        still_open = len(known) - rank
        # An adjusted value must not be smaller than that of a smaller p value.
        largest = max(largest, min(1.0, p[test] * still_open))
        adjusted[test] = round(largest, 12)
    return adjusted


def student_interval(values: ArrayLike, overlap: float = 0.0) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean of (n,) values, one for each seed.

    It is (nan, nan) for fewer than FEWEST_SEEDS values, and if a value is not finite. `overlap` is
    that of `Difference`.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < FEWEST_SEEDS or not np.isfinite(sample).all():
        return math.nan, math.nan
    error = sample.std(ddof=1) * np.sqrt(1 / sample.size + overlap)
    half = float(special.stdtrit(sample.size - 1, (1 + LEVEL) / 2)) * error
    return float(sample.mean() - half), float(sample.mean() + half)


def share_interval(wrong: int, items: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of test items of one network.

    It covers other test items, but not other training seeds. Source: E. B. Wilson, "Probable
    inference, the law of succession, and statistical inference", Journal of the American
    Statistical Association 22, 1927.
    """
    # scipy.stats has this interval as well, but takes most of a second to import.
    z = float(special.ndtri((1 + LEVEL) / 2))
    share = wrong / items
    shrunk = 1 + z**2 / items
    middle = (share + z**2 / (2 * items)) / shrunk
    half = z * math.sqrt(share * (1 - share) / items + z**2 / (4 * items**2)) / shrunk
    # If no item or every item is wrong, the interval ends exactly at 0 or 1. By the formula it
    # might miss them by a rounding error.
    low = 0.0 if wrong == 0 else middle - half
    high = 1.0 if wrong == items else middle + half
    return low, high


def is_within(bounds: Iterable[float], margin: float) -> bool:
    """Return whether an interval lies within a margin, on both sides of zero."""
    return all(-margin <= bound <= margin for bound in bounds)
