"""How much each loss varies between seeds, from few seeds of many losses.

Three seeds show the variance of one loss badly, and that of many losses well. Each variance is
therefore moderated towards a prior that is estimated from all of them (G. K. Smyth, Statistical
Applications in Genetics and Molecular Biology 3, 2004, doi 10.2202/1544-6115.1027). A hopeless loss
that varies wildly must not spoil the prior, so that its place and width come from the median of the
log variances and from their median absolute deviation, and it informs a loss the less, the further
this loss varies above it. The idea of both is that of B. Phipson, S. Lee, I. J. Majewski, W. S.
Alexander and G. K. Smyth, "Robust hyperparameter estimation protects against hypervariable genes
and improves power to detect differential expression", Annals of Applied Statistics 10, 2016, pp.
946-963.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from milbench.report.statistics.sampling import Floats

EFFICIENCY_OF_MEDIAN = 2 / 3
"""The median of many values is known as well as the mean of so many of them (2 / pi if they are normal)."""

_SMALLEST = 1e-5
"""No variance is taken to be smaller than this share of the median one: equal values are luck."""

_NO_VARIANCE = 1e-24
"""What a variance counts as where no loss varies at all."""

_ROUNDS = 5
"""How often means and medians are taken away in turn where seeds are missing."""


@dataclass(frozen=True, slots=True, eq=False)
class Variances:
    """The variance of each of m losses between seeds, and how well it is known."""

    values: Floats
    """(m,), moderated, never below a loss's own; nan where nothing is known."""
    own_freedom: Floats
    """(m,), the degrees of freedom of a loss's own variance."""
    prior: float
    """The degrees of freedom that the prior adds."""
    trust: Floats
    """(m,), the share of these that a loss gets: 1 unless it varies more than is typical."""

    def freedom(self, own_freedom: float | None = None) -> Floats:
        """Return the degrees of freedom of each loss, (m,), or those with so many of its own."""
        of_losses = self.own_freedom
        if own_freedom is not None:
            of_losses = np.full_like(self.own_freedom, own_freedom)
        return np.asarray(of_losses + self.trust * self._added(of_losses))

    def typical_freedom(self, own_freedom: float | None = None) -> float:
        """Return the degrees of freedom of a loss with the typical variance, or those with so many of its own."""
        of_loss = np.median(self.own_freedom) if own_freedom is None else own_freedom
        return float(of_loss + self._added(of_loss))

    def _added(self, own_freedom: Floats | float) -> Floats:
        """Return the degrees of freedom that the prior adds to so many of a loss's own."""
        # The prior cannot be known better than the median of the other losses, which is as good as
        # the mean of some.
        others = len(self.own_freedom) - 1
        losses_worth = max(EFFICIENCY_OF_MEDIAN * others - 1, 0.0)
        return np.minimum(self.prior, losses_worth * np.asarray(own_freedom))


def moderated(values: Floats) -> Variances:
    """Return the variances of (losses, seeds) values, NaN where there is none, without what a seed does to all."""
    squares, own_freedom = _squares(values)
    is_known = own_freedom > 0
    if not is_known.any():
        nothing = np.full(len(values), np.nan)
        return Variances(nothing, own_freedom, 0.0, np.zeros(len(values)))
    own, freedom = _own_variances(squares, own_freedom)
    if is_known.sum() < 3:
        # Of two losses the residuals are the same, and two variances show no prior.
        return Variances(own, freedom, 0.0, np.zeros_like(own))
    typical, prior = _prior(own[is_known], freedom[is_known])
    if prior == math.inf:
        posterior = np.full_like(own, typical)
    else:
        posterior = (prior * typical + freedom * own) / (prior + freedom)
    trust = np.minimum(1, typical / own)
    return Variances(np.maximum(posterior, own), freedom, prior, trust)


def _own_variances(squares: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Return the own variance of each loss and its degrees of freedom, from sums of squares.

    A loss of which nothing is known counts as one that varies as much as any, and is known as badly
    as any.
    """
    is_known = freedom > 0
    own = np.divide(squares, freedom, out=np.zeros_like(squares), where=is_known)
    varies = own > 0
    least = _SMALLEST * float(np.median(own[varies])) if varies.any() else _NO_VARIANCE
    own = np.maximum(own, least)
    own[~is_known] = own[is_known].max()
    return own, np.where(is_known, freedom, freedom[is_known].min())


def _squares(values: Floats) -> tuple[Floats, Floats]:
    """Return the sums of squares of each loss, and their degrees of freedom.

    They are of what is left when the mean of each loss and what a seed does to all losses is taken
    away.
    """
    left = _shared_seeds(values)
    present = np.isfinite(left)
    losses_of_seed = present.sum(axis=0)
    has_values = present.any(axis=1)
    # With missing seeds, means and medians wait for each other.
    rounds = 1 if present.all() else _ROUNDS
    for _ in range(rounds):
        left[has_values] -= np.nanmean(left[has_values], axis=1, keepdims=True)
        left -= _medians(left, losses_of_seed)
    left[has_values] -= np.nanmean(left[has_values], axis=1, keepdims=True)
    # The seed effects took one loss's share of what varies.
    given_back = losses_of_seed / (losses_of_seed - 1)
    squares = np.nansum(left**2 * given_back, axis=1)
    freedom = np.maximum(present.sum(axis=1) - 1.0, 0.0)
    return squares, freedom


def _shared_seeds(values: Floats) -> Floats:
    """Return the values by which variances are judged, NaN for others, without the seeds that have none.

    Only seeds of several losses with several such seeds show how much a loss varies beyond what a
    seed does to all.
    """
    shared = np.isfinite(values)
    # What is left out may leave others alone.
    for _ in values:
        has_rival = shared.sum(axis=0) > 1
        has_seeds = shared.sum(axis=1, keepdims=True) > 1
        shared &= has_rival & has_seeds
    return np.where(shared, values, np.nan)[:, shared.any(axis=0)]


def _medians(values: Floats, losses_of_seed: NDArray[np.int64]) -> Floats:
    """Return the median over losses of each seed; several times faster than `np.nanmedian`."""
    # NaN comes last.
    ordered = np.sort(values, axis=0)
    seeds = np.arange(len(losses_of_seed))
    lower = ordered[(losses_of_seed - 1) // 2, seeds]
    upper = ordered[losses_of_seed // 2, seeds]
    return np.asarray((lower + upper) / 2)


def _prior(own: Floats, freedom: Floats) -> tuple[float, float]:
    """Return the typical variance of three losses or more, and the degrees of freedom with which it informs one.

    If the true variances are those of a scaled inverse chi-squared distribution with d degrees of
    freedom, the logarithms of sample variances with f of their own vary by trigamma(f / 2) +
    trigamma(d / 2): d is what makes this so. The trigamma function is Hurwitz' zeta function of 2.
    """
    # What is expected of the logarithms if all losses have the same true variance.
    by_chance = [_log_variance(int(of_loss)) for of_loss in freedom]
    middles = np.array([middle for middle, _ in by_chance])
    deviations = np.array([deviation for _, deviation in by_chance])
    logs = np.log(own) - middles
    middle_of_all = float(np.median(logs))
    # The median absolute deviation of few values is too small.
    correction = len(own) / (len(own) - 1)
    ratio = float(np.median(np.abs(logs - middle_of_all) / deviations)) * correction
    # What is beyond the variance that logarithms of variances have with so few seeds.
    spread = float(special.zeta(2, np.median(freedom) / 2)) * (ratio**2 - 1)
    if spread < 1e-3:
        return math.exp(middle_of_all), math.inf

    def excess(half: float) -> float:
        return float(special.zeta(2, half)) - spread

    prior = 2 * float(optimize.brentq(excess, 1e-4, 1e4))
    # What was found is the median of such a distribution; this is its scale.
    typical = math.exp(middle_of_all) * float(special.chdtri(prior, 0.5)) / prior
    return typical, prior


@cache
def _log_variance(freedom: int) -> tuple[float, float]:
    """Return the median of the logarithm of a sample variance of mean 1, and its median absolute deviation."""
    middle = math.log(float(special.chdtri(freedom, 0.5)) / freedom)

    def excess(deviation: float) -> float:
        low = special.chdtr(freedom, freedom * np.exp(middle - deviation))
        high = special.chdtr(freedom, freedom * np.exp(middle + deviation))
        return float(high - low) - 0.5

    return middle, float(optimize.brentq(excess, 1e-9, 50))
