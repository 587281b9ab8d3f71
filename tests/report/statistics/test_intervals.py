"""Student's interval of a mean: by hand, and by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milbench.report.statistics.intervals import student_interval


def test_student_interval_by_hand_and_by_simulation() -> None:
    # Mean 2, standard error 1 / sqrt(3), t with two degrees of freedom 4.30265.
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)
    rng = np.random.default_rng(0)
    covered = [low <= 0 <= high for low, high in (student_interval(rng.normal(size=3)) for _ in range(1000))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.025)


def test_no_interval_of_too_little() -> None:
    for values in ([], [0.5], [0.5, 0.6], [0.5, 0.6, math.nan], [0.5, 0.6, math.inf]):
        assert all(map(math.isnan, student_interval(values)))
    assert student_interval([0.25, 0.25, 0.25]) == (0.25, 0.25)


def test_the_interval_of_folds_is_that_of_nadeau_and_bengio_by_hand() -> None:
    values = [0.1, 0.2, 0.3, 0.2]  # variance 0.02 / 3
    half = 3.18245 * (0.02 / 3 * (1 / 4 + 1 / 3)) ** 0.5  # t with 3 degrees of freedom; four folds: r = 1 / 3
    assert student_interval(values, overlap=1 / 3) == pytest.approx((0.2 - half, 0.2 + half), abs=1e-5)
