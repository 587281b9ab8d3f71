"""How much of the variance of values is due to each of several factors, such as losses and seeds.

A level of a factor is one of its values, such as one of the learning rates. The model has a number
for each level of each factor, and explains a value by the sum of the numbers of its levels. It is
fitted by least squares. Then a factor is left out and the model is fitted again. It explains less,
and the difference is what the factor alone explains. A factor with many levels explains something
by chance, which is subtracted (omega squared, W. L. Hays, "Statistics for Psychologists", 1963):

    share = (S_factor - f_factor M) / (S + M)

where

- S is the sum of squares of all values around their mean;
- S_factor is the sum of squares that is no longer explained without the factor;
- f_factor is the number of parameters that the model loses with the factor;
- M is the sum of squares that the model with all factors does not explain, for each degree of
  freedom.

docs/statistics.md, "Shares of variance", says why, and how often the intervals hold the true share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.pairs import Scale, put_on_scale
from milbench.report.statistics.sampling import Floats

STAGE = "stage of the search"
"""The name of a factor that contains the seeds: no seed is in two stages."""
SEED = "seed"
"""The name of the factor of seeds. If there are stages, each seed is part of one stage."""
TOGETHER = "several together"
"""The source of what no factor explains alone, as several factors explain it equally well."""
REST = "the rest: interactions and noise"
"""The source of what the sum of the factors does not explain."""

ROUNDING = 1e-8
"""A smaller difference of sums of zeros and ones is a rounding error."""

FEWEST_GROUPS = 3
"""With fewer groups to leave out there is no interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """How much of the variance is due to a source."""

    source: tuple[str, ...]
    """One factor, several that cannot be told apart, `TOGETHER`, or `REST`."""
    value: float
    """The share. If the source has no effect, it is near 0, and may be below 0."""
    low: float
    """The lower end of the 95 % interval; NaN if there are too few groups to leave out."""
    high: float
    """The upper end of the interval."""


class _Model:
    """A linear model of values: a constant plus a number for each level of each factor.

    The design matrix has a first column of ones. Every factor has a column of zeros and ones for
    each of its levels but one, which the constant stands for.
    """

    def __init__(self, values: Floats, levels: pd.DataFrame) -> None:
        self.values = values - values.mean()
        self.levels = {str(factor): levels[factor].nunique() for factor in levels}
        self._columns = {str(factor): _indicators(levels, str(factor)) for factor in levels}
        # Factors that were left out -> the result of `fit`, since the shares of several sources
        # need the same fits.
        self._fits: dict[frozenset[str], tuple[float, int]] = {}
        constant = np.ones((len(values), 1))
        design = np.hstack([constant, *self._columns.values()])
        # The factor that each column of the design belongs to; "" for the constant.
        owners = [""]
        for factor, columns in self._columns.items():
            owners += [factor] * columns.shape[1]
        self._owners = np.array(owners)
        # Each fit needs only a part of these products, which are small: there are many values, but
        # few levels.
        self._products = design.T @ design
        self._targets = design.T @ self.values

    @property
    def total(self) -> float:
        """The sum of squares of all values around their mean."""
        return float(self.values @ self.values)

    def fit(self, without: Iterable[str] = ()) -> tuple[float, int]:
        """Fit the model without some of the factors.

        Returns:
            The sum of squares that is left unexplained, and the number of parameters.
        """
        left_out = frozenset(without)
        if left_out not in self._fits:
            stays = np.flatnonzero(~np.isin(self._owners, list(left_out)))
            products = self._products[np.ix_(stays, stays)]
            targets = self._targets[stays]
            solution, _, rank, _ = np.linalg.lstsq(products, targets, rcond=ROUNDING)
            explained = float(solution @ targets)
            self._fits[left_out] = max(self.total - explained, 0.0), int(rank)
        return self._fits[left_out]

    def lost(self, factors: Iterable[str]) -> tuple[float, int]:
        """Return the sum of squares that only these factors explain, and how many parameters.

        Seeds are parts of a stage and explain all that it explains. What the stage explains is
        therefore computed in a model without seeds.
        """
        asked_for = set(factors)
        left_out_of_both = {SEED} if STAGE in asked_for else set()
        squares_with, parameters_with = self.fit(left_out_of_both - asked_for)
        squares_without, parameters_without = self.fit(left_out_of_both | asked_for)
        return squares_without - squares_with, parameters_with - parameters_without

    def entangled(self) -> list[set[str]]:
        """Return sets of factors that cannot be told apart.

        The column of a level of one of these factors is a weighted sum of columns of the others.
        """
        found = []
        # The columns so far that are no sums of other columns, and the factor that owns each; ""
        # owns the constant.
        independent = np.ones((len(self.values), 1))
        owners = [""]
        for factor, columns in self._columns.items():
            # The first seed of each stage has no column. If each stage has one seed, no seed has.
            has_one_seed_a_stage = columns.shape[1] == 0
            if has_one_seed_a_stage:
                found.append({SEED, STAGE})
            for column in columns.T:
                weights = np.linalg.lstsq(independent, column, rcond=None)[0]
                rest = column - independent @ weights
                if np.abs(rest).max() > ROUNDING:
                    independent = np.column_stack([independent, column])
                    owners.append(factor)
                    continue
                used = np.flatnonzero(np.abs(weights) > ROUNDING)
                others = {owners[index] for index in used}
                others.discard("")
                found.append({factor} | others)
        return found

    def noise(self) -> float:
        """Return the unexplained sum of squares per degree of freedom, NaN if none is left."""
        squares, parameters = self.fit()
        freedom = len(self.values) - parameters
        return squares / freedom if freedom > 0 else math.nan

    def shares(self, sources: Sequence[tuple[str, ...]]) -> Floats:
        """Return the shares of sources, of several together, and of the rest; they add up to 1."""
        noise = self.noise()
        all_squares = self.total + noise
        own = []
        for factors in sources:
            squares, parameters = self.lost(factors)
            by_chance = parameters * noise
            own.append((squares - by_chance) / all_squares)
        rest = len(self.values) * noise / all_squares
        together = 1 - sum(own) - rest
        return np.array([*own, together, rest])


def _indicators(levels: pd.DataFrame, factor: str) -> Floats:
    """Return a column of zeros and ones for each level of a factor but the first.

    The first level has no column, as the constant stands for it. If there are stages, the first
    seed of each stage has none, as the column of the stage stands for it.
    """
    if factor == SEED and STAGE in levels:
        first = set(levels.drop_duplicates(STAGE)[SEED])
    else:
        first = set(levels[factor].iloc[:1])
    # Intervals need this for every group left out, and pandas compares texts slowly.
    level_of_cell = levels[factor].to_numpy(object)
    others = [level for level in dict.fromkeys(level_of_cell) if level not in first]
    columns = [(level_of_cell == level).astype(float) for level in others]
    return np.array(columns, float).reshape(len(others), len(levels)).T


def shares_of(
    values: pd.Series[float],
    levels: pd.DataFrame,
    groups: pd.Series[str],
    scale: Scale | None = None,
) -> list[Share]:
    """Return the shares of all sources of the variance of values.

    Args:
        values: the value of each cell, in the unit of the metric.
        levels: a row for each cell, a column for each factor. If there is a column `STAGE`, each
            seed of the column `SEED` belongs to one stage.
        groups: the group of each cell. For the intervals, one group at a time is left out.
        scale: the scale on which variances are compared, see `put_on_scale`.

    Returns:
        The shares of single factors, or of several factors that cannot be told apart, and then
        those of `TOGETHER` and `REST`. [] if nothing varies, or if there are no more values than
        parameters.
    """
    varying = [factor for factor in levels if len(levels[factor].unique()) > 1]
    levels = levels[varying]
    given = np.asarray(values, np.float64)
    if levels.empty or np.ptp(given) == 0:
        return []
    on_scale = np.asarray(put_on_scale(given[:, None], True, None, scale).values)[:, 0]
    model = _Model(on_scale, levels)
    if math.isnan(model.noise()):
        return []
    sources = _sources(model)
    shares = model.shares(sources)
    half_widths = _half_widths(on_scale, levels, list(groups), sources)
    all_sources = [*sources, (TOGETHER,), (REST,)]
    found = []
    for source, share, half_width in zip(all_sources, shares, half_widths, strict=True):
        low = share - half_width
        high = share + half_width
        # Only the share of TOGETHER may truly be below 0: factors may hide each other's effect.
        if source != (TOGETHER,):
            low = np.clip(low, 0, 1)
            high = np.clip(high, 0, 1)
        found.append(Share(source, float(share), float(low), float(high)))
    return found


def _sources(model: _Model) -> list[tuple[str, ...]]:
    """Return the sources of variance: single factors, and sets of factors not told apart."""
    groups = [{factor} for factor in model.levels]
    for entangled in model.entangled():
        # A factor may be entangled with several groups, which then become one.
        touched = [group for group in groups if group & entangled]
        groups = [group for group in groups if not group & entangled]
        groups.append(set().union(*touched))
    sources = [tuple(factor for factor in model.levels if factor in group) for group in groups]
    factors = list(model.levels)
    return sorted(sources, key=lambda source: factors.index(source[0]))


def _half_widths(
    values: Floats,
    levels: pd.DataFrame,
    groups: Sequence[str],
    sources: Sequence[tuple[str, ...]],
) -> Floats:
    """Return the half width of the 95 % interval of each share, by the jackknife over groups.

    It is NaN if fewer than FEWEST_GROUPS groups can be left out.
    """
    left_out = []
    for group in dict.fromkeys(groups):
        stays = np.array([other != group for other in groups])
        if stays.sum() < 2:
            # A single value does not vary.
            continue
        model = _Model(values[stays], levels[stays])
        if not math.isnan(model.noise()):
            left_out.append(model.shares(sources))
    count = len(left_out)
    if count < FEWEST_GROUPS:
        with_together_and_rest = len(sources) + 2
        return np.full(with_together_and_rest, np.nan)
    replicates = np.array(left_out)
    squares = ((replicates - replicates.mean(axis=0)) ** 2).sum(axis=0)
    deviation = np.sqrt(squares * (count - 1) / count)
    return np.asarray(special.stdtrit(count - 1, (1 + LEVEL) / 2) * deviation)
