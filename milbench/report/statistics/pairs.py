"""The differences of every two losses, and how large they must be to exclude a loss as the best.

Shares are compared as logits, other positive values as logarithms.

A loss may look worse than its rival by the width

    sqrt( max(t^2 v, z^2 own) (1/n + r)  +  z^2 shared  +  u^2 search )

and still be the best. The symbols are:

- n, r, `own` and `shared` as in `differences`; r is `overlap` in code;
- `search`: the variance that the choice of settings adds, see `selection`;
- v: the sum of the variances of the two losses between seeds, moderated as in `variances`;
- z: Dunnett's quantile for the number of rivals, where variances are known;
- t and u: quantiles of one comparison by Student's distribution, for v and for `search`. Their
  level is that of Dunnett's quantile for losses that vary as most do. They are larger where a
  variance is known less well.
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
"""The probability with which a difference has to be shown, to count as one that shows."""

Scale = Literal["logit", "log", ""]
"""The scale on which values are compared: logits, logarithms, or values as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Values of losses on the scale of the comparison, with the sign that makes smaller better."""

    values: Floats
    """(losses, seeds)."""
    noise: SamplingNoise | None
    """The noise of `values` from test items."""
    scale: Scale
    sign: int
    """-1 if larger values of the metric are better, else 1."""

    def metric(self, values: Floats) -> Floats:
        """Return values of this scale in the unit of the metric; smaller ones are still better."""
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
    """Return values on the scale of the comparison, which makes their variances alike.

    Logits need values above 0 and below 1, and logarithms values above 0: values of 0 and 1 are
    moved a little. Values that the scale does not allow otherwise stay as they are.

    With None as `scale`, the values decide on it. A caller that knows the metric should give the
    scale, see `scale_of`: log-likelihoods below 1 look like shares.
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
        # Slopes are NaN at missing seeds.
        covariance = np.nan_to_num(covariance)
        noise = replace(noise, covariance=covariance, unit=noise.unit * slopes)
    sign = 1 if lower_is_better else -1
    return Scaled(sign * on_scale, noise, chosen, sign)


def searches_on_scale(
    searches: Sequence[Search | None], errors: Floats, scaled: Scaled
) -> SearchVariances:
    """Return what the choice of settings adds to variances, on the scale of the comparison.

    `errors` are the compared values in the unit of the metric, as are the test values of searches.
    """
    on_scale: list[Search | None] = []
    for search in searches:
        if search is None:
            on_scale.append(None)
        else:
            test = _on_scale(np.asarray(search.test, float), errors, scaled.scale)
            on_scale.append(replace(search, test=test))
    return search_variances(on_scale)


def scale_of(metric: Metric) -> Scale:
    """Return the scale of a metric: logits for shares and areas below curves, else logarithms."""
    return "logit" if metric.is_share else "log"


def _on_scale(values: Floats, errors: Floats, scale: Scale) -> Floats:
    """Return values of the metric on the scale on which `errors` are compared."""
    # Zeros are moved by the smallest value of all. The search counts too: its values may be smaller
    # than those of the comparison, and have to stay different from each other.
    together = np.concatenate([errors.ravel(), values.ravel()])
    if scale == "logit":
        return np.asarray(special.logit(_clipped_shares(values, together)))
    if scale == "log":
        return np.log(np.maximum(values, _least_above_zero(together) / 2))
    return values


def _choose_scale(values: Floats, wanted: Scale | None) -> Scale:
    """Return the wanted scale if it allows all values, or else one that does."""
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
    """Return shares, moved off 0 and 1, whose logits are infinite."""
    clipped = _clipped_shares(values, values)
    if noise is None:
        return clipped
    # For each value, half an item more is taken to be wrong, and half an item more right. That is
    # the usual correction for the logit of a binomial share.
    has_items = noise.items > 0
    items = np.where(has_items, noise.items, 1)
    return np.where(has_items, (values + 0.5 / items) / (1 + 1 / items), clipped)


def _clipped_shares(values: Floats, errors: Floats) -> Floats:
    """Return shares, clipped to values above 0 and below 1.

    The smallest share that is returned is half the smallest of `errors` above 0. The distance to 1
    is limited likewise.
    """
    least = min(_least_above_zero(errors), 0.5)
    rest = min(_least_above_zero(1 - errors), 0.5)
    return np.clip(values, least / 2, 1 - rest / 2)


def _least_above_zero(values: Floats) -> float:
    """Return the smallest value above zero, infinity if no value is."""
    return float(values[values > 0].min(initial=np.inf))


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """What decides between every two of m losses, on the scale of the comparison.

    Matrices are (m, m): the row is the first loss of a pair, the column the second.
    """

    means: Floats
    """The mean of the first loss over the seeds that both have, nan if they share none."""
    seeds: Floats
    """The number of seeds that both losses have."""
    own: Floats
    """The variance that test items give to the difference with a single seed alone."""
    shared: Floats
    """The variance that test items give to the differences with all seeds alike."""
    variances: Variances
    """The variances of the m losses between seeds."""
    overlap: float
    """If seeds split the same bags: the number of test bags for each training bag, else 0."""
    search: SearchVariances
    """What the choice of settings adds to the variances of means."""
    level: float = LEVEL
    """The probability with which the best loss is among those that may be the best."""

    @property
    def difference(self) -> Floats:
        """The mean of the first loss less that of the second over their common seeds, (m, m)."""
        return self.means - self.means.T

    def widths(self) -> Floats:
        """Return how much worse than the second the first may look and still be best, (m, m)."""
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
        """Return whether `seeds` seeds exclude the worse of two losses with the probability POWER.

        All losses would have this number of seeds.
        """
        own_freedom = seeds - 1
        quantiles = self._quantiles(
            self.variances.freedom(own_freedom), self.variances.typical_freedom(own_freedom)
        )
        needed = self._needed(first, second, seeds, quantiles)
        return bool(abs(self.difference[first, second]) >= needed)

    def shown_difference(self, first: int, second: int) -> float:
        """Return the true difference that would exclude the worse loss with the probability POWER.

        It is on the scale of the comparison, for the seeds that both losses have; nan if there are
        no such seeds.
        """
        seeds = int(self.seeds[first, second])
        if not seeds:
            return math.nan
        quantiles = self._quantiles(self.variances.freedom(), self.variances.typical_freedom())
        return self._needed(first, second, seeds, quantiles)

    def _needed(self, first: int, second: int, seeds: int, quantiles: _Quantiles) -> float:
        """Return the true difference that exceeds the width with the probability POWER."""
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
        """Return the width for two losses with a number of common seeds."""
        v_first = float(self.variances.values[first])
        v_second = float(self.variances.values[second])
        v = v_first + v_second
        # The degrees of freedom of v are a mean of those of both losses, weighted by variances.
        # Satterthwaite's formula gives more, but it is for independent estimates. These estimates
        # are moderated by one prior, and so err together.
        by_freedom = v_first / quantiles.freedom[first] + v_second / quantiles.freedom[second]
        t = -float(special.stdtrit(v / by_freedom, quantiles.beyond_t))
        z = quantiles.z
        # If seeds vary less than their test items alone would make them vary, that was luck.
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
        """Return the quantiles for losses with `freedom` degrees of freedom, (m,).

        The typical degrees of freedom set the level of one comparison.
        """
        rivals = len(self.means) - 1
        z = dunnett(rivals, math.inf, self.level)
        # Dunnett's quantile takes long to compute, so that results are cached. Rounded degrees of
        # freedom need fewer of them.
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
    """Dunnett's quantile for variances that are known exactly."""
    freedom: Floats
    """(m,), the degrees of freedom of the variance of each loss between seeds."""
    beyond_t: float
    """The probability of values above t in one comparison; t is for the variance between seeds."""
    beyond_u: float
    """The probability of values above u; u is for the variance from the choice of settings."""


def compare_all(
    scaled: Scaled, overlap: float, search: SearchVariances, level: float = LEVEL
) -> Pairs:
    """Return the differences of every two losses. Each loss must have a value."""
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
    """Return, for every two losses, the mean of the first over their common seeds.

    The second array has the numbers of these seeds. Both are (m, m).
    """
    present = np.isfinite(values).astype(float)
    seeds = present @ present.T
    sums = np.nan_to_num(values) @ present.T
    means = np.divide(sums, seeds, out=np.full_like(sums, np.nan), where=seeds > 0)
    return means, seeds


@cache
def dunnett(rivals: int, freedom: float, level: float = LEVEL) -> float:
    """Return the one-sided quantile of the largest of several differences from one mean.

    With the probability `level` none of the `rivals` differences is above the quantile. All have
    the same variance, which is known with `freedom` degrees of freedom, and every two of them have
    a correlation of 1/2.
    """
    # The integral over the common mean is computed by Gauss-Hermite quadrature. That over the
    # standard deviation is a mean over the middles of 200 equally probable intervals, or of more
    # for a level so high that fewer than ten of them would lie beyond it.
    z, weights = special.roots_hermitenorm(31)
    if math.isinf(freedom):
        s = np.ones(1)
    else:
        parts = max(200, round(10 / (1 - level)))
        middles = (np.arange(parts) + 0.5) / parts
        s = np.sqrt(special.chdtri(freedom, 1 - middles) / freedom)

    def excess(q: float) -> float:
        # For a given common mean and standard deviation, the rivals are independent.
        all_below = special.ndtr(math.sqrt(2) * q * s[:, None] + z) ** rivals
        return float((all_below @ weights).mean() / weights.sum()) - level

    highest = 200.0
    while excess(highest) < 0:
        highest *= 2
    return float(optimize.brentq(excess, 0.0, highest, xtol=1e-4))
