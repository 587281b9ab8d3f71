"""The differences of every two losses, and the widths that multiple comparisons with the best give them.

Shares are compared as logits, other positive values as logarithms.

A loss may look worse than its rival by

    sqrt( max(t^2 v, z^2 own) (1/n + r)  +  z^2 shared  +  u^2 search )

and still be the best, as in `differences`, where n, r, `own` and `shared` are explained (in code r
is `overlap`). `search` is what the choice of settings adds, see `selection`. v is the sum of the
moderated variances of both, and z Dunnett's quantile for the number of rivals. t and u are
Student's quantiles of the same level of one comparison: Dunnett's for losses that vary as most do,
and larger ones where a variance is known less well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from scipy import optimize, special

from milbench.contracts.metric_info import Metric
from milbench.report.statistics.differences import LEVEL, item_parts
from milbench.report.statistics.sampling import Floats, SamplingNoise
from milbench.report.statistics.selection import Search, SearchVariances, search_variances
from milbench.report.statistics.variances import Variances, moderated

POWER = 0.8

Scale = Literal["logit", "log", ""]
"""The scale on which values are compared: logits, logarithms, or values as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Values of losses (losses, seeds) on the scale of the comparison, the smaller the better."""

    values: Floats
    noise: SamplingNoise | None
    """Of `values`."""
    scale: Scale
    sign: int
    """-1 where the larger value of the metric is the better."""

    def metric(self, values: Floats) -> Floats:
        """Return values of this scale as values of the metric, with the sign that makes the smaller the better."""
        signed = self.sign * values
        if self.scale == "logit":
            back = special.expit(signed)
        elif self.scale == "log":
            with np.errstate(over="ignore"):
                back = np.exp(signed)
        else:
            back = signed
        return np.asarray(self.sign * back)


def put_on_scale(
    values: Floats,
    lower_is_better: bool,
    noise: SamplingNoise | None,
    scale: Scale | None = None,
) -> Scaled:
    """Return values on the scale that makes their variances alike; zeros are moved off zero, and ones off one.

    Without a `scale` it is the one that the values allow. Whoever knows the metric should say
    which, see `scale_of`: a log-likelihood below 1 looks like a share. Values that a scale does not
    allow stay as they are.
    """
    chosen = _choose_scale(values, scale)
    if chosen == "logit":
        moved = _moved_shares(values, noise)
        slopes = 1 / (moved * (1 - moved))
        on_scale = special.logit(moved)
    elif chosen == "log":
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
    return Scaled(sign * on_scale, noise, chosen, sign)


def searches_on_scale(
    searches: Sequence[Search | None], errors: Floats, scaled: Scaled
) -> SearchVariances:
    """Return what the choice of settings adds, on the scale of the comparison of `errors` in the metric's unit."""
    on_scale: list[Search | None] = []
    for search in searches:
        if search is None:
            on_scale.append(None)
        else:
            test = _on_scale(np.asarray(search.test, float), errors, scaled.scale)
            on_scale.append(replace(search, test=test))
    return search_variances(on_scale)


def scale_of(metric: Metric) -> Scale:
    """Return the scale of a metric: logits for shares, which areas below curves are as well, else logarithms."""
    return "logit" if metric.is_share else "log"


def _on_scale(values: Floats, errors: Floats, scale: Scale) -> Floats:
    """Return values of the metric on the scale on which `errors` are compared."""
    # A search may find smaller values than any of the comparison, and these must not look alike.
    together = np.concatenate([errors.ravel(), values.ravel()])
    if scale == "logit":
        return np.asarray(special.logit(_clipped_shares(values, together)))
    if scale == "log":
        return np.log(np.maximum(values, _least_above_zero(together) / 2))
    return values


def _choose_scale(values: Floats, wanted: Scale | None) -> Scale:
    """Return the scale on which values are compared: the wanted one where it has a place for all of them."""
    is_any_negative = bool((values < 0).any())
    is_any_above_one = bool((values > 1).any())
    if wanted == "" or is_any_negative:
        return ""
    if wanted == "logit" and is_any_above_one:
        return ""
    if wanted is not None:
        return wanted
    return "log" if is_any_above_one else "logit"


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
    level: float = LEVEL
    """The probability with which the best loss is in the set."""

    @property
    def difference(self) -> Floats:
        """The first less the second over their common seeds, (m, m)."""
        return self.means - self.means.T

    def widths(self) -> Floats:
        """Return by how much the first loss may look worse than the second and still be the best, (m, m)."""
        quantiles = self._quantiles(self.variances.freedom(), self.variances.typical_freedom())
        losses = len(self.means)
        widths = np.zeros((losses, losses))
        for first in range(losses):
            for second in range(first):
                seeds = max(int(self.seeds[first, second]), 1)
                width = self._width(first, second, seeds, quantiles)
                widths[first, second] = width
                widths[second, first] = width
        return widths

    def separate(self, first: int, second: int, seeds: int) -> bool:
        """Return whether so many seeds of each loss leave out the worse of two losses with the probability POWER."""
        own_freedom = seeds - 1
        quantiles = self._quantiles(
            self.variances.freedom(own_freedom), self.variances.typical_freedom(own_freedom)
        )
        needed = self._needed(first, second, seeds, quantiles)
        return bool(abs(self.difference[first, second]) >= needed)

    def shown_difference(self, first: int, second: int) -> float:
        """Return which true difference of two losses would leave out the worse one with the probability POWER.

        That is on the scale of the comparison, with the seeds that both have; nan if they share
        none.
        """
        seeds = int(self.seeds[first, second])
        if not seeds:
            return math.nan
        quantiles = self._quantiles(self.variances.freedom(), self.variances.typical_freedom())
        return self._needed(first, second, seeds, quantiles)

    def _needed(self, first: int, second: int, seeds: int, quantiles: _Quantiles) -> float:
        """Return the true difference that is found larger than the width with the probability POWER."""
        width = self._width(first, second, seeds, quantiles)
        v = self.variances.values
        of_seeds = max(v[first] + v[second], self.own[first, second])
        of_mean = (
            of_seeds * (1 / seeds + self.overlap)
            + self.shared[first, second]
            + self.search.of_pair(first, second)
        )
        return width + float(special.ndtri(POWER)) * math.sqrt(of_mean)

    def _width(self, first: int, second: int, seeds: int, quantiles: _Quantiles) -> float:
        """Return the width for two losses with so many common seeds."""
        v_first = float(self.variances.values[first])
        v_second = float(self.variances.values[second])
        v = v_first + v_second
        # The degrees of freedom of both, weighted by their variances. Satterthwaite's, V^2 /
        # sum(v^2 / f), are more. They are right for independent estimates; two that are moderated
        # by one prior err together.
        by_freedom = v_first / quantiles.freedom[first] + v_second / quantiles.freedom[second]
        t = -float(special.stdtrit(v / by_freedom, quantiles.beyond_t))
        z = quantiles.z
        # Seeds that vary less than their test items demand were lucky.
        of_one_seed = max(t**2 * v, z**2 * float(self.own[first, second]))
        of_seeds = of_one_seed * (1 / seeds + self.overlap)
        of_items = z**2 * float(self.shared[first, second])
        return math.sqrt(of_seeds + of_items + self._of_search(first, second, quantiles))

    def _of_search(self, first: int, second: int, quantiles: _Quantiles) -> float:
        """Return what the choice of settings adds to the square of a width."""
        search = self.search.of_pair(first, second)
        if search == 0:
            return 0.0
        freedom = self.search.freedom_of_pair(first, second)
        u = -float(special.stdtrit(freedom, quantiles.beyond_u))
        return u**2 * search

    def _quantiles(self, freedom: Floats, typical_freedom: float) -> _Quantiles:
        """Return the quantiles for losses with such degrees of freedom, (m,); typical ones set the level."""
        rivals = len(self.means) - 1
        z = dunnett(rivals, math.inf, self.level)
        # Dunnett's quantile takes long and is kept: rounded, few different ones are asked for.
        rounded = math.floor(10 * typical_freedom) / 10
        beyond_t = float(special.stdtr(rounded, -dunnett(rivals, rounded, self.level)))
        beyond_u = 0.0
        if math.isfinite(self.search.typical_freedom):
            u = dunnett(rivals, self.search.typical_freedom, self.level)
            beyond_u = float(special.stdtr(self.search.typical_freedom, -u))
        return _Quantiles(z, freedom, beyond_t, beyond_u)


@dataclass(frozen=True, slots=True, eq=False)
class _Quantiles:
    """The quantiles by which standard errors become widths."""

    z: float
    """Dunnett's quantile where variances are known."""
    freedom: Floats
    """The degrees of freedom of the variance of each loss between seeds, (m,)."""
    beyond_t: float
    """The probability beyond t in one comparison."""
    beyond_u: float
    """The probability beyond u, the quantile of what the choice of settings adds, in one comparison."""


def compare_all(
    scaled: Scaled, overlap: float, search: SearchVariances, level: float = LEVEL
) -> Pairs:
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
                own[first, second] = parts.own
                own[second, first] = parts.own
                shared[first, second] = parts.shared
                shared[second, first] = parts.shared
    return Pairs(means, seeds, own, shared, moderated(values), overlap, search, level)


def common_means(values: Floats) -> tuple[Floats, Floats]:
    """Return the means of each loss over the seeds that another one has as well, and their number, both (m, m)."""
    present = np.isfinite(values).astype(float)
    seeds = present @ present.T
    sums = np.nan_to_num(values) @ present.T
    means = np.divide(sums, seeds, out=np.full_like(sums, np.nan), where=seeds > 0)
    return means, seeds


@cache
def dunnett(rivals: int, freedom: float, level: float = LEVEL) -> float:
    """Return the one-sided quantile of the largest of several differences from one mean, all of one variance.

    Each two of the `rivals` differences have a correlation of 1/2; `freedom` is that of the
    variance. With the probability `level` none is above the quantile.
    """
    # The common mean is integrated over by Gauss and Hermite, the standard deviation by the middles
    # of 200 quantiles, or of more where fewer than ten of them would lie beyond the level.
    z, weights = special.roots_hermitenorm(31)
    if math.isinf(freedom):
        s = np.ones(1)
    else:
        parts = max(200, round(10 / (1 - level)))
        middles = (np.arange(parts) + 0.5) / parts
        s = np.sqrt(special.chdtri(freedom, 1 - middles) / freedom)

    def excess(q: float) -> float:
        # Given both, the rivals are independent.
        all_below = special.ndtr(math.sqrt(2) * q * s[:, None] + z) ** rivals
        return float((all_below @ weights).mean() / weights.sum()) - level

    highest = 200.0
    while excess(highest) < 0:
        highest *= 2
    return float(optimize.brentq(excess, 0.0, highest, xtol=1e-4))
