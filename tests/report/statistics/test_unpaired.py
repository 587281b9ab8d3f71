"""Differences of groups that are not paired, against scipy and against simulated groups that do not differ."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from milbench.api.outcomes import Outcomes
from milbench.report.statistics import Difference, compare_unpaired

A, B = pd.Series([0.10, 0.12, 0.11, 0.13]), pd.Series([0.20, 0.26, 0.21], index=[5, 6, 7])


def test_without_outcomes_it_is_the_interval_of_welch() -> None:
    found = compare_unpaired(B, A, level=0.9)
    expected = stats.ttest_ind(B, A, equal_var=False).confidence_interval(0.9)
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert (found.seeds, found.items) == (3, 0)
    assert found.difference == pytest.approx(0.67 / 3 - 0.115)


def test_splits_of_the_same_data_widen_it_as_fewer_seeds_would() -> None:
    """With 1/n + r in place of 1/n for both groups of one size and spread: sqrt(1 + n r) times as wide."""
    same = B - 0.1
    plain, split = compare_unpaired(B, same), compare_unpaired(B, same, overlaps=(0.25, 0.25))
    width, wider = (found.interval[1] - found.interval[0] for found in (plain, split))
    assert wider / width == pytest.approx(math.sqrt(1 + 3 * 0.25))


@pytest.mark.parametrize("values", [[0.2, 0.3], [0.2, 0.2, 0.2]], ids=["two seeds", "no variation"])
def test_noise_that_is_not_seen_gives_no_interval(values: list[float]) -> None:
    found = compare_unpaired(pd.Series(values), pd.Series([0.1] * 3))
    assert all(map(math.isnan, found.interval))


def test_noise_of_test_bags_is_seen_where_seeds_do_not_vary() -> None:
    low, high = compare_unpaired(*fixed_items(0.2, 0.1)).interval
    assert low < 0.1 < high
    # Of 400 items each: the square root of p (1 - p) / n, summed; the items that are added make it a little wider.
    half = 1.96 * math.sqrt((0.2 * 0.8 + 0.1 * 0.9) / 400)
    assert half < (high - low) / 2 < 1.02 * half


def test_what_test_bags_add_is_widened_by_splits_of_the_same_data_as_well() -> None:
    """Seeds that agree by luck leave the variance of their test bags alone, of which n splits have 1/n + r too."""
    one, other, _ = fixed_items(0.2, 0.1)
    wrong = [np.arange(400) < 400 * error for error in (0.2, 0.1)]
    own = tuple({s: Outcomes(w, np.ones(400), f"bags {k} of seed {s}") for s in range(3)} for k, w in enumerate(wrong))
    widths = []
    for overlap in (0.0, 0.25):
        low, high = compare_unpaired(one, other, (own[0], own[1]), overlaps=(overlap, overlap)).interval
        widths.append(high - low)
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(1 + 3 * 0.25), rel=0.02)


Groups = tuple["pd.Series[float]", "pd.Series[float]", tuple[dict[int, Outcomes], dict[int, Outcomes]]]


def fixed_items(one: float, other: float) -> Groups:
    groups, outcomes = [], []
    for error, items in ((one, "some"), (other, "others")):
        wrong = np.arange(400) < 400 * error
        groups.append(pd.Series([error] * 3))
        outcomes.append({seed: Outcomes(wrong, np.ones(400), items) for seed in range(3)})
    return groups[0], groups[1], (outcomes[0], outcomes[1])


@pytest.mark.parametrize("known", [True, False], ids=["outcomes", "seeds alone"])
def test_equal_losses_on_other_test_bags(known: bool) -> None:
    """With outcomes no more than 5 % of 300 differences are called one; without them the bags pass for the losses."""
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(300):
        groups, outcomes = [], []
        for side in "ab":
            hardness = rng.beta(0.3, 1.7, 200)  # 15 % of the bags are read wrongly
            errors = rng.random((4, 200)) < hardness
            groups.append(pd.Series(errors.mean(axis=1)))
            outcomes.append({seed: Outcomes(of_seed, np.ones(200), side) for seed, of_seed in enumerate(errors)})
        found: Difference = compare_unpaired(groups[0], groups[1], (outcomes[0], outcomes[1]) if known else ({}, {}))
        wrong += not found.interval[0] <= 0 <= found.interval[1]
    limit = int(stats.binom.isf(0.001, 300, 0.05))
    assert wrong <= limit if known else wrong > limit


def test_other_seeds_on_the_same_test_bags_share_their_draw() -> None:
    """What the bags add is common to both, and the interval is narrower than that on other bags."""
    rng = np.random.default_rng(1)
    hardness = rng.beta(0.3, 1.7, 400)
    errors = rng.random((2, 4, 400)) < hardness
    groups = [pd.Series(of_one.mean(axis=1)) for of_one in errors]

    def width(names: str) -> float:
        outcomes = [
            {seed: Outcomes(of_seed, np.ones(400), name) for seed, of_seed in enumerate(of_one)}
            for of_one, name in zip(errors, names, strict=True)
        ]
        low, high = compare_unpaired(groups[0], groups[1], (outcomes[0], outcomes[1])).interval
        return high - low

    assert width("ss") < 0.9 * width("st")
