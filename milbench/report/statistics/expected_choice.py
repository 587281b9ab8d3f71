"""The test error to expect after trying n settings, of which validation bags choose one.

A loss has d draws, each a try of settings. From every n of them validation would choose one, and
this one has a test error. The mean error over all ways to take n of d draws is expected with a
budget of n trainings. Sort draws by validation, the best one first. The draw of rank r (from 1) is
chosen in a share

    C(d - r, n - 1) / C(d, n)

of these ways, where C(d, n) is the number of ways to take n of d: the draw is chosen whenever the
other n - 1 draws are worse. docs/statistics.md, "Error against budget", has sources, and says how
often the bands hold the true expected error.
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
"""The columns of `curves`."""

DIGITS = 12
"""The number of decimals to which expected values are rounded."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawsOfLoss:
    """The draws of one loss, d of them, each trained with the first seed of the search."""

    loss: str
    """The name of the loss in reports."""
    validation: Floats
    """(d,), the validation values that choose, smaller is better; infinity for a failed draw."""
    test: Floats
    """(d,), the test value that is reported if the draw is chosen; NaN: not known."""
    group: NDArray[np.int64]
    """(d,), the number of the group of each draw.

    Draws of one group are not independent, and are left out together for the bands.
    """

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
        """The number of groups of draws."""
        return len(np.unique(self.group))

    def without(self, group: int) -> DrawsOfLoss:
        """Return the draws of all groups but one."""
        stays = self.group != group
        return DrawsOfLoss(self.loss, self.validation[stays], self.test[stays], self.group[stays])


def budgets(draws: int) -> list[int]:
    """Return the budgets of a curve: 1, 2, 4, ... up to the number of draws."""
    found = []
    budget = 1
    while budget <= draws:
        found.append(budget)
        budget *= 2
    return found


def expected_choice(draws: DrawsOfLoss, budget: int) -> float:
    """Return the mean test value of the chosen draw, over all ways to take `budget` of the draws.

    Somebody who tries settings in a random order chooses the first of several that are equally good
    on validation bags. For this reason the mean test value of draws with equal validation values
    counts.
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
    _, number_of_value, counts = np.unique(validation, return_inverse=True, return_counts=True)
    means = np.bincount(number_of_value, weights=test) / counts
    return np.asarray(means[number_of_value])


def curves(tried: Sequence[DrawsOfLoss], scale: Scale | None = None) -> pd.DataFrame:
    """Return the expected test value of losses on one task for each budget, with a 95 % band.

    The band covers other draws of settings, not other test bags.

    Args:
        tried: the draws of each loss.
        scale: the scale on which bands are computed, see
            `milbench.report.statistics.pairs.put_on_scale`.

    Returns:
        A row for each loss and each of its `budgets`, with the columns loss, draws (the budget),
        expected, low and high (the band); NaN: not known.
    """
    most = max((draws.count for draws in tried), default=0)
    by_budget = [_with_bands(tried, budget, scale) for budget in budgets(most)]
    if not by_budget:
        return pd.DataFrame(columns=COLUMNS)
    frame = pd.concat(by_budget, ignore_index=True)
    # Rows are sorted by loss: the losses in their given order.
    losses = list(dict.fromkeys(frame["loss"]))
    by_loss = [frame[frame["loss"] == loss] for loss in losses]
    return pd.DataFrame(pd.concat(by_loss, ignore_index=True))


def _with_bands(
    tried: Sequence[DrawsOfLoss], budget: int, scale: Scale | None = None
) -> pd.DataFrame:
    """Return the rows of one budget, for all losses that have as many draws."""
    with_enough = [draws for draws in tried if draws.count >= budget]
    values = _expected_with_and_without(with_enough, budget)
    expected = values[:, 0]
    comparison = put_on_scale(values, True, None, scale)
    on_scale = np.asarray(comparison.values)
    half_widths = _half_widths(with_enough, budget, on_scale[:, 1:])
    low = comparison.metric(on_scale[:, 0] - half_widths)
    high = comparison.metric(on_scale[:, 0] + half_widths)
    # Errors of exactly 0 or 1 have no logit and were moved a little. A band must hold the expected
    # error all the same.
    has_no_width = half_widths == 0
    low = np.where(has_no_width, expected, np.minimum(low, expected))
    high = np.where(has_no_width, expected, np.maximum(high, expected))
    names = [draws.loss for draws in with_enough]
    columns = {"loss": names, "draws": budget, "expected": expected, "low": low, "high": high}
    return pd.DataFrame(columns)


def _expected_with_and_without(tried: Sequence[DrawsOfLoss], budget: int) -> Floats:
    """Return a row for each loss: its expected value, then that without each group of draws.

    The rows of losses with fewer groups than others end in NaN.
    """
    most_groups = max(draws.group_count for draws in tried)
    values = np.full((len(tried), 1 + most_groups), np.nan)
    for row, draws in zip(values, tried, strict=True):
        left_out = _left_out(draws, budget)
        row[0] = expected_choice(draws, budget)
        row[1 : 1 + len(left_out)] = left_out
    # By a rounding error a mean of ones may be a little below 1, and would have a huge logit.
    return values.round(DIGITS)


def _half_widths(tried: Sequence[DrawsOfLoss], budget: int, left_out: Floats) -> Floats:
    """Return the half width of the band of each loss.

    `left_out` has a row for each loss: its expected value without each group of its draws.
    """
    own = np.array([_jackknife_variance(row) for row in left_out])
    known = own[np.isfinite(own)]
    # Few draws show a variance badly. So all losses are taken to have at least the mean variance,
    # and a loss whose own variance is larger has its own.
    typical = known.mean() if len(known) else math.nan
    variances = np.maximum(own, typical)
    freedom = [_freedom(draws, budget, len(known)) for draws in tried]
    return np.asarray(special.stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(variances))


def _left_out(draws: DrawsOfLoss, budget: int) -> list[float]:
    """Return the expected value without each group of draws; [] if there is only one group.

    If fewer draws than the budget are left, all that are left are taken.
    """
    if draws.group_count < 2:
        return []
    found = []
    for group in np.unique(draws.group):
        others = draws.without(group)
        found.append(expected_choice(others, min(budget, others.count)))
    return found


def _jackknife_variance(left_out: Floats) -> float:
    """Return the variance of a value by the jackknife.

    `left_out` are the values without each of the groups. NaN if fewer than two of them are known.
    """
    known = left_out[np.isfinite(left_out)]
    groups = len(known)
    if groups < 2:
        return math.nan
    squares = float(((known - known.mean()) ** 2).sum())
    return squares * (groups - 1) / groups


def _freedom(draws: DrawsOfLoss, budget: int, losses: int) -> float:
    """Return the degrees of freedom of the variance of a loss; `losses` have a known variance."""
    separate_choices = min(draws.count / budget, draws.group_count)
    own = max(separate_choices - 1, 1.0)
    # All losses try the same settings, so that together they do not have more degrees of freedom
    # than the groups of settings.
    return max(min(own * losses, draws.group_count - 1), 1.0)
