"""Statistics of a few paired seeds: which epoch counts, how sure a mean is, what can be told apart."""

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
"""With fewer pairs nothing is called worse: two equal differences, common on small test sets, would look certain."""
_ENUMERABLE = 12  # up to 2^12 patterns of signs are enumerated; scipy's own table beyond assumes that there are no ties
_ROUNDING = 1e-12  # a standard deviation or a difference below it is one of floating point
_DRAWS = 100_000


def select_epoch(history: pd.DataFrame, rule: Rule, metric: str, lower_is_better: bool = True) -> int | None:
    """Return the epoch that the rule picks from the history of one cell, or None where it has nothing to go by.

    history: columns epoch, metric ("test/<metric>", "validation/<metric>"), value. Only epochs with a test value are
    candidates; the earlier one wins a tie, but where the validation values are all the same they tell nothing, and the
    last epoch stands. Values that are not finite are passed over, except that the last epoch is the last one however it
    ended.
    """
    tested = history.loc[history["metric"] == f"test/{metric}"]
    if rule == "last":
        return None if tested.empty else int(tested["epoch"].max())
    judged = history.loc[history["metric"] == f"{rule}/{metric}"]
    judged = judged[judged["epoch"].isin(tested["epoch"]) & np.isfinite(judged["value"])].sort_values("epoch")
    if judged.empty:
        return None
    values = judged["value"].to_numpy(dtype=float)
    if rule == "validation" and np.ptp(values) == 0:
        return int(judged["epoch"].max())
    return int(judged["epoch"].iloc[int(np.argmin(values if lower_is_better else -values))])


def bootstrap_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean, the same at every call; (nan, nan) below two values.

    It is too narrow for a handful of seeds, since resampling cannot invent values that were not drawn: of normally
    distributed values, the interval named 95 % covers the mean about 50 % (n = 2), 75 % (3), 84 % (5) and 90 % (10) of
    the time. BCa is not better at that size and undefined for equal values. `student_interval` is right for normal
    values at every n; the report decides by it and shows both.
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
    """Return Student's t interval of the mean; (nan, nan) below two values."""
    sample = np.asarray(values, dtype=float)
    if sample.size < 2 or not np.isfinite(sample).all():
        return float("nan"), float("nan")
    half = stats.t.ppf((1 + level) / 2, sample.size - 1) * stats.sem(sample)
    return float(sample.mean() - half), float(sample.mean() + half)


def smallest_p(seeds: int) -> float:
    """Return the smallest p that the two-sided exact Wilcoxon signed-rank test can reach with that many pairs."""
    return 1.0 if seeds < 1 else 2.0 ** (1 - seeds)


def signed_rank_p(differences: ArrayLike) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test, exact with ties; zero differences are left out.

    Differences are rounded first, so that two that are equal on paper also tie in floating point.
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
    """Return Holm's step-down adjusted p values in the order given; nan (no test made) stays and does not count."""
    p = np.asarray(p_values, dtype=float)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    adjusted = np.full(p.shape, np.nan)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return [float(value) for value in adjusted]


@dataclass(frozen=True, slots=True)
class Paired:
    """The differences between two groups on the seeds that both have.

    difference: mean of group minus reference; bootstrap: its 95 % interval; student: Student's interval, widened
    (Bonferroni) for the number of comparisons made together; p: exact Wilcoxon signed-rank; p_holm: after Holm.
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
    """Compare two groups indexed by seed on the seeds that both have; below two such seeds there is no test."""
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
    """A mean less another one that shares no seeds with it, the interval of that, and the p of there being nothing."""

    difference: float
    interval: tuple[float, float]
    p: float


def welch(
    values: ArrayLike, mean: float, spread: float = 0.0, runs: float = math.inf, level: float = LEVEL
) -> Unpaired:
    """Compare the mean of `values` (two at least) with one that is known by its summary: Welch's t test.

    mean, spread, runs: of the other one, the standard deviation with n - 1. Left out, `mean` is taken for a number
    without error, and the test is Student's for one sample.
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
    """Compare the best of `runs` further draws of what `values` (two at least) are with a published best.

    How far the best of the further draws lies from the mean of the values, in their standard deviations, has the same
    distribution whatever normal distribution they all come from: it is simulated, the same at every call. A t test has
    no place here, since the best of ten is not where the mean is. The difference is that of the median further best.
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
    """The ratio of two means over the seeds that both groups have, with its bootstrap interval."""

    seeds: int
    value: float
    interval: tuple[float, float]


def paired_ratio(numerator: pd.Series[float], denominator: pd.Series[float], level: float = LEVEL) -> Ratio:
    """Return mean / mean on the common seeds; its interval resamples seeds, which keeps the two values of one together.

    Below two seeds there is no interval, and none where the denominator may be zero, its values not being of one sign.
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
    """Every group against the one with the best mean, and no order beyond that."""

    best: Key | None
    paired: dict[Key, Paired] = field(default_factory=dict)
    verdicts: dict[Key, Verdict] = field(default_factory=dict)


def tied_with_best(groups: Mapping[Key, pd.Series[float]], lower_is_better: bool = True) -> Ranking[Key]:
    """Find the group with the best mean and say of each other one whether it can be told from it.

    groups: values indexed by seed, finite. The best is sought among the groups with the most seeds, so that a lucky
    seed of a group whose others failed does not win. A group is worse (better) where Student's interval of the paired
    difference, widened for the number of comparisons, excludes zero; otherwise it is tied; with fewer than
    FEWEST_SEEDS common seeds it is unclear. Wilcoxon's p stands beside it and does not decide: with three seeds it
    cannot fall below 0.25.
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
