"""The difference of two losses with its interval, over training seeds and test items.

It is the mean over their common seeds of their difference with one seed. Its error has two parts.
One differs from seed to seed: the n differences show its variance S^2 with n - 1 degrees of
freedom. The other part is common to all seeds, as they share test items; only the outcomes of the
items show it. The half width of an interval of level a is

    sqrt( max(t^2 S^2, z^2 own) (1/n + r)  +  z^2 shared ),      t, z: the quantiles 1 - a/2 of Student's t with n - 1
                                                                  degrees of freedom and of the normal distribution

where `shared` is the covariance that the test items give to the differences with two seeds, and
`own` what their variance has beyond it. Without the maximum this is Banerjee's interval (Sankhya
22, 1960, pp. 357-358), which for normal errors covers at least 1 - a of the time; the maximum can
only widen it.

r (`overlap` in code) is 0 but where every seed splits the same bags in another way: their mean then
varies by about r S^2 more, with r test bags for each training bag (C. Nadeau and Y. Bengio,
"Inference for the Generalization Error", Machine Learning 52, 2003, pp. 239-281: the corrected
resampled t-test).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from milbench.report.statistics.sampling import Floats, SamplingNoise

LEVEL = 0.95

FEWEST_SEEDS = 3
"""With fewer common seeds there is no interval: one or two differences do not show how much they vary."""

_ROUNDING = 1e-12
"""A difference or a standard deviation below it is one of floating point."""

_SMALLEST_P = 1e-12


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two losses and the parts of its variance."""

    seeds: int
    """The number of seeds that both have."""
    difference: float
    """The mean over these of the first less the second."""
    variance: float
    """S^2, between seeds (n - 1); nan for fewer than two."""
    own: float = 0.0
    """The variance that the test items give to the difference with one seed alone."""
    shared: float = 0.0
    """The variance that they give to the differences with all seeds, where seeds share items."""
    items: int = 0
    """The number of test items that the interval covers the draw of, 0 where it covers the seeds alone."""
    overlap: float = 0.0
    """Test bags for each training bag where seeds split the same bags."""

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval; (nan, nan) for fewer than FEWEST_SEEDS, and where neither seeds nor items vary."""
        half = self.half_width() if self._has_interval else math.nan
        return self.difference - half, self.difference + half

    @property
    def p(self) -> float:
        """Two-sided, of no difference: the largest probability of a miss with which the interval does not hold zero."""
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
        """Return the half width of the interval that misses the true difference with this probability."""
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
    """Return the first less the second of two rows of values (losses, seeds), NaN where there is none.

    Without `noise`, what the draw of the test items adds to the values, the interval holds for
    these items alone.
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
    """What the draw of the test items adds to the variance of a difference."""

    own: float = 0.0
    """The variance that it gives to the difference with one seed alone."""
    shared: float = 0.0
    """The variance that it gives to the differences with all seeds."""
    items: int = 0
    """The number of test items; 0 where a value has none that are known."""


def item_parts(
    noise: SamplingNoise, first: int, second: int, common: NDArray[np.bool_]
) -> ItemParts:
    """Return what the test items add to the difference of two losses over their common seeds, one at least."""
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
    # (n, n): the covariance of the differences with two of the common seeds.
    covariance = of_all_seeds[seeds][:, seeds]
    n = len(seeds)
    of_one_seed = float(np.trace(covariance)) / n
    of_two_seeds = of_one_seed
    if n > 1:
        off_diagonal = float(covariance.sum()) - n * of_one_seed
        of_two_seeds = off_diagonal / (n * (n - 1))
    # Each loss gets one more item on which it alone is wrong. Where losses differ on few items,
    # these show too small a variance, and where they differ on none, no variance at all. Agresti
    # and Min (Statistics in Medicine 24, 2005, pp. 729-740) add half an item each, for one
    # comparison; the tails that many comparisons reach need more.
    first_units = noise.unit[first, seeds]
    second_units = noise.unit[second, seeds]
    added = float((first_units**2 + second_units**2).sum()) / n
    # What is added is shared by the seeds as far as these share items.
    same_items = _share_with_same_items(noise.sets[first, seeds], noise.sets[second, seeds])
    own = max(of_one_seed - of_two_seeds, 0.0) + (1 - same_items) * added
    shared = max(of_two_seeds, 0.0) + same_items * added
    return ItemParts(own, shared, items)


def _share_with_same_items(first_sets: NDArray[np.int64], second_sets: NDArray[np.int64]) -> float:
    """Return the share of the pairs of seeds that were tested on the same items, as small folds may be by chance.

    `first_sets` and `second_sets`, (n,), are the sets of items of two losses with the same seeds.
    """
    n = len(first_sets)
    if n == 1:
        return 1.0
    is_same = (first_sets[:, None] == first_sets) & (second_sets[:, None] == second_sets)
    # The diagonal, on which every seed is paired with itself, does not count.
    return float(is_same.sum() - n) / (n * (n - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number; NaN stays NaN and does not count.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
    of Statistics 6, 1979, pp. 65-70.
    """
    known = [test for test, value in enumerate(p) if not math.isnan(value)]
    smallest_first = sorted(known, key=lambda test: p[test])
    adjusted = [math.nan] * len(p)
    largest = 0.0
    for rank, test in enumerate(smallest_first):
        still_open = len(known) - rank
        # No adjusted value is below that of a smaller p.
        largest = max(largest, min(1.0, p[test] * still_open))
        adjusted[test] = round(largest, 12)
    return adjusted


def student_interval(values: ArrayLike, overlap: float = 0.0) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean of (n,) values, one a seed.

    (nan, nan) for fewer than three values, and where one is not finite. For `overlap` see above.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < FEWEST_SEEDS or not np.isfinite(sample).all():
        return math.nan, math.nan
    error = sample.std(ddof=1) * np.sqrt(1 / sample.size + overlap)
    half = float(special.stdtrit(sample.size - 1, (1 + LEVEL) / 2)) * error
    return float(sample.mean() - half), float(sample.mean() + half)


def share_interval(wrong: int, items: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of test items of one network.

    It covers the draw of the items, and not another training seed. Source: E. B. Wilson, "Probable
    inference, the law of succession, and statistical inference", Journal of the American
    Statistical Association 22, 1927.
    """
    # By formula: scipy.stats has it as well, but takes most of a second to import.
    z = float(special.ndtri((1 + LEVEL) / 2))
    share = wrong / items
    shrunk = 1 + z**2 / items
    middle = (share + z**2 / (2 * items)) / shrunk
    half = z * math.sqrt(share * (1 - share) / items + z**2 / (4 * items**2)) / shrunk
    # Where all or none are wrong, the interval ends there, whatever rounding says.
    low = 0.0 if wrong == 0 else middle - half
    high = 1.0 if wrong == items else middle + half
    return low, high


def is_within(bounds: Iterable[float], margin: float) -> bool:
    """Return whether an interval lies within a margin that was given in advance: two one-sided tests at once."""
    return all(-margin <= bound <= margin for bound in bounds)
