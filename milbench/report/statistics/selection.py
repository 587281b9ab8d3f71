"""What the choice of settings adds to the variance of a mean.

A search tries draws, which are sets of settings, with one seed, and the best of them with further
seeds. The draw with the best mean on validation bags is chosen. Another search might have chosen
another draw, and so another test value. Training the chosen draw with fresh seeds does not show
this. Two searches do: half the squared difference of the test values that they choose is, on
average, the variance of one choice.

One search is made into two by dividing its draws into halves. Both halves choose as the whole did,
each by its own networks, so that they differ in draws and in the seeds of the search. Draws at one
point of the ranges, which differ in settings from lists alone, stay together: another search would
have other points. The mean over all ways of dividing the draws has a closed form.

The variance covers other settings that might be tried, and other seeds of the search. It does not
cover other numbers of seeds, another rule of choice, or other validation and test bags. The choice
from half of the draws varies at least as much as that from all, so that the variance is rather too
large. (In a bootstrap most samples of draws would have the best draw again. It finds about half of
the variance.)

Test values of draws also differ because each is a mean of few seeds. This variance is subtracted,
as it says nothing of settings. Only the part of it that validation values do not explain is
subtracted: the other part is already smaller, since validation values choose.

Halves show the variance of a single loss badly, with about one degree of freedom. After an unlucky
search they even show too little: if the best draws that it found are no better than the next ones,
all choices are close to each other. So draws are divided in two ways.

- Halves show how large variances are. Their mean over all losses is the typical variance.
- Quarters show which losses have a larger variance than others. They choose among fewer draws and
  vary more, but four choices have three degrees of freedom. Their variances are scaled to those of
  halves by the ratio of the two means over all losses.

A loss has the typical variance, or its own one if that is larger. The further its own variance is
above the typical one, the less the searches of other losses say of this loss, and the fewer degrees
of freedom it gets from them.
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
    """The values that choose, smaller is better.

    The values of the first seed chose the draws that were trained with further seeds.
    """
    test: Floats
    """The test values of the same networks."""
    groups: NDArray[np.int64] | None = None
    """(draws,), the same number for draws at one point of the ranges; None: all are apart."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchVariances:
    """What the choice of settings adds to the variance of the mean of each of m losses."""

    values: Floats
    """(m,), 0 for a loss whose settings were not searched."""
    freedom: Floats
    """(m,), the degrees of freedom of each variance; infinity for a variance of 0."""
    typical_freedom: float
    """The degrees of freedom of a loss with the typical variance; infinity without searches."""

    def of_pair(self, first: int, second: int) -> float:
        """Return what is added to the variance of the difference of two losses.

        It is the sum of both variances. Losses that tried the same settings may vary together, and
        the sum is then rather too large.
        """
        return float(self.values[first] + self.values[second])

    def freedom_of_pair(self, first: int, second: int) -> float:
        """Return the degrees of freedom of `of_pair`: a mean of both, weighted by variances.

        Satterthwaite's formula, V^2 / sum(v^2 / f), gives more. It is for independent estimates,
        but both losses may have the typical variance, and then both estimates err together.
        """
        v_first = float(self.values[first])
        v_second = float(self.values[second])
        both = v_first + v_second
        if both == 0:
            return math.inf
        by_freedom = v_first / self.freedom[first] + v_second / self.freedom[second]
        return float(both / by_freedom)


def search_variances(searches: Sequence[Search | None]) -> SearchVariances:
    """Return the variance that the choice of settings adds to the mean of each loss.

    An entry of `searches` is None if the settings of the loss were not searched for.
    """
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
    usable = {loss: draws.best_of_each_group() for loss, draws in usable.items()}
    of_halves = {loss: _variance(draws, draws.count // 2, noise) for loss, draws in usable.items()}
    of_quarters = {
        loss: _variance(draws, draws.size_of_quarter, noise) for loss, draws in usable.items()
    }
    typical = max(float(np.mean(list(of_halves.values()))), 0.0)
    mean_of_quarters = float(np.mean(list(of_quarters.values())))
    # Choices from fewer draws vary more. If quarters seem to vary less than halves, that is chance.
    scale = typical / mean_of_quarters if mean_of_quarters > typical else 1.0

    searched = len(usable)
    typical_freedom = math.inf
    for loss, draws in usable.items():
        own = max(scale * of_quarters[loss], 0.0)
        # The share of the degrees of freedom of other searches that this loss gets.
        trust = min(1.0, typical / own) if own > 0 else 1.0
        own_freedom = _own_freedom(draws, searched)
        values[loss] = max(own, typical)
        freedom[loss] = own_freedom + trust * (searched - 1)
        typical_freedom = min(typical_freedom, own_freedom + searched - 1)
    return SearchVariances(values, freedom, typical_freedom)


def _own_freedom(draws: _Draws, searched: int) -> float:
    """Return the degrees of freedom of a loss's own variance.

    The variance is a product. Its first factor, from four quarters, has three degrees of freedom.
    The second factor is the scale, which has one from each of the searches.
    """
    of_quarters = min(FREEDOM_OF_QUARTERS, draws.count - 1)
    return max(1.0, 1 / (1 / of_quarters + 1 / searched))


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """The d draws of a search that have a test value, in the order in which they are chosen.

    The first draw is the chosen one; without it, the second would have been chosen, and so on.
    """

    validation: Floats
    """(d, seeds), NaN where a draw lacks a seed."""
    test: Floats
    """(d, seeds), NaN where a draw lacks a seed."""
    seeds: NDArray[np.int64]
    """(d,), the number of seeds of each draw."""
    means: Floats
    """(d,), the mean of the test values of each draw."""
    groups: NDArray[np.int64]
    """(d,), the same number for draws that stay together when the draws are divided."""

    def best_of_each_group(self) -> _Draws:
        """Return the draw of each group that would be chosen from it, in the same order.

        A part of the draws has all draws of a group or none, so that it never chooses another one.
        """
        _, first = np.unique(self.groups, return_index=True)
        best = np.sort(first)
        return _Draws(
            validation=self.validation[best],
            test=self.test[best],
            seeds=self.seeds[best],
            means=self.means[best],
            groups=self.groups[best],
        )

    @property
    def count(self) -> int:
        """The number of draws."""
        return len(self.means)

    @property
    def size_of_quarter(self) -> int:
        """The number of draws in a quarter: one at least."""
        return max(1, self.count // 4)


def _draws(search: Search | None) -> _Draws | None:
    """Return the draws of a search; None if fewer than two groups of draws have a value."""
    if search is None:
        return None
    known = np.isfinite(search.validation) & np.isfinite(search.test)
    has_value = known.any(axis=1)
    groups = np.arange(len(known)) if search.groups is None else search.groups
    if len(set(groups[has_value])) < 2:
        return None
    known = known[has_value]
    validation = np.where(known, search.validation[has_value], np.nan)
    test = np.where(known, search.test[has_value], np.nan)
    seeds = known.sum(axis=1)
    by_validation = np.nanmean(validation, axis=1)
    # Draws with the most seeds are the finalists: one of them is chosen.
    order = np.lexsort((by_validation, -seeds))
    return _Draws(
        validation=validation[order],
        test=test[order],
        seeds=seeds[order],
        means=np.nanmean(test, axis=1)[order],
        groups=groups[has_value][order],
    )


def _variance(draws: _Draws, size: int, noise: float) -> float:
    """Return the variance of the test value that is chosen from `size` draws, less that of noise.

    It is half the mean squared difference between the choices of two parts of the draws that have
    no draw in common. It may be negative.
    """
    chosen = _chosen_together(draws.count, size)
    between = (draws.means[:, None] - draws.means) ** 2 / 2
    of_noise = noise * (1 / draws.seeds[:, None] + 1 / draws.seeds) / 2
    return float((chosen * (between - of_noise)).sum())


@cache
def _chosen_together(draws: int, size: int) -> Floats:
    """Return the probability that two random parts choose the draws j and k, (draws, draws).

    Both parts have `size` of the draws and none in common; j < k in the order of choice. The part
    that chooses k has its other draws after k. The part that chooses j has its other draws after j,
    among those that are not in the part of k.
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
    """Return the variance of test values between seeds that validation values do not explain.

    It is 0 if not known. Only seeds after the first one count: the values of the first seed chose
    the draws that have further seeds.
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
    # The model has a mean for each draw, and one slope for all draws.
    freedom = len(explained) - draws_with_several - 1
    if freedom < 1:
        return 0.0
    squares = float(explaining @ explaining)
    slope = float(explaining @ explained) / squares if squares > 0 else 0.0
    left = explained - slope * explaining
    return float(left @ left) / freedom


def _less_their_means(rows: Floats) -> Floats:
    """Return rows less their means; NaN is left out of a mean."""
    return np.asarray(rows - np.nanmean(rows, axis=1, keepdims=True))
