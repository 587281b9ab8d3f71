"""The difference of two losses with its interval, over training seeds and test items.

It is the mean over their common seeds of their difference with one seed. Its error has two parts. One differs from seed
to seed: the n differences show its variance S^2 with n - 1 degrees of freedom. The other part is common to all seeds,
as they share test items; only the outcomes of the items show it. The half width of an interval of level a is

    sqrt( max(t^2 S^2, z^2 own) (1/n + r)  +  z^2 shared ),      t, z: the quantiles 1 - a/2 of Student's t with n - 1
                                                                  degrees of freedom and of the normal distribution

where `shared` is the covariance that the test items give to the differences with two seeds, and `own` what their
variance has beyond it. Without the maximum this is Banerjee's interval (Sankhya 22, 1960, pp. 357-358), which for
normal errors covers at least 1 - a of the time; the maximum can only widen it.

r is 0 but where every seed splits the same bags in another way: their mean then varies by about r S^2 more, with r test
bags for each training bag (C. Nadeau and Y. Bengio, "Inference for the Generalization Error", Machine Learning 52,
2003, pp. 239-281: the corrected resampled t-test).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from milbench.report.statistics.sampling import Floats, SamplingNoise

LEVEL = 0.95
FEWEST_SEEDS = 3  # with fewer common seeds there is no interval: one or two differences do not show how much they vary
_ROUNDING = 1e-12  # a difference or a standard deviation below it is one of floating point


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two losses and the parts of its variance."""

    seeds: int  # that both have
    difference: float  # the mean over these of the first less the second
    variance: float  # S^2, between seeds (n - 1); nan for fewer than two
    own: float = 0.0  # the variance that the test items give to the difference with one seed alone
    shared: float = 0.0  # the variance that they give to the differences with all seeds, where seeds share items
    items: int = 0  # the number of test items that the interval covers the draw of, 0 where it covers the seeds alone
    overlap: float = 0.0  # test bags for each training bag where seeds split the same bags

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

        low, high = math.log(1e-12), math.log1p(-1e-9)
        if excess(low) < 0:
            return math.exp(low)
        return 1.0 if excess(high) > 0 else math.exp(optimize.brentq(excess, low, high))

    @property
    def _has_interval(self) -> bool:
        return self.seeds >= FEWEST_SEEDS and (self.items > 0 or self.variance > _ROUNDING**2)

    def half_width(self, miss: float = 1 - LEVEL) -> float:
        """Return the half width of the interval that misses the true difference with this probability."""
        t, z = -float(special.stdtrit(self.seeds - 1, miss / 2)), -float(special.ndtri(miss / 2))
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

    Without `noise`, what the draw of the test items adds to the values, the interval holds for these items alone.
    """
    common = np.isfinite(values[first]) & np.isfinite(values[second])
    differences = values[first, common] - values[second, common]
    n = differences.size
    mean = float(differences.mean()) if n else math.nan
    variance = float(differences.var(ddof=1)) if n > 1 else math.nan
    items = int(noise.items[[first, second]][:, common].min()) if noise and n else 0
    if noise is None or not items:
        return Difference(n, mean, variance, overlap=overlap)
    c = noise.covariance[np.ix_([first, second], common, [first, second], common)]
    by_seed = c[0, :, 0] + c[1, :, 1] - c[0, :, 1] - c[1, :, 0]
    diagonal = float(np.trace(by_seed)) / n
    # An item more for each loss on which it alone is wrong: where losses differ on few items, these show too small a
    # variance, and on none no variance at all. Agresti and Min (Statistics in Medicine 24, 2005, pp. 729-740) add half
    # an item each, for one comparison; the tails that many comparisons reach need more.
    added = 2 * float((noise.unit[[first, second]][:, common] ** 2).mean())
    shared = (float(by_seed.sum()) - n * diagonal) / (n * (n - 1)) if n > 1 else diagonal
    alike = _alike(noise.sets[[first, second]][:, common])
    own, shared = (
        max(diagonal - shared, 0.0) + (1 - alike) * added,
        max(shared, 0.0) + alike * added,
    )
    return Difference(n, mean, variance, own, shared, items, overlap)


def holm(p: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number; NaN stays NaN and does not count.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6,
    1979, pp. 65-70.
    """
    known = sorted((value, k) for k, value in enumerate(p) if not math.isnan(value))
    adjusted, largest = [math.nan] * len(p), 0.0
    for rank, (value, k) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        adjusted[k] = round(largest, 12)
    return adjusted


def _alike(tested: NDArray[np.int64]) -> float:
    """Return the share of the pairs of seeds that were tested on the same items, as small folds may be by chance."""
    n = tested.shape[1]
    same = (tested[:, :, None] == tested[:, None, :]).all(axis=0)
    return float(same.sum() - n) / (n * (n - 1)) if n > 1 else 1.0


def student_interval(values: ArrayLike, overlap: float = 0.0) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean of (n,) values, one a seed.

    (nan, nan) for fewer than three values, and where one is not finite. For `overlap` see above.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < FEWEST_SEEDS or not np.isfinite(sample).all():
        return math.nan, math.nan
    error = sample.std(ddof=1) * np.sqrt(1 / sample.size + overlap)
    half = stats.t.ppf((1 + LEVEL) / 2, sample.size - 1) * error
    return float(sample.mean() - half), float(sample.mean() + half)


def share_interval(wrong: int, items: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of test items of one network.

    It covers the draw of the items, and not another training seed. Source: E. B. Wilson, "Probable inference, the law
    of succession, and statistical inference", Journal of the American Statistical Association 22, 1927.
    """
    bounds = stats.binomtest(wrong, items).proportion_ci(LEVEL, method="wilson")
    return float(bounds.low), float(bounds.high)


def is_within(bounds: Iterable[float], margin: float) -> bool:
    """Return whether an interval lies within a margin that was given in advance: two one-sided tests at once."""
    return all(-margin <= bound <= margin for bound in bounds)
