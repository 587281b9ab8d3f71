"""The contenders: a set of losses that holds the truly best one with 95 % probability, from few seeds.

A loss leaves the set where another one is better beyond noise, at the one-sided level that suits the comparison of one
loss with all its rivals at once: multiple comparisons with the best (J. C. Hsu, "Constrained simultaneous confidence
intervals for multiple comparisons with the best", Annals of Statistics 12, 1984, pp. 1136-1144), with the quantile of
C. W. Dunnett, "A multiple comparison procedure for comparing several treatments with a control", Journal of the
American Statistical Association 50, 1955, pp. 1096-1121.

Three seeds show the variance of one loss badly, and that of many losses well. Each variance is therefore moderated
towards what is typical of all (G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004,
doi 10.2202/1544-6115.1027), but never below its own nor the typical one. docs/statistics.md: how
often the set is wrong.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from milbench.report.statistics.differences import LEVEL, compare_pair
from milbench.report.statistics.sampling import Floats, SamplingNoise


def contenders(
    errors: ArrayLike,
    *,
    lower_is_better: bool = True,
    noise: SamplingNoise | None = None,
    overlap: float = 0.0,
) -> NDArray[np.bool_]:
    """Return which losses may be the best one: the set holds the truly best loss with 95 % probability.

    Losses are compared on their common seeds: what a seed does to all of them does not count. Shares are compared as
    logits and other positive values as logarithms, which makes variances alike.

    Args:
        errors: (losses, seeds), NaN where a seed is missing.
        lower_is_better: whether the smallest value is the best.
        noise: what the draw of the test items adds; None: the set holds for these test items alone.
        overlap: test bags for each training bag where seeds split the same bags, else 0; the variance of a mean is then
            1/n + overlap times that of its values (Nadeau and Bengio, Machine Learning 52, 2003, pp. 239-281).

    Returns:
        (losses,) booleans: False for a loss without any value; with one seed True for all others.

    Examples:
        Three seeds of about 1.6, 1.6, 2.6 and 10 %:

        >>> errors = [[0.015, 0.016, 0.017], [0.016, 0.017, 0.015], [0.025, 0.026, 0.028], [0.08, 0.13, 0.10]]
        >>> contenders(errors).tolist()
        [True, True, False, False]
    """
    given = np.asarray(errors, float)
    has_value = np.isfinite(given).any(axis=1)
    values, slopes = _transformed(given, noise)
    if noise is not None:
        scaled = noise.covariance * slopes[:, :, None, None] * slopes
        noise = replace(noise, covariance=scaled, unit=noise.unit * slopes)
    values = values if lower_is_better else -values
    variances, freedom = _moderated(values[has_value])
    rows, result = np.flatnonzero(has_value), np.array(has_value)
    if len(rows) < 2 or not freedom:
        return result
    of_seeds, of_items = dunnett(len(rows) - 1, freedom), dunnett(len(rows) - 1, math.inf)
    for a, i in enumerate(rows):
        for b, j in enumerate(rows):
            pair = compare_pair(values, int(i), int(j), noise)
            if pair.seeds and pair.difference > 0:
                training = max(of_seeds**2 * (variances[a] + variances[b]), of_items**2 * pair.own)
                width = math.sqrt(training * (1 / pair.seeds + overlap) + of_items**2 * pair.shared)
                result[i] &= pair.difference <= width
    return result


@cache
def dunnett(rivals: int, freedom: float) -> float:
    """Return the one-sided 95 % quantile of the largest of several differences from one mean, all of one variance.

    Each two of the `rivals` differences have a correlation of 1/2; `freedom` is that of the variance.
    """
    z, weights = special.roots_hermitenorm(61)
    middles = (np.arange(400) + 0.5) / 400
    s = np.ones(1) if math.isinf(freedom) else np.sqrt(special.chdtri(freedom, 1 - middles) / freedom)

    def excess(q: float) -> float:
        below = special.ndtr(math.sqrt(2) * q * s[:, None] + z) ** rivals
        return float((below @ weights).mean() / weights.sum()) - LEVEL

    return float(optimize.brentq(excess, 0.0, 200.0))


def _transformed(values: Floats, noise: SamplingNoise | None) -> tuple[Floats, Floats]:
    """Return the values on the scale of the comparison, and the slope of the scale there; zeros are moved off zero."""
    if (values < 0).any():
        return values, np.ones_like(values)
    positive = values[values > 0]
    least = float(positive.min()) / 2 if positive.size else 0.5
    if (values > 1).any():
        moved = np.maximum(values, least)
        return np.log(moved), 1 / moved
    below_one = 1 - values[values < 1]
    moved = np.clip(values, least, 1 - (float(below_one.min()) / 2 if below_one.size else 0.5))
    if noise is not None:  # half an item wrong and half an item right, as for the logit of a binomial share
        items = np.where(noise.items > 0, noise.items, np.inf)
        moved = np.where(np.isfinite(items), (values + 0.5 / items) / (1 + 1 / items), moved)
    return special.logit(moved), 1 / (moved * (1 - moved))


def _moderated(values: Floats) -> tuple[Floats, float]:
    """Return the variance of each loss between seeds, moderated, and its degrees of freedom; 0 for one seed."""
    losses = len(values)
    with np.errstate(invalid="ignore"):
        left = values - np.nanmean(values, axis=1, keepdims=True)
        left = left - np.nansum(left, axis=0) / np.maximum(np.isfinite(left).sum(axis=0), 1)
        left = left - np.nanmean(left, axis=1, keepdims=True)
    own_freedom = np.isfinite(values).sum(axis=1) - 1
    known = own_freedom > 0
    if losses < 2 or not known.any():
        return np.zeros(losses), 0.0
    squares = np.nansum(left**2, axis=1) * losses / (losses - 1)  # the seed effects took one loss's share
    own = squares[known] / own_freedom[known]
    floor = 1e-5 * float(np.median(own[own > 0])) if (own > 0).any() else 1e-24
    own, d = np.maximum(own, floor), own_freedom[known]
    pooled = float(np.average(own, weights=d))
    if len(own) < 3:  # of two losses the residuals are the same
        return np.full(losses, max(pooled, float(own.max()))), float(d.max())
    logs = np.log(own) - special.digamma(d / 2) + np.log(d / 2)
    spread = float(logs.var(ddof=1) - special.zeta(2, d / 2).mean())  # beyond that of variances of so few seeds
    prior = 2 * optimize.brentq(lambda y: float(special.zeta(2, y)) - spread, 1e-4, 1e4) if spread > 1e-3 else math.inf
    typical = math.exp(logs.mean() + special.digamma(prior / 2) - math.log(prior / 2)) if prior < math.inf else pooled
    moderated = np.full(losses, typical)
    if prior < math.inf:
        moderated[known] = np.maximum(typical, (prior * typical + d * own) / (prior + d))
    moderated[known] = np.maximum(moderated[known], own)
    most = int(d.max())
    return moderated, float(min(math.floor(prior + most), (losses - 1) * most)) if prior < 1e4 else (losses - 1) * most
