"""Statistics of a few paired seeds: the choice of the epoch, intervals of means, tests of differences."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from milbench.api.published import Rule

Key = TypeVar("Key", bound=Hashable)
RULES: dict[Rule, str] = {
    "last": "last epoch",
    "validation": "chosen on validation",
    "test": "best on test (the paper's rule)",
}
Verdict = Literal["best", "tied", "worse", "better", "unclear"]

LEVEL = 0.95
FEWEST_SEEDS = 3
"""With fewer pairs nothing is called worse: two equal differences, common on small test sets, would have no spread."""
_ENUMERABLE = 12  # up to 2^12 patterns of signs are enumerated; scipy's own table beyond assumes that there are no ties
_ROUNDING = 1e-12  # a standard deviation or a difference below it is one of floating point
_DRAWS = 100_000


def select_epochs(history: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True) -> pd.Series[int]:
    """Return the epoch that a rule chooses for each cell from its history.

    Only epochs with a test value are candidates, and the earliest of equals is chosen; but where all validation values
    of a cell are equal, they distinguish no epochs, and the last one is chosen. Values that are not finite are ignored,
    except that the rule "last" takes the last epoch whatever its value.

    Args:
        history: columns cell, epoch (int), metric ("test/<metric>", "validation/<metric>") and value.
        rule: how the epoch is chosen, a key of `RULES`.
        metric: the metric to choose by, without the split.
        lower_is_better: whether the smallest value is chosen.

    Returns:
        The epochs, indexed by cell; a cell without a finite value to choose by is absent.

    Examples:
        >>> history = pd.DataFrame({
        ...     "cell": ["a", "a", "a", "a"],
        ...     "epoch": [1, 2, 1, 2],
        ...     "metric": ["validation/error", "validation/error", "test/error", "test/error"],
        ...     "value": [0.2, 0.3, 0.4, 0.1],
        ... })
        >>> [int(select_epochs(history, rule, "error")["a"]) for rule in ("last", "validation", "test")]
        [2, 1, 2]
    """
    tested = history.loc[history["metric"] == f"test/{metric}", ["cell", "epoch"]].drop_duplicates()
    if rule == "last":
        last: pd.Series[int] = tested.groupby("cell")["epoch"].max()
        return last
    judged = history.loc[history["metric"] == f"{rule}/{metric}", ["cell", "epoch", "value"]]
    judged = judged[np.isfinite(judged["value"])].merge(tested, on=["cell", "epoch"]).sort_values(["cell", "epoch"])
    by_cell = judged.groupby("cell")
    best = by_cell["value"].idxmin() if lower_is_better else by_cell["value"].idxmax()
    chosen: pd.Series[int] = judged.loc[best].set_index("cell")["epoch"]
    if rule == "validation":
        chosen = chosen.mask(by_cell["value"].min() == by_cell["value"].max(), by_cell["epoch"].max())
    return chosen


def bootstrap_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean, the same at every call.

    It is too narrow for a handful of seeds, since resampling cannot produce values that were not drawn: the nominal
    95 % interval of normal values covers the mean about 50 % (n = 2), 75 % (3), 84 % (5) and 90 % (10) of the time.
    BCa is not better at that size and undefined for equal values. `student_interval` has its nominal coverage for
    normal values at every n; the report decides by it and shows both.

    Args:
        values: (n,), one value a seed.
        level: the nominal coverage.

    Returns:
        The lower and the upper bound, (nan, nan) for fewer than two values or where one is not finite.

    Examples:
        >>> bootstrap_interval([0.25, 0.25, 0.25])
        (0.25, 0.25)
        >>> low, high = bootstrap_interval([1.0, 2.0, 3.0])  # of three values always their range
        >>> round(low, 6), round(high, 6)
        (1.0, 3.0)
        >>> bootstrap_interval([0.25])
        (nan, nan)
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < 2 or not np.isfinite(sample).all():
        return float("nan"), float("nan")
    if np.ptp(sample) == 0:
        return float(sample[0]), float(sample[0])
    interval = stats.bootstrap(
        (sample,), np.mean, confidence_level=level, n_resamples=9999, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(interval.low), float(interval.high)


def student_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Return Student's t interval of the mean.

    Args:
        values: (n,), one value a seed.
        level: the coverage, for normal values.

    Returns:
        The lower and the upper bound, (nan, nan) for fewer than two values or where one is not finite.

    Examples:
        >>> low, high = student_interval([1.0, 2.0, 3.0])  # 2 -+ 4.303 / sqrt(3)
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < 2 or not np.isfinite(sample).all():
        return float("nan"), float("nan")
    half = stats.t.ppf((1 + level) / 2, sample.size - 1) * stats.sem(sample)
    return float(sample.mean() - half), float(sample.mean() + half)


def smallest_p(seeds: int) -> float:
    """Return the smallest p value that the two-sided exact Wilcoxon signed-rank test can reach with that many pairs.

    Examples:
        >>> smallest_p(3), smallest_p(5)
        (0.25, 0.0625)
    """
    return 1.0 if seeds < 1 else 2.0 ** (1 - seeds)


def signed_rank_p(differences: ArrayLike) -> float:
    """Return the two-sided p value of Wilcoxon's signed-rank test, exact with ties up to 12 differences.

    Differences of zero are left out. All are rounded to 12 decimals first, so that differences which are equal in
    exact arithmetic are also ties in floating point.

    Examples:
        >>> signed_rank_p([1.0, 2.0, 3.0])
        0.25
    """
    sample = np.asarray(differences, dtype=float)
    sample = sample[np.isfinite(sample)]
    sample = np.round(sample, 12)
    sample = sample[sample != 0]
    if sample.size < 2:
        return 1.0  # nothing, or one sign that is as likely as the other
    method = stats.PermutationMethod(n_resamples=np.inf) if sample.size <= _ENUMERABLE else "auto"
    return float(stats.wilcoxon(sample, method=method).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p values in the order given; a nan, for no test, stays nan and is not counted.

    Examples:
        >>> [round(p, 6) for p in holm([0.04, 0.01, 0.03, 0.02])]
        [0.06, 0.04, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    adjusted = np.full(p.shape, np.nan)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return [float(value) for value in adjusted]


@dataclass(frozen=True, slots=True)
class Paired:
    """The differences between a group and a reference on their common seeds.

    Args:
        seeds: the number of common seeds.
        difference: the mean of group minus reference.
        bootstrap: the bootstrap interval of that mean.
        student: Student's interval of it, widened (Bonferroni) for the number of comparisons made together.
        p: of Wilcoxon's signed-rank test.
        p_holm: the same after Holm's correction.
    """

    seeds: int
    difference: float
    bootstrap: tuple[float, float]
    student: tuple[float, float]
    p: float
    p_holm: float = float("nan")


def paired_comparison(
    values: pd.Series[float], reference: pd.Series[float], comparisons: int = 1, level: float = LEVEL
) -> Paired:
    """Compare two groups on their common seeds; for fewer than two of them intervals and p value are nan.

    Args:
        values: a value a seed, indexed by seed.
        reference: the same of the group to compare with.
        comparisons: the number of comparisons made together, for which Student's interval is widened.
        level: the coverage of the intervals.

    Returns:
        The mean difference, `values` minus `reference`, with its intervals and p value.
    """
    both = pd.concat([values, reference], axis=1, join="inner").dropna()
    differences = (both.iloc[:, 0] - both.iloc[:, 1]).to_numpy(dtype=float)
    return Paired(
        seeds=differences.size,
        difference=float(differences.mean()) if differences.size else float("nan"),
        bootstrap=bootstrap_interval(differences, level),
        student=student_interval(differences, 1 - (1 - level) / comparisons),
        p=signed_rank_p(differences) if differences.size > 1 else float("nan"),
    )


@dataclass(frozen=True, slots=True)
class Unpaired:
    """The difference between a mean and another that shares no seeds with it, its interval, and p for no difference."""

    difference: float
    interval: tuple[float, float]
    p: float


def welch(
    values: ArrayLike, mean: float, spread: float = 0.0, runs: float = math.inf, level: float = LEVEL
) -> Unpaired:
    """Compare the mean of values with another mean of which only a summary is known, by Welch's t test.

    Without `spread` and `runs`, the other mean is taken as exact, and the test is Student's for one sample.

    Args:
        values: (n,), two values at least.
        mean: the other mean.
        spread: the standard deviation (n - 1) of the values behind it.
        runs: their number.
        level: the coverage of the interval.

    Returns:
        The mean of `values` minus `mean`, with its interval and two-sided p value.
    """
    sample = np.asarray(values, dtype=float)
    difference, own = float(sample.mean()) - mean, float(sample.std(ddof=1))
    variances = np.array([own**2 / sample.size, spread**2 / runs])
    error = math.sqrt(variances.sum())
    if error <= _ROUNDING:
        return Unpaired(difference, (difference, difference), 1.0 if abs(difference) <= _ROUNDING else 0.0)
    freedom = error**4 / float((variances**2 / np.array([sample.size - 1, runs - 1])).sum())
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    test = stats.ttest_ind_from_stats(float(sample.mean()), own, sample.size, mean, spread, runs, equal_var=False)
    return Unpaired(difference, (difference - half, difference + half), float(test.pvalue))


def best_of(values: ArrayLike, best: float, runs: int, lower_is_better: bool = True, level: float = LEVEL) -> Unpaired:
    """Compare the best of further draws from the distribution of values with a published best.

    The distance of the best of the further draws from the mean of the values, in units of their standard deviation, has
    one distribution for all normal distributions from which both may come. It is simulated, the same at every call. A t
    test would be wrong, since the best of ten draws is not near the mean. The difference is that of the median best.

    Args:
        values: (n,), two values at least.
        best: the published best.
        runs: the number of runs of which it is the best, and of further draws.
        lower_is_better: whether the best is the smallest.
        level: the coverage of the interval.

    Returns:
        The difference from the published best, with its interval and two-sided p value.
    """
    sample = np.asarray(values, dtype=float)
    mean, spread, sign = sample.mean(), sample.std(ddof=1), 1 if lower_is_better else -1
    rng = np.random.default_rng(0)
    # The smallest of n lies above x with probability sf(x)^n; mean and variance of a normal sample are independent.
    smallest = stats.norm.isf(rng.random(_DRAWS) ** (1 / runs))
    means = rng.normal(size=_DRAWS) / math.sqrt(sample.size)
    spreads = np.sqrt(rng.chisquare(sample.size - 1, size=_DRAWS) / (sample.size - 1))
    differences = mean - best + sign * spread * (smallest - means) / spreads
    low, middle, high = np.quantile(differences, [(1 - level) / 2, 0.5, (1 + level) / 2])
    p = 2 * min(np.mean(differences <= _ROUNDING), np.mean(differences >= -_ROUNDING))
    return Unpaired(float(middle), (float(low), float(high)), min(1.0, float(p)))


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two means over the common seeds, with its bootstrap interval."""

    seeds: int
    value: float
    interval: tuple[float, float]


def paired_ratio(numerator: pd.Series[float], denominator: pd.Series[float], level: float = LEVEL) -> Ratio:
    """Return the ratio of two means on the common seeds.

    The bootstrap interval resamples seeds, so that the two values of a seed stay together. It is (nan, nan) for fewer
    than two seeds, and where the denominator may be zero because its values differ in sign.

    Args:
        numerator: a value a seed, indexed by seed.
        denominator: the same.
        level: the nominal coverage of the interval.

    Returns:
        The ratio, with its interval and the number of common seeds; nan where it is not defined.
    """
    both = pd.concat([numerator, denominator], axis=1, join="inner").dropna()
    above, below = (both.iloc[:, i].to_numpy(dtype=float) for i in (0, 1))
    nan = float("nan")
    value = float(above.mean() / below.mean()) if above.size and below.mean() != 0 else nan
    if above.size < 2 or (below <= 0).any() != (below < 0).all():
        return Ratio(above.size, value, (nan, nan))

    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(x.mean(axis=axis) / y.mean(axis=axis))

    interval = stats.bootstrap(
        (above, below), ratio, paired=True, vectorized=True, confidence_level=level, n_resamples=9999,
        method="percentile", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return Ratio(above.size, value, (float(interval.low), float(interval.high)))


@dataclass(frozen=True, slots=True)
class Ranking(Generic[Key]):
    """The comparison of every group with the one of the best mean; the others are not ordered among themselves.

    Args:
        best: the group with the best mean, None for no values.
        paired: the comparison of each other group with it.
        verdicts: the verdict on every group with values.
    """

    best: Key | None
    paired: dict[Key, Paired] = field(default_factory=dict)
    verdicts: dict[Key, Verdict] = field(default_factory=dict)


def tied_with_best(groups: Mapping[Key, pd.Series[float]], lower_is_better: bool = True) -> Ranking[Key]:
    """Find the group with the best mean, and compare every other group with it.

    The best is sought among the groups with the most seeds, so that a lucky seed of a group whose others failed does
    not win. A group is worse (better) where Student's interval of the paired difference, widened for the number of
    comparisons, excludes zero; otherwise it is tied; with fewer than FEWEST_SEEDS common seeds it is unclear.
    Wilcoxon's p is given but does not decide: with three seeds it cannot fall below 0.25.

    Args:
        groups: the finite values of each group, indexed by seed.
        lower_is_better: whether the smallest mean is the best.

    Examples:
        >>> near, far = pd.Series([0.012, 0.009, 0.011]), pd.Series([0.080, 0.082, 0.079])
        >>> ranking = tied_with_best({"a": pd.Series([0.010, 0.011, 0.009]), "b": near, "c": far})
        >>> ranking.verdicts
        {'a': 'best', 'b': 'tied', 'c': 'worse'}
    """
    sizes = {key: len(values) for key, values in groups.items()}
    most = max(sizes.values(), default=0)
    if most == 0:
        return Ranking(None)
    sign = 1 if lower_is_better else -1
    best = min((key for key in groups if sizes[key] == most), key=lambda key: sign * groups[key].mean())
    others = [key for key in groups if key != best and sizes[key] > 0]
    paired = {key: paired_comparison(groups[key], groups[best], comparisons=len(others)) for key in others}
    adjusted = holm([paired[key].p for key in others])
    paired = {key: replace(paired[key], p_holm=p) for key, p in zip(others, adjusted, strict=True)}
    verdicts: dict[Key, Verdict] = {key: _verdict(paired[key], sign) for key in others}
    return Ranking(best, paired, {best: "best", **verdicts})


def _verdict(paired: Paired, sign: int) -> Verdict:
    if paired.seeds < FEWEST_SEEDS:
        return "unclear"
    low, high = sorted(sign * bound for bound in paired.student)
    if low > 0:
        return "worse"
    return "better" if high < 0 else "tied"
