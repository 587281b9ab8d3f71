"""How much each loss varies between seeds, from few seeds of many losses.

Three seeds show the variance of one loss badly, and that of many losses well. Each variance is therefore moderated
towards a prior that is estimated from all of them (G. K. Smyth, Statistical Applications in Genetics and Molecular
Biology 3, 2004, doi 10.2202/1544-6115.1027). A hopeless loss that varies wildly must not spoil the prior, so that its
place and width come from the median of the log variances and from their median absolute deviation, and it informs a
loss the less, the further this loss varies above it. The idea of both is that of B. Phipson, S. Lee, I. J. Majewski,
W. S. Alexander and G. K. Smyth, "Robust hyperparameter estimation protects against hypervariable genes and improves
power to detect differential expression", Annals of Applied Statistics 10, 2016, pp. 946-963.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import optimize, special

from milbench.report.statistics.sampling import Floats

SHARE = (
    2 / 3
)  # the median of many values is known as well as the mean of so many of them (2 / pi if they are normal)


@dataclass(frozen=True, slots=True, eq=False)
class Variances:
    """The variance of each of m losses between seeds, and how well it is known."""

    values: Floats  # (m,), moderated, never below a loss's own; nan where nothing is known
    own: Floats  # (m,), the degrees of freedom of a loss's own variance
    prior: float  # those that the prior adds
    trust: (
        Floats  # (m,), the share of these that a loss gets: 1 unless it varies more than is typical
    )

    def freedom(self, own: Floats | float | None = None) -> Floats:
        """Return the degrees of freedom of each loss, (m,), or those with so many of its own."""
        d = self.own if own is None else np.full_like(self.own, own)
        return np.asarray(d + self.trust * self._added(d))

    def usual(self, own: float | None = None) -> float:
        """Return the degrees of freedom of a loss that varies as most do, or those with so many of its own."""
        d = np.median(self.own) if own is None else own
        return float(d + self._added(d))

    def _added(self, own: Floats | float) -> Floats:
        return np.minimum(self.prior, max(SHARE * (len(self.own) - 1) - 1, 0.0) * np.asarray(own))


def moderated(values: Floats) -> Variances:
    """Return the variances of (losses, seeds) values, NaN where there is none, without what a seed does to all."""
    squares, own_freedom = _squares(values)
    known = own_freedom > 0
    if not known.any():
        return Variances(np.full(len(values), np.nan), own_freedom, 0.0, np.zeros(len(values)))
    own = np.divide(squares, own_freedom, out=np.zeros_like(squares), where=known)
    own = np.maximum(own, 1e-5 * float(np.median(own[own > 0])) if (own > 0).any() else 1e-24)
    own[~known], d = own[known].max(), np.where(known, own_freedom, own_freedom[known].min())
    if known.sum() < 3:  # of two losses the residuals are the same, and two variances show no prior
        return Variances(own, d, 0.0, np.zeros_like(own))
    typical, prior = _prior(own[known], d[known])
    moderated = typical if prior == math.inf else (prior * typical + d * own) / (prior + d)
    return Variances(np.maximum(moderated, own), d, prior, np.minimum(1, typical / own))


def _squares(values: Floats) -> tuple[Floats, Floats]:
    """Return the sums of squares of each loss, and their degrees of freedom.

    Only seeds of several losses with several such seeds show how much a loss varies beyond what a seed does to all.
    """
    shared = np.isfinite(values)
    for _ in values:  # what is left out may leave others alone
        shared &= (shared.sum(axis=0) > 1) & (shared.sum(axis=1, keepdims=True) > 1)
    left = np.where(shared, values, np.nan)[:, shared.any(axis=0)]
    present = np.isfinite(left)
    losses, rows = present.sum(axis=0), present.any(axis=1)
    for _ in range(
        1 if present.all() else 5
    ):  # with missing seeds, means and medians wait for each other
        left[rows] -= np.nanmean(left[rows], axis=1, keepdims=True)
        ordered, seeds = np.sort(left, axis=0), np.arange(len(losses))  # NaN comes last
        left -= (ordered[(losses - 1) // 2, seeds] + ordered[losses // 2, seeds]) / 2
    left[rows] -= np.nanmean(left[rows], axis=1, keepdims=True)
    # the seed effects took one loss's share
    return np.nansum(left**2 * (losses / (losses - 1)), axis=1), np.maximum(
        present.sum(axis=1) - 1.0, 0.0
    )


def _prior(own: Floats, d: Floats) -> tuple[float, float]:
    """Return the typical variance of three losses or more, and the degrees of freedom with which it informs one."""
    middle, deviation = np.array([_log_variance(int(k)) for k in d]).T
    logs = np.log(own) - middle
    place = float(np.median(logs))
    few = len(own) / (len(own) - 1)  # the median absolute deviation of few values is too small
    ratio = float(np.median(np.abs(logs - place) / deviation)) * few
    spread = float(special.zeta(2, np.median(d) / 2)) * (
        ratio**2 - 1
    )  # beyond that of variances of so few seeds
    if spread < 1e-3:
        return math.exp(place), math.inf
    prior = 2 * float(optimize.brentq(lambda y: float(special.zeta(2, y)) - spread, 1e-4, 1e4))
    return math.exp(place) * float(special.chdtri(prior, 0.5)) / prior, prior


@cache
def _log_variance(freedom: int) -> tuple[float, float]:
    """Return the median of the logarithm of a sample variance of mean 1, and its median absolute deviation."""
    middle = math.log(float(special.chdtri(freedom, 0.5)) / freedom)

    def excess(a: float) -> float:
        low, high = special.chdtr(freedom, freedom * np.exp(middle + np.array([-a, a])))
        return float(high - low) - 0.5

    return middle, float(optimize.brentq(excess, 1e-9, 50))
