"""What the choice of settings adds to the variance of a mean: how much another search would change.

A search tries draws (sets of settings) with one seed, and the best of them with more; the best mean
of validation bags chooses. Fresh seeds of the chosen draw do not show that another search would
have chosen another one. Two searches show it: half the square of what their choices differ by in
test bags is, on average, the variance of one. One search is made into two by halves of its draws.
Both halves choose as the whole did, each by its own networks, so that draws and seeds of the search
are other ones in the two. The mean over all ways of dividing the draws has a closed form.

What is drawn anew: the settings that are tried, and the seeds of the search. What stays: the number
of seeds, the rule, and validation and test bags. Half as many draws vary at least as much as all,
so that the variance is on the large side. (A bootstrap of the draws has the best one again in most
of its samples, and finds about half of the variance.)

From this variance is subtracted what test values of few seeds vary by that is no difference of
settings: that part of it which validation values do not explain, since a choice by these makes the
other part smaller.

Halves show the variance of one loss with about one degree of freedom. Worse, after an unlucky
search they show little of it: the best draws that it found are no better than the next ones, and
lie close to them. So parts are used twice.

- *How large variances are* the halves show, by their mean over all losses: the typical variance.
- *Which loss has more than others* quarters show. They choose among fewer draws and vary more, but
  four choices have three degrees of freedom. Their variances are scaled to those of halves by the
  ratio of the two means over all losses.

A loss has the typical variance, or its own one where this is larger. The further it is above the
typical one, the less the searches of the other losses say of it, and the fewer degrees of freedom
it gets from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FREEDOM_OF_QUARTERS = 3
"""The degrees of freedom of the variance of four choices."""


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
    freedom: Floats
    """(m,), the degrees of freedom of each, infinity where nothing is added."""
    typical_freedom: float
    """The degrees of freedom of a loss with the typical variance, infinity where nothing was searched."""

    def of_pair(self, first: int, second: int) -> float:
        """Return what is added to the variance of the difference of two losses.

        Losses that tried the same settings vary together, if at all: the sum is then on the large
        side.
        """
        return float(self.values[first] + self.values[second])

    def freedom_of_pair(self, first: int, second: int) -> float:
        """Return the degrees of freedom of this sum: those of both, weighted by their variances.

        Satterthwaite's, V^2 / sum(v^2 / f), are more. They are right for independent estimates, but
        both may have the typical variance, and then err together.
        """
        v_first = float(self.values[first])
        v_second = float(self.values[second])
        both = v_first + v_second
        if both == 0:
            return math.inf
        by_freedom = v_first / self.freedom[first] + v_second / self.freedom[second]
        return float(both / by_freedom)


def search_variances(searches: Sequence[Search | None]) -> SearchVariances:
    """Return the variance that the choice of settings adds, of losses that were searched or, None, were not."""
    values = np.zeros(len(searches))
    freedom = np.full(len(searches), math.inf)
    usable = {}
    for loss, search in enumerate(searches):
        draws = _draws(search)
        if draws is not None:
            usable[loss] = draws
    if not usable:
        return SearchVariances(values, freedom, math.inf)

    noise = _unexplained_noise(list(usable.values()))
    of_halves = {loss: _variance(draws, draws.count // 2, noise) for loss, draws in usable.items()}
    of_quarters = {
        loss: _variance(draws, draws.size_of_quarter, noise) for loss, draws in usable.items()
    }
    typical = max(float(np.mean(list(of_halves.values()))), 0.0)
    mean_of_quarters = float(np.mean(list(of_quarters.values())))
    # Fewer draws vary more: what looks otherwise is chance.
    scale = typical / mean_of_quarters if mean_of_quarters > typical else 1.0

    searched = len(usable)
    typical_freedom = math.inf
    for loss, draws in usable.items():
        own = max(scale * of_quarters[loss], 0.0)
        # How much of what the other searches say holds for this loss.
        trust = min(1.0, typical / own) if own > 0 else 1.0
        own_freedom = _own_freedom(draws, searched)
        values[loss] = max(own, typical)
        freedom[loss] = own_freedom + trust * (searched - 1)
        typical_freedom = min(typical_freedom, own_freedom + searched - 1)
    return SearchVariances(values, freedom, typical_freedom)


def _own_freedom(draws: _Draws, searched: int) -> float:
    """Return the degrees of freedom of a loss's own variance.

    It is a product: its quarters show it with three, and the scale is known from the searches with
    one each.
    """
    of_quarters = min(FREEDOM_OF_QUARTERS, draws.count - 1)
    return max(1.0, 1 / (1 / of_quarters + 1 / searched))


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """The d draws of a search that have a test value, in the order in which they would be chosen."""

    validation: Floats
    """(d, seeds)."""
    test: Floats
    """(d, seeds)."""
    seeds: NDArray[np.int64]
    """(d,), the number of seeds of each."""
    means: Floats
    """(d,), of test values."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.means)

    @property
    def size_of_quarter(self) -> int:
        """How many are in a quarter: one at least."""
        return max(1, self.count // 4)


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
    # Only draws with the most seeds are compared in the end.
    order = np.lexsort((by_validation, -seeds))
    return _Draws(validation[order], test[order], seeds[order], np.nanmean(test, axis=1)[order])


def _variance(draws: _Draws, size: int, noise: float) -> float:
    """Return the variance of the test value of what so many draws would choose, less that of the noise.

    It is half the mean squared difference of the choices of two parts without a common draw; it may
    be negative.
    """
    chosen = _chosen_together(draws.count, size)
    between = (draws.means[:, None] - draws.means) ** 2 / 2
    of_noise = noise * (1 / draws.seeds[:, None] + 1 / draws.seeds) / 2
    return float((chosen * (between - of_noise)).sum())


@cache
def _chosen_together(draws: int, size: int) -> Floats:
    """Return the probability that two parts choose the draws j < k, in their order, (draws, draws).

    Both parts have so many draws, at random. The part that chooses k has its others after k; the
    part that chooses j has its others after j, where the other part has taken as many places as it
    is large.
    """
    divisions = math.comb(draws, size) * math.comb(draws - size, size)
    chosen = np.zeros((draws, draws))
    for j in range(draws):
        others_of_j = math.comb(max(draws - 1 - j - size, 0), size - 1)
        for k in range(j + 1, draws):
            others_of_k = math.comb(draws - 1 - k, size - 1)
            # Either part may be the one that chooses j.
            chosen[j, k] = 2 * others_of_j * others_of_k / divisions
    return chosen


def _unexplained_noise(searches: Sequence[_Draws]) -> float:
    """Return the variance between seeds of test values that validation values do not explain, 0 where not known.

    It is taken from seeds after the first one: by the first, draws were chosen to have more.
    """
    validation: list[Floats] = []
    test: list[Floats] = []
    draws_with_several = 0
    for draws in searches:
        is_later = np.isfinite(draws.test[:, 1:])
        has_several = is_later.sum(axis=1) > 1
        if has_several.any():
            is_known = is_later[has_several]
            validation.append(_less_their_means(draws.validation[has_several, 1:])[is_known])
            test.append(_less_their_means(draws.test[has_several, 1:])[is_known])
            draws_with_several += int(has_several.sum())
    if not test:
        return 0.0
    explaining = np.concatenate(validation)
    explained = np.concatenate(test)
    # A mean for each draw, and one slope for all.
    freedom = len(explained) - draws_with_several - 1
    if freedom < 1:
        return 0.0
    squares = float(explaining @ explaining)
    slope = float(explaining @ explained) / squares if squares > 0 else 0.0
    left = explained - slope * explaining
    return float(left @ left) / freedom


def _less_their_means(rows: Floats) -> Floats:
    """Return rows without their means; NaN does not count."""
    return np.asarray(rows - np.nanmean(rows, axis=1, keepdims=True))
