"""Intervals of the difference of two losses: closed forms, resampling and limits."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.differences import compare_pair, holm, student_interval
from milbench.report.statistics.sampling import sampling_noise

Floats = NDArray[np.float64]


ITEMS = 300


def outcomes_of(
    values: Floats, nested: bool = False, weights: Floats | None = None
) -> list[list[Outcomes | None]]:
    """Return the outcomes of losses with each seed.

    Args:
        values: (losses, seeds, items). An item is what has one outcome: here a test bag.
        nested: whether each seed has items of its own; else all seeds share theirs.
        weights: (items,), the weight of each item in a mean; if absent, all weights are 1.
    """
    if weights is None:
        weights = np.ones(values.shape[2])
    outcomes: list[list[Outcomes | None]] = []
    for of_loss in values:
        row: list[Outcomes | None] = []
        for seed, of_seed in enumerate(of_loss):
            items = f"items of seed {seed}" if nested else "items"
            row.append(Outcomes(of_seed, weights, items))
        outcomes.append(row)
    return outcomes


def random_errors(losses: int = 2, seeds: int = 4) -> Floats:
    """Return zeros and ones, (losses, seeds, items): 1 where a network is wrong.

    Some items are harder than others, for all losses and seeds.
    """
    rng = np.random.default_rng(0)
    values = rng.random((losses, seeds, ITEMS))
    difficulty = rng.random((1, 1, ITEMS))
    level = np.linspace(0.2, 0.5, losses)[:, None, None]
    return (values < difficulty * level).astype(float)


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_the_covariance_of_ratios_is_that_of_resampled_items() -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 20, size=300)
    values = rng.binomial(weights, 0.4, size=(2, 4, 300)).astype(float)
    noise = sampling_noise(outcomes_of(values, weights=weights.astype(float)))
    picks = rng.integers(300, size=(4000, 300))
    # Two losses with four seeds are eight cells. For each of them the ratio is computed in 4,000
    # samples of 300 items.
    sums = values[..., picks].sum(axis=3)  # (2, 4, 4000)
    sums_of_weights = weights[picks].sum(axis=1)  # (4000,)
    ratios = (sums / sums_of_weights).reshape(8, -1)
    # Five standard errors of a variance that is estimated from 4,000 samples.
    error = 5 * np.var(ratios, axis=1).max() * math.sqrt(2 / 4000)
    np.testing.assert_allclose(noise.covariance.reshape(8, 8), np.cov(ratios), atol=error)


def test_without_outcomes_the_interval_is_students_of_paired_differences() -> None:
    values = np.array([[0.3, 0.5, 0.4, 0.7], [0.1, 0.4, 0.2, 0.3]])
    found = compare_pair(values, 0, 1)
    expected = stats.ttest_rel(*values).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert found.items == 0
    assert found.p == pytest.approx(stats.ttest_rel(*values).pvalue)


def test_equal_training_leaves_the_interval_of_mcnemar() -> None:
    """All networks of a loss make the same errors: the interval comes from the items alone."""
    one = random_errors(seeds=1)
    values = np.repeat(one, 5, axis=1)
    found = compare_pair(values.mean(axis=2), 0, 1, sampling_noise(outcomes_of(values)))
    differ = one[0, 0] - one[1, 0]
    # docs/statistics.md, "An item more": each loss gets one more item, on which it alone is wrong.
    # Either of these two items adds the square of its share in the mean, (1 / ITEMS)^2.
    variance = differ.var(ddof=1) / ITEMS + 2 / ITEMS**2
    half = stats.norm.isf(0.025) * math.sqrt(variance)
    assert found.interval == pytest.approx((differ.mean() - half, differ.mean() + half))
    assert found.items == ITEMS


def test_items_of_each_seed_do_not_widen_the_interval() -> None:
    """If each seed has items of its own, the spread of the seeds contains the spread of the items.

    Items widen the interval only if they alone vary more than the seeds do; here they vary less.
    """
    values = random_errors(seeds=6)
    means = values.mean(axis=2)
    own = compare_pair(means, 0, 1, sampling_noise(outcomes_of(values, nested=True)))
    assert own.interval == pytest.approx(compare_pair(means, 0, 1).interval)
    assert own.items == ITEMS


def test_items_that_seeds_share_widen_the_interval() -> None:
    values = random_errors(seeds=6)
    means = values.mean(axis=2)
    own = compare_pair(means, 0, 1, sampling_noise(outcomes_of(values, nested=True)))
    shared = compare_pair(means, 0, 1, sampling_noise(outcomes_of(values)))
    assert width(shared.interval) > width(own.interval)


@pytest.mark.parametrize(
    ("nested", "tolerance"),
    [
        pytest.param(False, 0.1, id="items shared by seeds"),
        # The variance of each seed is 2 / 400^2, and the variance of the mean of three seeds is a
        # third of it. So the upper end is 2.77 / 400 / sqrt(3) = 1.60 / 400. It may be below
        # 3 / 400, since three seeds test 1,200 items; the tolerance only excludes an end near zero.
        pytest.param(True, 0.5, id="items of each seed"),
    ],
)
def test_no_difference_on_few_items_is_not_certainty(nested: bool, tolerance: float) -> None:
    """By the rule of three, what no item of 400 shows may be true of up to 3 / 400 of all items.

    By hand: each loss gets one more item on which it alone is wrong, as in the test of McNemar's
    interval above. This gives the variance 2 / 400^2, and the upper end
    1.96 * sqrt(2) / 400 = 2.77 / 400.
    """
    values = np.zeros((2, 3, 400))
    found = compare_pair(values.mean(axis=2), 0, 1, sampling_noise(outcomes_of(values, nested)))
    assert found.interval[1] == pytest.approx(3 / 400, rel=tolerance)


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_have_no_interval(seeds: int) -> None:
    values = random_errors(seeds=seeds)
    found = compare_pair(values.mean(axis=2), 0, 1, sampling_noise(outcomes_of(values)))
    assert found.seeds == seeds
    assert all(map(math.isnan, found.interval))
    assert math.isnan(found.p)


def test_losses_are_compared_on_the_seeds_that_both_have() -> None:
    means = random_errors(seeds=5).mean(axis=2)
    means[0, 0] = math.nan
    means[1, 4] = math.nan
    found = compare_pair(means, 0, 1)
    assert found.seeds == 3
    assert found.difference == pytest.approx(means[0, 1:4].mean() - means[1, 1:4].mean())


@pytest.mark.parametrize(
    ("first", "second", "seeds", "items"),
    [
        pytest.param(0, 1, 4, ITEMS, id="outcomes of all common seeds"),
        pytest.param(0, 2, 4, 0, id="one common seed without outcomes"),
        pytest.param(1, 2, 3, 0, id="one of fewer common seeds without outcomes"),
    ],
)
def test_items_count_where_all_common_seeds_have_outcomes(
    first: int, second: int, seeds: int, items: int
) -> None:
    values = random_errors(losses=3, seeds=5)
    means = values.mean(axis=2)
    means[1, 0] = math.nan
    means[2, 4] = math.nan
    outcomes = outcomes_of(values)
    outcomes[2][1] = None
    found = compare_pair(means, first, second, sampling_noise(outcomes))
    assert found.seeds == seeds
    assert found.items == items


def test_holm_adjusts_p_values_step_by_step() -> None:
    """By hand: the smallest of four times 4, the next times 3, then times 2 and 1."""
    adjusted = holm([0.04, 0.01, 0.02, 0.9])
    assert adjusted == pytest.approx([2 * 0.04, 4 * 0.01, 3 * 0.02, 0.9])


def test_adjusted_p_values_keep_their_order() -> None:
    """By hand: the smaller one is 2 * 0.02. The larger one times 1 is less, and is raised to it."""
    assert holm([0.02, 0.021]) == pytest.approx([0.04, 0.04])


def test_holm_ignores_what_is_unknown() -> None:
    adjusted = holm([0.04, math.nan, 0.01])
    assert [adjusted[0], adjusted[2]] == pytest.approx([0.04, 2 * 0.01])
    assert math.isnan(adjusted[1])


T_3 = 3.18245
"""Student's quantile of 97.5 % with three degrees of freedom, from a table."""

T_2 = 4.30265
"""Student's quantile of 97.5 % with two degrees of freedom, from a table."""


def test_differences_between_folds_are_corrected_for_the_bags_that_they_share() -> None:
    """By the corrected resampled t-test of Nadeau and Bengio (2003)."""
    values = np.array([[0.30, 0.35, 0.20, 0.25], [0.10, 0.20, 0.05, 0.15]])
    # There are four folds. A network is tested on one and trained on three: there is one test bag
    # for three training bags.
    found = compare_pair(values, 0, 1, overlap=1 / 3)
    # The differences 0.2, 0.15, 0.15 and 0.1 have the variance 0.005 / 3. Without overlap, the
    # variance of their mean would be a fourth of it; the overlap adds a third.
    half = T_3 * (0.005 / 3 * (1 / 4 + 1 / 3)) ** 0.5
    assert found.interval == pytest.approx((0.15 - half, 0.15 + half), rel=1e-4)


def test_the_interval_of_a_mean_by_hand() -> None:
    # The mean is 2, and its standard error 1 / sqrt(3).
    half = T_2 / 3**0.5
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - half, 2 + half), abs=1e-4)


def test_the_interval_of_a_mean_of_folds_by_hand() -> None:
    # The variance of the values is 0.02 / 3. With four folds the overlap is 1 / 3.
    half = T_3 * (0.02 / 3 * (1 / 4 + 1 / 3)) ** 0.5
    found = student_interval([0.1, 0.2, 0.3, 0.2], overlap=1 / 3)
    assert found == pytest.approx((0.2 - half, 0.2 + half), abs=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="none"),
        pytest.param([0.5], id="one"),
        pytest.param([0.5, 0.6], id="two"),
        pytest.param([0.5, 0.6, math.nan], id="a missing one"),
        pytest.param([0.5, 0.6, math.inf], id="an infinite one"),
    ],
)
def test_too_few_finite_values_have_no_interval(values: list[float]) -> None:
    low, high = student_interval(values)
    assert math.isnan(low)
    assert math.isnan(high)
