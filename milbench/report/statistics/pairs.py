"""The differences of every two losses, and the widths that multiple comparisons with the best give them.

Shares are compared as logits, other positive values as logarithms.

A loss may look worse than its rival by

    sqrt( max(t^2 V, z^2 own) (1/n + r)  +  z^2 shared  +  u^2 search )

and still be the best, as in `differences`, where n, r, `own` and `shared` are explained. `search` is what the choice of
settings adds, and u Dunnett's quantile for the degrees of freedom of that, see `selection`. V is the sum of the
moderated variances of both, and z Dunnett's quantile for the number of rivals. t is Student's quantile of the same
level of one comparison: Dunnett's for losses that vary as most do, and a larger one where a variance is known less
well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy import optimize, special

from milbench.report.statistics.differences import LEVEL, item_parts
from milbench.report.statistics.sampling import Floats, SamplingNoise
from milbench.report.statistics.selection import (
    Index,
    Search,
    SearchVariances,
    search_variances,
)
from milbench.report.statistics.variances import Variances, moderated

POWER = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Values of losses (losses, seeds) on the scale of the comparison, the smaller the better."""

    values: Floats
    noise: SamplingNoise | None
    """Of `values`."""
    kind: str
    """"logit", "log" or "" for values as they are."""
    sign: int
    """-1 where the larger value of the metric is the better."""

    def metric(self, values: Floats) -> Floats:
        """Return values of this scale as values of the metric, with the sign that makes the smaller the better."""
        signed = self.sign * values
        if self.kind == "logit":
            back = special.expit(signed)
        elif self.kind == "log":
            with np.errstate(over="ignore"):
                back = np.exp(signed)
        else:
            back = signed
        return np.asarray(self.sign * back)


def scaled(values: Floats, lower_is_better: bool, noise: SamplingNoise | None) -> Scaled:
    """Return values on the scale that makes their variances alike; zeros are moved off zero, and ones off one."""
    kind = _kind(values)
    if kind == "logit":
        moved = _moved_shares(values, noise)
        slopes = 1 / (moved * (1 - moved))
        on_scale = special.logit(moved)
    elif kind == "log":
        moved = np.maximum(values, _least_above_zero(values) / 2)
        slopes = 1 / moved
        on_scale = np.log(moved)
    else:
        slopes = np.ones_like(values)
        on_scale = values
    if noise is not None:
        covariance = noise.covariance * slopes[:, :, None, None] * slopes
        # There is no slope at missing seeds.
        covariance = np.nan_to_num(covariance)
        noise = replace(noise, covariance=covariance, unit=noise.unit * slopes)
    sign = 1 if lower_is_better else -1
    return Scaled(sign * on_scale, noise, kind, sign)


def searches_on_scale(
    searches: Sequence[Search | None], errors: Floats, scaled: Scaled
) -> SearchVariances:
    """Return what the choice of settings adds, on the scale of the comparison of `errors` in the metric's unit."""
    on_scale: list[Search | None] = []
    for search in searches:
        if search is None:
            on_scale.append(None)
        else:
            test = _on_scale(np.asarray(search.test, float), errors, scaled.kind)
            on_scale.append(replace(search, test=test))
    return search_variances(on_scale)


def _on_scale(values: Floats, errors: Floats, kind: str) -> Floats:
    """Return values of the metric on the scale on which `errors` are compared."""
    if kind == "logit":
        return np.asarray(special.logit(_clipped_shares(values, errors)))
    if kind == "log":
        return np.log(np.maximum(values, _least_above_zero(errors) / 2))
    return values


def _kind(values: Floats) -> str:
    """Return the scale on which values are compared, see `Scaled.kind`."""
    if (values < 0).any():
        return ""
    if (values > 1).any():
        return "log"
    return "logit"


def _moved_shares(values: Floats, noise: SamplingNoise | None) -> Floats:
    """Return shares, moved off zero and one, where the logit is infinite."""
    clipped = _clipped_shares(values, values)
    if noise is None:
        return clipped
    # Half an item wrong and half an item right more, as for the logit of a binomial share.
    has_items = noise.items > 0
    items = np.where(has_items, noise.items, 1)
    return np.where(has_items, (values + 0.5 / items) / (1 + 1 / items), clipped)


def _clipped_shares(values: Floats, errors: Floats) -> Floats:
    """Return shares that are no nearer to zero, or one, than half of the nearest of `errors` that is not there."""
    least = min(_least_above_zero(errors), 0.5)
    rest = min(_least_above_zero(1 - errors), 0.5)
    return np.clip(values, least / 2, 1 - rest / 2)


def _least_above_zero(values: Floats) -> float:
    """Return the smallest value above zero, infinity without one."""
    return float(values[values > 0].min(initial=np.inf))


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """What decides between every two of m losses, on the scale of the comparison: (m, m), first and second."""

    means: Floats
    """Of the first over the seeds that the second has as well, nan without one."""
    seeds: Floats
    """The number of these seeds."""
    own: Floats
    """The variance that test items give to the difference with one seed alone."""
    shared: Floats
    """The variance that test items give to the differences with all seeds."""
    variances: Variances
    """Of the m losses."""
    overlap: float
    """Test bags for each training bag where seeds split the same bags, else 0."""
    search: SearchVariances
    """What the choice of settings adds to the variances of means."""

    @property
    def difference(self) -> Floats:
        """The first less the second over their common seeds, (m, m)."""
        return self.means - self.means.T

    def widths(self) -> Floats:
        """Return by how much the first loss may look worse than the second and still be the best, (m, m)."""
        quantiles = self._quantiles(self.variances.freedom(), self.variances.usual())
        everyone = np.arange(len(self.means))
        first = everyone[:, None]
        second = everyone[None, :]
        return self._width(first, second, np.maximum(self.seeds, 1), quantiles)

    def separate(self, first: int, second: int, seeds: int) -> bool:
        """Return whether so many seeds of each loss leave out the worse of two losses with the probability POWER."""
        own_freedom = seeds - 1
        quantiles = self._quantiles(
            self.variances.freedom(own_freedom), self.variances.usual(own_freedom)
        )
        needed = self._needed(first, second, seeds, quantiles)
        return bool(abs(self.difference[first, second]) >= needed)

    def resolution(self, first: int, second: int) -> float:
        """Return which true difference of two losses would leave out the worse one with the probability POWER.

        That is with the seeds that both have; nan if they share none.
        """
        seeds = int(self.seeds[first, second])
        if not seeds:
            return math.nan
        quantiles = self._quantiles(self.variances.freedom(), self.variances.usual())
        return self._needed(first, second, seeds, quantiles)

    def _needed(self, first: int, second: int, seeds: int, quantiles: _Quantiles) -> float:
        """Return the true difference that is found larger than the width with the probability POWER."""
        width = float(self._width(first, second, seeds, quantiles))
        v = self.variances.values
        of_seeds = max(v[first] + v[second], self.own[first, second])
        of_mean = (
            of_seeds * (1 / seeds + self.overlap)
            + self.shared[first, second]
            + self.search.of_pair(first, second)
        )
        return width + float(special.ndtri(POWER)) * math.sqrt(of_mean)

    def _quantiles(self, freedom: Floats, usual: float) -> _Quantiles:
        """Return the quantiles for losses with such degrees of freedom, (m,), of which `usual` is typical."""
        rivals = len(self.means) - 1
        # Few different quantiles are computed.
        usual = math.floor(10 * usual) / 10
        level = float(special.stdtr(usual, -dunnett(rivals, usual)))
        of_search = dunnett(rivals, self.search.freedom)
        return _Quantiles(freedom, level, dunnett(rivals, math.inf), of_search)

    def _width(
        self, first: Index, second: Index, seeds: Floats | int, quantiles: _Quantiles
    ) -> Floats:
        """Return the width for two losses with so many common seeds, or for all that two indices broadcast to."""
        v_first = self.variances.values[first]
        v_second = self.variances.values[second]
        both = v_first + v_second
        # The degrees of freedom of a sum of two variances are those of Satterthwaite.
        by_freedom = v_first / quantiles.freedom[first] + v_second / quantiles.freedom[second]
        t = -special.stdtrit(both / by_freedom, quantiles.level)
        z = quantiles.z
        training = np.maximum(t**2 * both, z**2 * self.own[first, second])
        of_mean = (
            training * (1 / seeds + self.overlap)
            + z**2 * self.shared[first, second]
            + quantiles.of_search**2 * self.search.of_pair(first, second)
        )
        return np.asarray(np.sqrt(of_mean))


@dataclass(frozen=True, slots=True, eq=False)
class _Quantiles:
    """The quantiles by which standard errors become widths."""

    freedom: Floats
    """The degrees of freedom of the variance of each loss, (m,)."""
    level: float
    """The probability beyond t in one comparison."""
    z: float
    """Dunnett's quantile where variances are known."""
    of_search: float
    """Dunnett's quantile for what the choice of settings adds."""


def compare_all(scaled: Scaled, overlap: float, search: SearchVariances) -> Pairs:
    """Return the differences of every two losses, each of which has a value."""
    values = scaled.values
    means, seeds = common_means(values)
    own = np.zeros_like(means)
    shared = np.zeros_like(means)
    if scaled.noise is not None:
        present = np.isfinite(values)
        for first in range(len(values)):
            for second in range(first + 1, len(values)):
                common = present[first] & present[second]
                if not common.any():
                    continue
                parts = item_parts(scaled.noise, first, second, common)
                own[first, second] = own[second, first] = parts.own
                shared[first, second] = shared[second, first] = parts.shared
    return Pairs(means, seeds, own, shared, moderated(values), overlap, search)


def common_means(values: Floats) -> tuple[Floats, Floats]:
    """Return the means of each loss over the seeds that another one has as well, and their number, both (m, m)."""
    present = np.isfinite(values).astype(float)
    seeds = present @ present.T
    sums = np.nan_to_num(values) @ present.T
    means = np.divide(sums, seeds, out=np.full_like(sums, np.nan), where=seeds > 0)
    return means, seeds


@cache
def dunnett(rivals: int, freedom: float) -> float:
    """Return the one-sided 95 % quantile of the largest of several differences from one mean, all of one variance.

    Each two of the `rivals` differences have a correlation of 1/2; `freedom` is that of the variance.
    """
    # The common mean is integrated over by Gauss and Hermite, the standard deviation by the middles of 200 quantiles.
    z, weights = special.roots_hermitenorm(31)
    if math.isinf(freedom):
        s = np.ones(1)
    else:
        middles = (np.arange(200) + 0.5) / 200
        s = np.sqrt(special.chdtri(freedom, 1 - middles) / freedom)

    def excess(q: float) -> float:
        # Given both, the rivals are independent.
        all_below = special.ndtr(math.sqrt(2) * q * s[:, None] + z) ** rivals
        return float((all_below @ weights).mean() / weights.sum()) - LEVEL

    return float(optimize.brentq(excess, 0.0, 200.0, xtol=1e-4))
