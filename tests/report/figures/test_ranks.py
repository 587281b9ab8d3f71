"""Ranks over tasks against sums done by hand and Demsar's formula."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from milbench.report.figures.ranks import rank_losses


def test_ranks_by_hand_and_losses_that_differ_by_the_critical_difference() -> None:
    losses = {"a": [0.1, 0.2, 0.3, 0.1, 0.2], "b": [0.2, 0.1, 0.4, 0.3, 0.4], "c": [0.3, 0.3, 0.5, 0.4, 0.3]}
    found, pairs = rank_losses(pd.DataFrame(losses))
    mean = found["mean"]
    assert mean.to_dict() == pytest.approx({"a": 6 / 5, "b": 10 / 5, "c": 14 / 5})
    critical = 2.343 * math.sqrt(3 * 4 / (6 * 5))  # q of three losses is 2.343
    assert mean["c"] - mean["a"] > critical > mean["b"] - mean["a"]
    p = pairs.to_numpy()
    assert p[0, 2] < 0.05 < p[0, 1]
