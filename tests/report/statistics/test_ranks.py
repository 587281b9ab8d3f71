"""Ranks over tasks against sums done by hand and Demsar's formula."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from scipy import stats

from milbench.report.statistics.ranks import rank_losses

VALUES = pd.DataFrame(
    {"a": [0.1, 0.2, 0.3, 0.1, 0.2], "b": [0.2, 0.1, 0.4, 0.3, 0.4], "c": [0.3, 0.3, 0.5, 0.4, 0.3]},
    index=list("vwxyz"),
)


def test_ranks_by_hand() -> None:
    found = rank_losses(VALUES)
    assert found.blocks == 5
    assert found.mean.to_dict() == pytest.approx({"a": 6 / 5, "b": 10 / 5, "c": 14 / 5})
    statistic = 12 * 5 / (3 * 4) * ((6 / 5) ** 2 + 2**2 + (14 / 5) ** 2 - 3 * 16 / 4)
    assert found.p == pytest.approx(stats.chi2.sf(statistic, 2))


def test_two_losses_differ_where_their_ranks_differ_by_the_critical_difference() -> None:
    found = rank_losses(VALUES)
    assert found.critical == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 5)), abs=2e-3)  # q of three losses is 2.343
    assert found.mean["c"] - found.mean["a"] > found.critical
    p = found.pairs.to_numpy()
    assert p[0, 2] < 0.05 < p[0, 1]
