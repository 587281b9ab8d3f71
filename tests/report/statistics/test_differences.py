"""Intervals of differences: closed forms, brute force, and what may not widen or narrow them."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.differences import compare_pair, holm, student_interval
from milbench.report.statistics.sampling import sampling_noise

Floats = NDArray[np.float64]


def outcomes_of(
    values: Floats, nested: bool = False, weights: Floats | None = None
) -> list[list[Outcomes | None]]:
    weights = np.ones(values.shape[2]) if weights is None else weights
    return [
        [Outcomes(v, weights, f"{s if nested else 0}") for s, v in enumerate(of_loss)]
        for of_loss in values
    ]


def drawn(m: int = 2, n: int = 4, items: int = 300, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return (
        rng.random((m, n, items))
        < rng.random((1, 1, items)) * np.linspace(0.2, 0.5, m)[:, None, None]
    ).astype(float)


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_the_covariance_of_ratios_is_that_of_resampled_items() -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 20, size=300)
    values = rng.binomial(weights, 0.4, size=(2, 4, 300)).astype(float)
    noise = sampling_noise(outcomes_of(values, weights=weights.astype(float)))
    picks = rng.integers(300, size=(4000, 300))
    ratios = (values[..., picks].sum(axis=3) / weights[picks].sum(axis=1)).reshape(8, -1)
    error = 5 * np.var(ratios, axis=1).max() * math.sqrt(2 / 4000)
    np.testing.assert_allclose(noise.covariance.reshape(8, 8), np.cov(ratios), atol=error)


def test_without_outcomes_it_is_students_interval_of_the_paired_differences() -> None:
    values = np.array([[0.3, 0.5, 0.4, 0.7], [0.1, 0.4, 0.2, 0.3]])
    found = compare_pair(values, 0, 1)
    expected = stats.ttest_rel(*values).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert found.items == 0
    assert found.p == pytest.approx(stats.ttest_rel(*values).pvalue, rel=1e-4)


def test_equal_training_leaves_the_interval_of_mcnemar() -> None:
    """All networks of a loss make the same errors, so that only the draw of the items is left."""
    one = drawn(m=2, n=1)
    values = np.repeat(one, 5, axis=1)
    found = compare_pair(values.mean(axis=2), 0, 1, sampling_noise(outcomes_of(values)))
    differ = one[0, 0] - one[1, 0]
    half = stats.norm.isf(0.025) * math.sqrt(
        differ.var(ddof=1) / 300 + 2 / 300**2
    )  # two items are added
    assert found.interval == pytest.approx((differ.mean() - half, differ.mean() + half))
    assert found.items == 300


def test_items_of_each_seed_are_part_of_what_the_seeds_show() -> None:
    values = drawn(n=6)
    means = values.mean(axis=2)
    own = compare_pair(means, 0, 1, sampling_noise(outcomes_of(values, nested=True)))
    alone = compare_pair(means, 0, 1)
    assert own.interval == pytest.approx(alone.interval), (
        "the seeds vary at least as much as their items demand"
    )
    assert own.items == 300
    shared = compare_pair(means, 0, 1, sampling_noise(outcomes_of(values)))
    assert width(shared.interval) > width(own.interval)


def test_no_difference_on_few_items_is_not_certainty() -> None:
    """The rule of three: up to 3 / 400 of the items may be of a kind that none of 400 is."""
    for nested in (False, True):
        values = np.zeros((2, 3, 400))
        found = compare_pair(values.mean(axis=2), 0, 1, sampling_noise(outcomes_of(values, nested)))
        assert found.interval[1] == pytest.approx(3 / 400, rel=0.1 if not nested else 0.5)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_have_no_interval(seeds: int) -> None:
    values = drawn(n=seeds)
    found = compare_pair(values.mean(axis=2), 0, 1, sampling_noise(outcomes_of(values)))
    assert found.seeds == seeds
    assert all(map(math.isnan, found.interval))
    assert math.isnan(found.p)


def test_pairs_are_the_seeds_that_both_have_and_items_count_where_all_of_these_have_outcomes() -> (
    None
):
    values = drawn(m=3, n=5)
    means, outcomes = values.mean(axis=2), outcomes_of(values)
    means[1, 0] = means[2, 4] = math.nan
    outcomes[2][1] = None
    noise = sampling_noise(outcomes)
    found = [compare_pair(means, i, j, noise) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert [(pair.seeds, pair.items) for pair in found] == [(4, 300), (4, 0), (3, 0)]
    assert found[2].difference == pytest.approx(means[1, 1:4].mean() - means[2, 1:4].mean())


def test_holm_rejects_step_by_step_and_ignores_what_is_unknown() -> None:
    """By hand: the smallest of four p values times 4, the next times 3, never below the one before."""
    assert holm([0.04, 0.01, math.nan, 0.02, 0.9])[:2] == pytest.approx([0.08, 0.04])
    assert holm([0.04, 0.01, math.nan, 0.02, 0.9])[3:] == pytest.approx([0.06, 0.9])
    assert math.isnan(holm([0.04, math.nan])[1])


def test_differences_between_folds_are_corrected_for_the_bags_that_they_share() -> None:
    values = np.array(
        [[0.30, 0.35, 0.20, 0.25], [0.10, 0.20, 0.05, 0.15]]
    )  # differences 0.2, 0.15, 0.15, 0.1
    found = compare_pair(values, 0, 1, overlap=1 / 3)
    half = 3.18245 * (0.005 / 3 * (1 / 4 + 1 / 3)) ** 0.5
    assert found.interval == pytest.approx((0.15 - half, 0.15 + half), rel=1e-4)


def test_the_interval_of_a_mean_by_hand_also_of_folds() -> None:
    # Mean 2, standard error 1 / sqrt(3), t with two degrees of freedom 4.30265.
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx(
        (2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4
    )
    half = 3.18245 * (0.02 / 3 * (1 / 4 + 1 / 3)) ** 0.5  # variance 0.02 / 3; four folds: r = 1 / 3
    assert student_interval([0.1, 0.2, 0.3, 0.2], 1 / 3) == pytest.approx(
        (0.2 - half, 0.2 + half), abs=1e-5
    )
    for values in ([], [0.5], [0.5, 0.6], [0.5, 0.6, math.nan], [0.5, 0.6, math.inf]):
        assert all(map(math.isnan, student_interval(values)))
