"""The differences of every two losses, and the widths that multiple comparisons with the best give them.

Shares are compared as logits, other positive values as logarithms.

A loss may look worse than its rival by

    sqrt( max(t^2 V, z^2 own) (1/n + r)  +  z^2 shared )

and still be the best, as in `differences`, where n, r, `own` and `shared` are explained. V is the sum of the moderated
variances of both, and z Dunnett's quantile for the number of rivals. t is Student's quantile of the same level of one
comparison: Dunnett's for losses that vary as most do, and a larger one where a variance is known less well.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from milbench.report.statistics.differences import LEVEL, compare_pair
from milbench.report.statistics.sampling import Floats, SamplingNoise
from milbench.report.statistics.variances import Variances, moderated

POWER = 0.8
Index = int | NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Values of losses (losses, seeds) on the scale of the comparison, the smaller the better."""

    values: Floats
    noise: SamplingNoise | None  # of `values`
    kind: str  # "logit", "log" or "" for values as they are
    sign: int  # -1 where the larger value of the metric is the better

    def metric(self, values: Floats) -> Floats:
        """Return values of this scale as values of the metric, with the sign that makes the smaller the better."""
        signed = self.sign * values
        with np.errstate(over="ignore"):
            back = (
                special.expit(signed)
                if self.kind == "logit"
                else np.exp(signed)
                if self.kind == "log"
                else signed
            )
        return np.asarray(self.sign * back)


def scaled(values: Floats, lower_is_better: bool, noise: SamplingNoise | None) -> Scaled:
    """Return values on the scale that makes their variances alike; zeros are moved off zero, and ones off one."""
    kind, moved, slopes = "", values, np.ones_like(values)
    least, rest = (v[v > 0].min(initial=np.inf) for v in (values, 1 - values))
    if (values > 1).any() and not (values < 0).any():
        kind, moved = "log", np.maximum(values, least / 2)
        slopes = 1 / moved
    elif not (values < 0).any():
        kind, moved = "logit", np.clip(values, min(least, 0.5) / 2, 1 - min(rest, 0.5) / 2)
        if (
            noise is not None
        ):  # half an item wrong and half an item right, as for the logit of a binomial share
            items = np.where(noise.items > 0, noise.items, np.inf)
            moved = np.where(np.isfinite(items), (values + 0.5 / items) / (1 + 1 / items), moved)
        slopes = 1 / (moved * (1 - moved))
    if noise is not None:
        covariance = np.nan_to_num(
            noise.covariance * slopes[:, :, None, None] * slopes
        )  # no slope at missing seeds
        noise = replace(noise, covariance=covariance, unit=noise.unit * slopes)
    on_scale = (
        special.logit(moved) if kind == "logit" else np.log(moved) if kind == "log" else moved
    )
    sign = 1 if lower_is_better else -1
    return Scaled(sign * on_scale, noise, kind, sign)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """What decides between every two of m losses, on the scale of the comparison: (m, m), first and second."""

    means: Floats  # of the first over the seeds that the second has as well, nan without one
    seeds: Floats  # the number of these seeds
    own: Floats  # the variance that test items give to the difference with one seed alone
    shared: Floats  # and the one that they give to the differences with all seeds
    variances: Variances  # (m,)
    overlap: float

    @property
    def difference(self) -> Floats:
        """The first less the second over their common seeds, (m, m)."""
        return self.means - self.means.T

    def widths(self) -> Floats:
        """Return by how much the first loss may look worse than the second and still be the best, (m, m)."""
        everyone = np.arange(len(self.means))
        seeds = np.maximum(self.seeds, 1)
        return self._width(
            everyone[:, None], everyone, seeds, self.variances.freedom(), self.variances.usual()
        )

    def separate(self, first: int, second: int, seeds: int) -> bool:
        """Return whether so many seeds of each loss leave out the worse of two losses with the probability POWER."""
        freedom, usual = self.variances.freedom(seeds - 1), self.variances.usual(seeds - 1)
        width = self._width(first, second, seeds, freedom, usual)
        both = np.maximum(self.variances.values[[first, second]].sum(), self.own[first, second])
        error = math.sqrt(both * (1 / seeds + self.overlap) + self.shared[first, second])
        return bool(abs(self.difference[first, second]) >= width + special.ndtri(POWER) * error)

    def _width(
        self, i: Index, j: Index, seeds: Floats | int, freedom: Floats, usual: float
    ) -> Floats:
        v, rivals = self.variances.values, len(self.means) - 1
        usual = math.floor(10 * usual) / 10  # few different quantiles
        level = special.stdtr(usual, -dunnett(rivals, usual))
        of_seeds = -special.stdtrit((v[i] + v[j]) / (v[i] / freedom[i] + v[j] / freedom[j]), level)
        of_items = dunnett(rivals, math.inf)
        training = np.maximum(of_seeds**2 * (v[i] + v[j]), of_items**2 * self.own[i, j])
        return np.asarray(
            np.sqrt(training * (1 / seeds + self.overlap) + of_items**2 * self.shared[i, j])
        )


def compare_all(scaled: Scaled, overlap: float) -> Pairs:
    """Return the differences of every two losses, each of which has a value."""
    values, noise = scaled.values, scaled.noise
    means, seeds = common_means(values)
    own, shared = np.zeros_like(means), np.zeros_like(means)
    if noise is not None:
        for i, j in zip(*np.triu_indices(len(values), 1), strict=True):
            pair = compare_pair(values, int(i), int(j), noise)
            own[i, j] = own[j, i] = pair.own
            shared[i, j] = shared[j, i] = pair.shared
    return Pairs(means, seeds, own, shared, moderated(values), overlap)


def common_means(values: Floats) -> tuple[Floats, Floats]:
    """Return the means of each loss over the seeds that another one has as well, and their number, both (m, m)."""
    present = np.isfinite(values).astype(float)
    seeds = present @ present.T
    sums = np.nan_to_num(values) @ present.T
    return np.divide(sums, seeds, out=np.full_like(sums, np.nan), where=seeds > 0), seeds


@cache
def dunnett(rivals: int, freedom: float) -> float:
    """Return the one-sided 95 % quantile of the largest of several differences from one mean, all of one variance.

    Each two of the `rivals` differences have a correlation of 1/2; `freedom` is that of the variance.
    """
    z, weights = special.roots_hermitenorm(31)
    middles = (np.arange(200) + 0.5) / 200
    s = (
        np.ones(1)
        if math.isinf(freedom)
        else np.sqrt(special.chdtri(freedom, 1 - middles) / freedom)
    )

    def excess(q: float) -> float:
        below = special.ndtr(math.sqrt(2) * q * s[:, None] + z) ** rivals
        return float((below @ weights).mean() / weights.sum()) - LEVEL

    return float(optimize.brentq(excess, 0.0, 200.0, xtol=1e-4))
