"""Student's interval of a mean and Fieller's of a ratio: by hand, and by counting."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from milbench.report.statistics import paired_ratio, student_interval


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


def test_a_ratio_is_of_the_common_seeds_and_its_interval_covers_the_true_one() -> None:
    above, below = pd.Series([1.0, 4.0, 3.0, 9.0], [0, 1, 2, 7]), pd.Series([2.0, 4.0, 5.0, 1.0], [0, 1, 2, 5])
    found = paired_ratio(above, below)
    assert found.seeds == 3
    assert found.value == pytest.approx(8 / 11)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        common = rng.normal(size=4)
        x, y = 3 + common + rng.normal(size=4) / 2, 6 + common
        low, high = paired_ratio(pd.Series(x), pd.Series(y)).interval
        covered += low <= 0.5 <= high
    assert covered / 1000 == pytest.approx(0.95, abs=0.025), "3 standard errors, and a little that is not bounded"


def test_the_bounds_of_a_ratio_are_what_students_test_just_rejects() -> None:
    above, below = pd.Series([1.0, 1.4, 1.1, 1.3]), pd.Series([2.1, 2.0, 2.4, 2.2])
    for bound in paired_ratio(above, below).interval:
        nearest = min(student_interval(above - bound * below), key=abs)
        assert nearest == pytest.approx(0, abs=1e-9)


def test_a_ratio_without_an_interval() -> None:
    values = pd.Series([1.0, 1.1, 1.2])
    assert paired_ratio(values[:2], 2 * values[:2]).value == pytest.approx(0.5)
    assert math.isnan(paired_ratio(values[:2], 2 * values[:2]).interval[0]), "two seeds"
    assert math.isnan(paired_ratio(values, pd.Series([-1.0, 2.0, 0.5])).interval[0]), "a mean that may be zero"
    assert math.isnan(paired_ratio(values[:1], values[1:]).value)


def test_the_interval_of_folds_is_that_of_nadeau_and_bengio_by_hand() -> None:
    values = [0.1, 0.2, 0.3, 0.2]  # variance 0.02 / 3
    half = 3.18245 * (0.02 / 3 * (1 / 4 + 1 / 3)) ** 0.5  # t with 3 degrees of freedom; four folds: r = 1 / 3
    assert student_interval(values, overlap=1 / 3) == pytest.approx((0.2 - half, 0.2 + half), abs=1e-5)
