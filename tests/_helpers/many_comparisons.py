"""The contenders of thousands of comparisons at once: the rule of `milbench.report.statistics`, written once more.

It knows no missing seeds, no test items and no overlap, and is some hundred times as fast. A test holds the two against
each other, so that what is counted of this one holds for the other.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from milbench.report.statistics.pairs import dunnett

Floats = NDArray[np.float64]
_HALVES = np.geomspace(1e-4, 1e4, 20_000)
_TRIGAMMA = special.zeta(2, _HALVES)


def many_contenders(values: Floats) -> NDArray[np.bool_]:
    """Return which losses may be the best, (draws, losses), by values on the scale of the comparison, small is good.

    Args:
        values: (draws, losses, seeds).
    """
    variances, freedom, usual = _moderated(values)
    rivals, means = values.shape[1] - 1, values.mean(axis=2)
    steps, where = np.unique(np.floor(10 * usual) / 10, return_inverse=True)
    level = np.array([stats.t.sf(dunnett(rivals, float(f)), f) for f in steps])[where]
    result = np.ones(means.shape, bool)
    for i in range(rivals + 1):
        both = variances[:, [i]] + variances
        shared = both / (variances[:, [i]] / freedom[:, [i]] + variances / freedom)
        width = -special.stdtrit(shared, level[:, None]) * np.sqrt(both / values.shape[2])
        result[:, i] = (means[:, [i]] - means <= width).all(axis=1)
    return result


def _moderated(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return variances and degrees of freedom, (draws, losses), and the usual degrees of freedom, (draws,)."""
    _, losses, seeds = values.shape
    d = seeds - 1
    left = values - values.mean(axis=2, keepdims=True)
    left = left - np.median(left, axis=1, keepdims=True)
    own = left.var(axis=2, ddof=1) * losses / (losses - 1)
    if losses == 2:
        return own, np.full(own.shape, float(d)), np.full(len(own), float(d))
    positive = np.where(own > 0, own, np.nan)  # the middle one of three losses takes the seed effects along
    own = np.maximum(own, 1e-5 * np.nanmedian(positive, axis=1, keepdims=True))
    logs = np.log(own)
    place = np.median(logs, axis=1)
    deviation = np.median(np.abs(logs - place[:, None]), axis=1) * losses / (losses - 1)
    spread = special.polygamma(1, d / 2) * ((deviation / _typical_deviation(d)) ** 2 - 1)
    prior = 2 * np.exp(np.interp(-np.log(np.maximum(spread, 1e-3)), -np.log(_TRIGAMMA), np.log(_HALVES)))
    wide = spread >= 1e-3
    typical = np.exp(place) * d / stats.chi2.median(d) * np.where(wide, stats.chi2.median(prior) / prior, 1)
    posterior = (prior[:, None] * typical[:, None] + d * own) / (prior[:, None] + d)
    posterior = np.where(wide[:, None], posterior, typical[:, None])
    added = np.minimum(np.where(wide, prior, np.inf), (2 / 3 * (losses - 1) - 1) * d)
    freedom = d + np.minimum(1, typical[:, None] / own) * added[:, None]
    return np.maximum(posterior, own), freedom, d + added


def _typical_deviation(d: int) -> float:
    """Return the median absolute deviation of the logarithm of a sample variance, from a fine grid of its quantiles."""
    quantiles = np.log(stats.chi2.ppf((np.arange(100_000) + 0.5) / 100_000, d))
    return float(np.median(np.abs(quantiles - math.log(stats.chi2.median(d)))))
