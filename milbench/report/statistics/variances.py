"""How much each loss varies between seeds, from few seeds of many losses.

Three seeds show the variance of one loss badly, but the typical variance of many losses well. So
each variance is moderated: it is moved towards a prior that is estimated from the variances of all
losses (G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004,
doi 10.2202/1544-6115.1027).

A hopeless loss that varies wildly must not spoil the prior. The middle and the width of the prior
are therefore the median of the log variances and their median absolute deviation. Also, the further
the variance of a loss is above the prior, the less this loss is moved towards it. Both ideas are
from B. Phipson, S. Lee, I. J. Majewski, W. S. Alexander and G. K. Smyth, "Robust hyperparameter
estimation protects against hypervariable genes and improves power to detect differential
expression", Annals of Applied Statistics 10, 2016, pp. 946-963.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from milbench.report.statistics.sampling import Floats

EFFICIENCY_OF_MEDIAN = 2 / 3
"""The median of n values is known as well as the mean of this share of them.

For normal values the share is 2 / pi.
"""

_SMALLEST = 1e-5
"""The smallest variance of a loss, as a share of the median one: equal values are luck."""

_NO_VARIANCE = 1e-24
"""The variance of every loss if no loss varies at all."""

_ROUNDS = 5
"""How often means and medians are subtracted in turn if seeds are missing."""


@dataclass(frozen=True, slots=True, eq=False)
class Variances:
    """The variance of each of m losses between seeds, and how well it is known."""

    values: Floats
    """(m,), the moderated variances, none below the loss's own variance; nan: not known."""
    own_freedom: Floats
    """(m,), the degrees of freedom of a loss's own variance."""
    prior: float
    """The degrees of freedom that the prior adds."""
    trust: Floats
    """(m,), the share of `prior` that each loss gets: 1 unless it varies more than is typical."""

    def freedom(self, own_freedom: float | None = None) -> Floats:
        """Return the degrees of freedom of each loss, (m,).

        `own_freedom` takes the place of the degrees of freedom of the losses' own variances.
        """
        of_losses = self.own_freedom
        if own_freedom is not None:
            of_losses = np.full_like(self.own_freedom, own_freedom)
        return np.asarray(of_losses + self.trust * self._added(of_losses))

    def typical_freedom(self, own_freedom: float | None = None) -> float:
        """Return the degrees of freedom of a loss with the typical variance.

        `own_freedom` takes the place of the degrees of freedom of the loss's own variance.
        """
        of_loss = np.median(self.own_freedom) if own_freedom is None else own_freedom
        return float(of_loss + self._added(of_loss))

    def _added(self, own_freedom: Floats | float) -> Floats:
        """Return the degrees of freedom that the prior adds to those of a loss's own variance."""
        # The prior is a median over the other losses, and cannot be known better than this median.
        others = len(self.own_freedom) - 1
        losses_worth = max(EFFICIENCY_OF_MEDIAN * others - 1, 0.0)
        return np.minimum(self.prior, losses_worth * np.asarray(own_freedom))


def moderated(values: Floats) -> Variances:
    """Return the moderated variances of losses between seeds.

    `values` are (losses, seeds), NaN where there is no value. The effect of a seed on all losses is
    no part of the variances.
    """
    squares, own_freedom = _squares(values)
    is_known = own_freedom > 0
    if not is_known.any():
        nothing = np.full(len(values), np.nan)
        return Variances(nothing, own_freedom, 0.0, np.zeros(len(values)))
    own, freedom = _own_variances(squares, own_freedom)
    if is_known.sum() < 3:
        # Without the effect of seeds, two losses have the same residuals up to the sign, and so the
        # same variance. A prior cannot be estimated from this.
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

    A loss without any degrees of freedom gets the largest variance and the smallest degrees of
    freedom of all other losses.
    """
    is_known = freedom > 0
    own = np.divide(squares, freedom, out=np.zeros_like(squares), where=is_known)
    varies = own > 0
    least = _SMALLEST * float(np.median(own[varies])) if varies.any() else _NO_VARIANCE
    own = np.maximum(own, least)
    own[~is_known] = own[is_known].max()
    return own, np.where(is_known, freedom, freedom[is_known].min())


def _squares(values: Floats) -> tuple[Floats, Floats]:
    """Return the sum of squared residuals of each loss, and its degrees of freedom.

    Residuals are values less the mean of the loss and less the effect of the seed on all losses.
    """
    left = _shared_seeds(values)
    present = np.isfinite(left)
    losses_of_seed = present.sum(axis=0)
    has_values = present.any(axis=1)
    # With missing seeds, subtracting medians changes the means of losses, and the other way round.
    rounds = 1 if present.all() else _ROUNDS
    for _ in range(rounds):
        left[has_values] -= np.nanmean(left[has_values], axis=1, keepdims=True)
        left -= _medians(left, losses_of_seed)
    left[has_values] -= np.nanmean(left[has_values], axis=1, keepdims=True)
    # Subtracting the effect of a seed makes residuals smaller, as each loss is part of this effect.
    given_back = losses_of_seed / (losses_of_seed - 1)
    squares = np.nansum(left**2 * given_back, axis=1)
    freedom = np.maximum(present.sum(axis=1) - 1.0, 0.0)
    return squares, freedom


def _shared_seeds(values: Floats) -> Floats:
    """Return the values that show variances, with NaN in place of others and without empty seeds.

    A value shows how much a loss varies beyond the effect of the seed on all losses if the seed has
    several losses and the loss several seeds. Only values that show variances count in this.
    """
    shared = np.isfinite(values)
    # Removing a value may leave another one alone, so that this is repeated.
    for _ in values:
        has_rival = shared.sum(axis=0) > 1
        has_seeds = shared.sum(axis=1, keepdims=True) > 1
        shared &= has_rival & has_seeds
    return np.where(shared, values, np.nan)[:, shared.any(axis=0)]


def _medians(values: Floats, losses_of_seed: NDArray[np.int64]) -> Floats:
    """Return the median over losses for each seed; several times faster than `np.nanmedian`."""
    # NaN is sorted to the end.
    ordered = np.sort(values, axis=0)
    seeds = np.arange(len(losses_of_seed))
    lower = ordered[(losses_of_seed - 1) // 2, seeds]
    upper = ordered[losses_of_seed // 2, seeds]
    return np.asarray((lower + upper) / 2)


def _prior(own: Floats, freedom: Floats) -> tuple[float, float]:
    """Return the typical variance of three losses or more, and the degrees of freedom of the prior.

    The prior is a scaled inverse chi-squared distribution of true variances with d degrees of
    freedom. The logarithms of sample variances with f degrees of freedom then have the variance
    trigamma(f / 2) + trigamma(d / 2). This equation is solved for d. trigamma(x) is Hurwitz' zeta
    function zeta(2, x).
    """
    # The distribution of the logarithms if all losses have the same true variance.
    by_chance = [_log_variance(int(of_loss)) for of_loss in freedom]
    middles = np.array([middle for middle, _ in by_chance])
    deviations = np.array([deviation for _, deviation in by_chance])
    logs = np.log(own) - middles
    middle_of_all = float(np.median(logs))
    # The median absolute deviation of few values is too small.
    correction = len(own) / (len(own) - 1)
    ratio = float(np.median(np.abs(logs - middle_of_all) / deviations)) * correction
    # The variance of the logarithms beyond the one that comes from few seeds.
    spread = float(special.zeta(2, np.median(freedom) / 2)) * (ratio**2 - 1)
    if spread < 1e-3:
        return math.exp(middle_of_all), math.inf

    def excess(half: float) -> float:
        return float(special.zeta(2, half)) - spread

    prior = 2 * float(optimize.brentq(excess, 1e-4, 1e4))
    # The scale of the prior, from its median.
    typical = math.exp(middle_of_all) * float(special.chdtri(prior, 0.5)) / prior
    return typical, prior


@cache
def _log_variance(freedom: int) -> tuple[float, float]:
    """Return the median and the median absolute deviation of the logarithm of a sample variance.

    The true variance is 1.
    """
    middle = math.log(float(special.chdtri(freedom, 0.5)) / freedom)

    def excess(deviation: float) -> float:
        low = special.chdtr(freedom, freedom * np.exp(middle - deviation))
        high = special.chdtr(freedom, freedom * np.exp(middle + deviation))
        return float(high - low) - 0.5

    return middle, float(optimize.brentq(excess, 1e-9, 50))
