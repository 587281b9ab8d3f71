"""What the choice of settings adds to the variance of a mean: how much another search would change.

A search tries draws (sets of settings) with one seed, and the best of them with more; the best mean of validation bags
chooses. Fresh seeds of the chosen draw do not show that another search would have chosen another one. Two searches show
it: half the square of what their choices differ by in test bags is, on average, the variance of one. One search is made
into two by halves of its draws. Both halves choose as the whole did, each by its own networks, so that draws and seeds
of the search are other ones in the two.

What is drawn anew: the settings that are tried, and the seeds of the search. What stays: the number of seeds, the rule,
and validation and test bags. Half as many draws vary at least as much as all, so that the variance is on the large
side. (A bootstrap of the draws has the best one again in most of its samples, and finds about half of the variance.)

From this variance is subtracted what test values of few seeds vary by that is no difference of settings: that part of
it which validation values do not explain, since a choice by these makes the other part smaller.

One search shows the variance of one loss with about one degree of freedom. It is therefore taken to be alike for all
losses: the mean, with as many degrees of freedom as there are searches. No loss has less than its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = int | NDArray[np.int64]

SPLITS = 200
"""How many pairs of halves are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The search of the settings of one loss: (draws, seeds), NaN where a draw has fewer seeds."""

    validation: Floats
    """The values that choose, the smaller the better; those of the first seed chose which draws have more."""
    test: Floats
    """The metric of the same networks on test bags."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchVariances:
    """What the choice of settings adds to the variance of the mean of each of m losses."""

    values: Floats
    """(m,), 0 for a loss whose settings were not searched."""
    freedom: float
    """The degrees of freedom of these variances, infinity where nothing was searched."""

    def of_pair(self, first: Index, second: Index) -> Floats:
        """Return what it adds to the variance of the difference of two losses, or of all that indices broadcast to.

        Losses that tried the same settings vary together, if at all: the sum is then on the large side.
        """
        return np.asarray(self.values[first] + self.values[second])


def search_variances(searches: Sequence[Search | None]) -> SearchVariances:
    """Return the variance that the choice of settings adds, of losses that were searched or, None, were not."""
    usable = {}
    for loss, search in enumerate(searches):
        draws = _draws(search)
        if draws is not None:
            usable[loss] = draws
    if not usable:
        return SearchVariances(np.zeros(len(searches)), math.inf)
    noise = _unexplained_noise(list(usable.values()))
    own = {loss: _variance(draws, noise) for loss, draws in usable.items()}
    typical = max(float(np.mean(list(own.values()))), 0.0)
    values = np.zeros(len(searches))
    for loss, variance in own.items():
        values[loss] = max(variance, typical)
    return SearchVariances(values, float(len(own)))


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """The draws of a search that have a test value, d of them."""

    validation: Floats
    """(d, seeds)."""
    test: Floats
    """(d, seeds)."""
    seeds: NDArray[np.int64]
    """(d,), the number of seeds of each."""
    cost: Floats
    """(d,), the smaller the better; a draw with more seeds than another one is before it."""
    means: Floats
    """(d,), of test values."""


def _draws(search: Search | None) -> _Draws | None:
    """Return the draws of a search, None where there is nothing to choose between."""
    if search is None:
        return None
    known = np.isfinite(search.validation) & np.isfinite(search.test)
    has_value = known.any(axis=1)
    if has_value.sum() < 2:
        return None
    known = known[has_value]
    validation = np.where(known, search.validation[has_value], np.nan)
    test = np.where(known, search.test[has_value], np.nan)
    seeds = known.sum(axis=1)
    by_validation = np.nanmean(validation, axis=1)
    # Ranks order by seeds first: only draws with the most seeds are compared in the end.
    order = np.lexsort((by_validation, -seeds))
    cost = np.empty(len(order))
    cost[order] = np.arange(len(order))
    return _Draws(validation, test, seeds, cost, np.nanmean(test, axis=1))


def _variance(draws: _Draws, noise: float) -> float:
    """Return the variance of the test value of the choice, less that of the noise; it may be negative."""
    first_half, second_half = _halves(len(draws.cost))
    first = np.where(first_half, draws.cost, np.inf).argmin(axis=1)
    second = np.where(second_half, draws.cost, np.inf).argmin(axis=1)
    between = (draws.means[first] - draws.means[second]) ** 2 / 2
    of_noise = noise * (1 / draws.seeds[first] + 1 / draws.seeds[second]) / 2
    return float((between - of_noise).mean())


def _halves(draws: int) -> tuple[Bools, Bools]:
    """Return which draws are in the first half and which in the second, (SPLITS, draws) each, the same at each call."""
    rng = np.random.default_rng(draws)
    places = rng.permuted(np.tile(np.arange(draws), (SPLITS, 1)), axis=1)
    size = draws // 2
    return places < size, (places >= size) & (places < 2 * size)


def _unexplained_noise(searches: Sequence[_Draws]) -> float:
    """Return the variance between seeds of test values that validation values do not explain, 0 where not known.

    It is taken from seeds after the first one: by the first, draws were chosen to have more.
    """
    validation: list[Floats] = []
    test: list[Floats] = []
    for draws in searches:
        for of_validation, of_test in zip(draws.validation[:, 1:], draws.test[:, 1:], strict=True):
            known = np.isfinite(of_test)
            if known.sum() > 1:
                validation.append(of_validation[known] - of_validation[known].mean())
                test.append(of_test[known] - of_test[known].mean())
    if not test:
        return 0.0
    explaining = np.concatenate(validation)
    explained = np.concatenate(test)
    # A mean for each draw, and one slope for all.
    freedom = len(explained) - len(test) - 1
    if freedom < 1:
        return 0.0
    squares = float(explaining @ explaining)
    slope = float(explaining @ explained) / squares if squares > 0 else 0.0
    left = explained - slope * explaining
    return float(left @ left) / freedom
