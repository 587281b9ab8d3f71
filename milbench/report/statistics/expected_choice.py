"""What somebody may expect who tries n settings and lets validation bags choose one of them.

A loss has d draws. Of every n of them validation would choose one, and that one has a test error.
The mean over all ways to take n of d is what is expected with a budget of n trainings. With draws
sorted by validation, the best one first, the draw of rank r (from 1) is the choice of a share of

    C(d - r, n - 1) / C(d, n)

of these ways: those with it and n - 1 worse ones. docs/statistics.md, "Error against budget":
sources, and how often the bands hold what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.pairs import Scale, put_on_scale
from milbench.report.statistics.sampling import Floats

COLUMNS = ["loss", "draws", "expected", "low", "high"]
"""The columns of curves."""

DIGITS = 12
"""Values that agree to so many digits are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawsOfLoss:
    """The draws of one loss, d of them, each trained with the first seed of the search."""

    loss: str
    """As reports name it."""
    validation: Floats
    """(d,), what chooses, the smaller the better; infinity for a draw that failed."""
    test: Floats
    """(d,), what is reported where the draw is chosen; NaN: not known."""
    group: NDArray[np.int64]
    """(d,), the number of the group of each draw: draws of one group are left out together."""

    @property
    def count(self) -> int:
        """The number of draws."""
        return len(self.validation)

    @property
    def failed(self) -> int:
        """How many draws failed."""
        return int(np.isinf(self.validation).sum())

    @property
    def group_count(self) -> int:
        """How many groups of draws there are to leave out."""
        return len(np.unique(self.group))

    def without(self, group: int) -> DrawsOfLoss:
        """Return the draws of all other groups."""
        stays = self.group != group
        return DrawsOfLoss(self.loss, self.validation[stays], self.test[stays], self.group[stays])


def budgets(draws: int) -> list[int]:
    """Return the numbers of draws that a curve has: 1, 2, 4, ... up to those that there are."""
    found = []
    budget = 1
    while budget <= draws:
        found.append(budget)
        budget *= 2
    return found


def expected_choice(draws: DrawsOfLoss, budget: int) -> float:
    """Return the mean test value of what validation chooses, over all ways to take so many of the draws.

    Whoever tries settings in any order takes the first of equal ones. Draws with equal validation
    values therefore count with their mean test value.
    """
    order = np.argsort(draws.validation, kind="stable")
    ranks = np.arange(1, draws.count + 1)
    chances = special.comb(draws.count - ranks, budget - 1) / special.comb(draws.count, budget)
    test = _mean_of_equals(draws.validation[order], draws.test[order])
    # A draw that is never chosen need not have a value.
    is_chosen = chances > 0
    return float(chances[is_chosen] @ test[is_chosen])


def _mean_of_equals(validation: Floats, test: Floats) -> Floats:
    """Return, in place of each test value, the mean of all draws with the same validation value."""
    _, places, counts = np.unique(validation, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=test) / counts
    return np.asarray(means[places])


def curves(tried: Sequence[DrawsOfLoss], scale: Scale | None = None) -> pd.DataFrame:
    """Return what is expected of losses on one task for each budget, with a 95 % band over other draws.

    Args:
        tried: the draws of each loss.
        scale: the scale on which bands are computed, see
            `milbench.report.statistics.pairs.put_on_scale`.

    Returns:
        A row for each loss and each of `budgets`: loss, draws (the budget), expected, low and high;
        NaN where they are not known.
    """
    most = max((draws.count for draws in tried), default=0)
    by_budget = [_with_bands(tried, budget, scale) for budget in budgets(most)]
    if not by_budget:
        return pd.DataFrame(columns=COLUMNS)
    frame = pd.concat(by_budget, ignore_index=True)
    # Losses stay in the order of the search.
    losses = list(dict.fromkeys(frame["loss"]))
    by_loss = [frame[frame["loss"] == loss] for loss in losses]
    return pd.DataFrame(pd.concat(by_loss, ignore_index=True))


def _with_bands(
    tried: Sequence[DrawsOfLoss], budget: int, scale: Scale | None = None
) -> pd.DataFrame:
    """Return the rows of all losses that have so many draws, for one budget."""
    with_enough = [draws for draws in tried if draws.count >= budget]
    values = _expected_with_and_without(with_enough, budget)
    expected = values[:, 0]
    comparison = put_on_scale(values, True, None, scale)
    on_scale = np.asarray(comparison.values)
    half_widths = _half_widths(with_enough, budget, on_scale[:, 1:])
    low = comparison.metric(on_scale[:, 0] - half_widths)
    high = comparison.metric(on_scale[:, 0] + half_widths)
    # The way to logits and back moves errors of exactly 0 and 1 a little.
    has_no_width = half_widths == 0
    low = np.where(has_no_width, expected, np.minimum(low, expected))
    high = np.where(has_no_width, expected, np.maximum(high, expected))
    names = [draws.loss for draws in with_enough]
    columns = {"loss": names, "draws": budget, "expected": expected, "low": low, "high": high}
    return pd.DataFrame(columns)


def _expected_with_and_without(tried: Sequence[DrawsOfLoss], budget: int) -> Floats:
    """Return a row for each loss: what is expected, then what is expected without each group of draws.

    NaN fills the rows of losses with fewer groups than others.
    """
    most_groups = max(draws.group_count for draws in tried)
    values = np.full((len(tried), 1 + most_groups), np.nan)
    for row, draws in zip(values, tried, strict=True):
        left_out = _left_out(draws, budget)
        row[0] = expected_choice(draws, budget)
        row[1 : 1 + len(left_out)] = left_out
    # A mean of ones may be a little below one, where its logit would be huge.
    return values.round(DIGITS)


def _half_widths(tried: Sequence[DrawsOfLoss], budget: int, left_out: Floats) -> Floats:
    """Return the half width of the band of each loss, from what is expected without each group of its draws."""
    own = np.array([_jackknife_variance(row) for row in left_out])
    known = own[np.isfinite(own)]
    # Few draws show a variance badly: variances count as equal for all losses, but none as less
    # than its own.
    typical = known.mean() if len(known) else math.nan
    variances = np.maximum(own, typical)
    freedom = [_freedom(draws, budget, len(known)) for draws in tried]
    return np.asarray(special.stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(variances))


def _left_out(draws: DrawsOfLoss, budget: int) -> list[float]:
    """Return what is expected without each of the groups of draws.

    Where fewer draws than the budget are left, it is what is expected of all that are left.
    """
    if draws.group_count < 2:
        return []
    found = []
    for group in np.unique(draws.group):
        others = draws.without(group)
        found.append(expected_choice(others, min(budget, others.count)))
    return found


def _jackknife_variance(left_out: Floats) -> float:
    """Return the variance of a value from those without each of the groups; NaN where fewer than two are known."""
    known = left_out[np.isfinite(left_out)]
    groups = len(known)
    if groups < 2:
        return math.nan
    squares = float(((known - known.mean()) ** 2).sum())
    return squares * (groups - 1) / groups


def _freedom(draws: DrawsOfLoss, budget: int, losses: int) -> float:
    """Return the degrees of freedom of the variance of a loss, where so many losses have known ones."""
    separate_choices = min(draws.count / budget, draws.group_count)
    own = max(separate_choices - 1, 1.0)
    # Losses try the same settings, so that many of them show no more than the settings do.
    return max(min(own * losses, draws.group_count - 1), 1.0)
