"""The covariance of means over test bags that share items.

It is compared with a double loop, closed forms and simulations. An item is what test bags are made
of: a recording, an image, a word. Bags that share an item, or are of one group, are neighbours:
what happens to one of them happens to the other one more often than to other bags.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import Clusters, clusters
from milbench.report.statistics.pairs import compare_all, put_on_scale
from milbench.report.statistics.sampling import sampling_noise
from milbench.report.statistics.selection import search_variances
from tests._helpers.scenes import most_by_chance

Floats = NDArray[np.float64]


def residuals_of(values: Floats) -> Floats:
    """Return how far each bag moves the mean of its row, for values (means, bags)."""
    bags = values.shape[1]
    return np.asarray((values - values.mean(axis=1, keepdims=True)) / bags)


def sample_items(rng: np.random.Generator, bags: int, size: int, pool: int) -> NDArray[np.int64]:
    """Return the items of random bags, (bags, size); no bag has an item twice."""
    return np.stack([rng.choice(pool, size, replace=False) for _ in range(bags)])


def summed_by_a_double_loop(
    residuals: Floats, group: NDArray[np.int64], items: NDArray[np.int64]
) -> Floats:
    """Return the covariance of means: a sum over all pairs of neighbours.

    The sum is divided by the share of all pairs of bags that are no neighbours.
    """
    bags = len(group)
    total = np.zeros((len(residuals), len(residuals)))
    neighbours = 0
    for one in range(bags):
        for other in range(bags):
            # Every bag is in a group, and in the same one as itself.
            if group[one] == group[other] or share_an_item(items[one], items[other]):
                total += np.outer(residuals[:, one], residuals[:, other])
                neighbours += 1
    return total / (1 - neighbours / bags**2)


def share_an_item(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Return whether two bags have an item in common; -1 stands for no item."""
    common = set(one.tolist()) & set(other.tolist())
    return bool(common - {-1})


def values_by_item(rng: np.random.Generator, items: NDArray[np.int64]) -> Floats:
    """Return values (3, bags) that are the sum of the effects of a bag's items.

    Bags that share items are then so much alike that the covariance is positive definite.
    """
    effects = rng.normal(size=(3, items.max() + 1))
    return np.asarray(np.where(items >= 0, effects[:, items], 0).sum(axis=2))


def test_the_covariance_is_the_sum_over_neighbours() -> None:
    rng = np.random.default_rng(0)
    items = sample_items(rng, bags=120, size=3, pool=60)
    # Some bags have fewer items than others.
    items[rng.random(items.shape) < 0.3] = -1
    group = np.arange(120) // 2
    residuals = residuals_of(values_by_item(rng, items))
    expected = summed_by_a_double_loop(residuals, group, items)
    assert np.linalg.eigvalsh(expected).min() > 0
    found = clusters(group, items).covariance(residuals)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize(
    "group",
    [pytest.param(None, id="no groups"), pytest.param(np.arange(50), id="a group for each bag")],
)
def test_unique_items_give_the_covariance_of_independent_bags(
    group: NDArray[np.int64] | None,
) -> None:
    rng = np.random.default_rng(1)
    wrong = (rng.random((2, 3, 50)) < 0.3).astype(float)
    outcomes = [[Outcomes(of_cell, np.ones(50), "bags") for of_cell in row] for row in wrong]
    unique_items = np.arange(200).reshape(50, 4)
    found = sampling_noise(outcomes, {"bags": clusters(group, unique_items)}).covariance
    np.testing.assert_array_equal(found, sampling_noise(outcomes).covariance)


def test_equal_groups_give_the_covariance_of_their_means() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(2, 10, 6)) + rng.normal(size=(2, 10, 1))
    ten_groups_of_six = clusters(np.repeat(np.arange(10), 6), None)
    found = ten_groups_of_six.covariance(residuals_of(values.reshape(2, 60)))
    np.testing.assert_allclose(found, np.cov(values.mean(axis=2)) / 10, rtol=1e-12)


def test_the_covariance_has_no_negative_eigenvalue() -> None:
    rng = np.random.default_rng(3)
    items = sample_items(rng, bags=40, size=3, pool=20)
    hardness = rng.normal(size=(12, 20))
    residuals = residuals_of(hardness[:, items].sum(axis=2) + rng.normal(size=(12, 40)))
    # The plain sum over neighbours has a negative eigenvalue, although all variances are positive.
    plain_sum = residuals @ (clusters(None, items).neighbours @ residuals.T)
    assert np.diagonal(plain_sum).min() > 0
    assert np.linalg.eigvalsh(plain_sum).min() < -1e-4
    found = clusters(None, items).covariance(residuals)
    assert np.linalg.eigvalsh(found).min() > -1e-12


def test_bags_that_all_share_an_item_are_named() -> None:
    everything_shared = clusters(None, np.zeros((30, 1), int))
    with pytest.raises(ValueError, match="of all pairs of 30 test bags 100% share an item"):
        everything_shared.covariance(np.zeros((2, 30)))


def test_bags_that_nearly_all_share_an_item_are_named() -> None:
    """100 bags have 10 of 25 items each: one pair of bags in a thousand has no item in common."""
    items = sample_items(np.random.default_rng(0), bags=100, size=10, pool=25)
    residuals = residuals_of(np.random.default_rng(1).normal(size=(1, 100)))
    with pytest.raises(ValueError, match="share an item"):
        clusters(None, items).covariance(residuals)


def test_a_variance_that_comes_out_negative_is_not_known() -> None:
    items = np.array([[0, 1], [0, 2], [1, 2], [0, 1], [2, 3]])
    residuals = residuals_of(np.array([[1.0, 0, 0, 1, 1]]))
    # All pairs but two are neighbours: the fifth bag shares no item with the first and the fourth.
    apart = residuals[0, 4] * (residuals[0, 0] + residuals[0, 3])
    # The sum over all pairs is 0. Each of the two pairs that are no neighbours is in it twice.
    sum_over_neighbours = 0 - 2 * apart
    assert sum_over_neighbours < 0
    with pytest.raises(ValueError, match="no variance of their mean is left"):
        clusters(None, items).covariance(residuals)


def test_a_mean_without_residuals_does_not_vary() -> None:
    items = np.array([[0, 1], [0, 2], [3, 4], [5, 6]])
    assert clusters(None, items).covariance(np.zeros((1, 4))) == 0


def test_clusters_of_another_number_of_items_are_refused() -> None:
    outcomes = [[Outcomes(np.ones(8), np.ones(8), "bags")]]
    with pytest.raises(ValueError, match="expected clusters of 8 test items, got 5"):
        sampling_noise(outcomes, {"bags": clusters(np.arange(5), None)})


def test_other_items_keep_their_covariance() -> None:
    rng = np.random.default_rng(4)
    wrong = (rng.random((2, 30)) < 0.3).astype(float)
    outcomes = [[Outcomes(wrong[0], np.ones(30), "a"), Outcomes(wrong[1], np.ones(30), "b")]]
    halves = clusters(np.arange(30) // 2, None)
    found = sampling_noise(outcomes, {"b": halves}).covariance[0, :, 0]
    independent = sampling_noise(outcomes).covariance[0, :, 0]
    assert found[0, 0] == independent[0, 0]
    assert found[1, 1] != independent[1, 1]
    assert found[0, 1] == 0


@dataclass(frozen=True)
class TwoSeeds:
    """Two seeds, whose 40 and 50 test bags differ but are made of the same 30 items."""

    items: tuple[NDArray[np.int64], NDArray[np.int64]]
    """For each seed the items of its bags, (bags, 2)."""
    values: tuple[Floats, Floats]
    """For each seed the outcomes of two losses, (2, bags): sums of the effects of items."""


@pytest.fixture(scope="module")
def two_seeds() -> TwoSeeds:
    rng = np.random.default_rng(6)
    effects = rng.normal(size=(2, 30))
    first = sample_items(rng, bags=40, size=2, pool=30)
    second = sample_items(rng, bags=50, size=2, pool=30)
    values = (effects[:, first].sum(axis=2), effects[:, second].sum(axis=2))
    return TwoSeeds((first, second), values)


def test_the_covariance_of_two_seeds_is_the_sum_over_neighbours(two_seeds: TwoSeeds) -> None:
    first_items, second_items = two_seeds.items
    first = residuals_of(two_seeds.values[0])
    second = residuals_of(two_seeds.values[1])
    total = np.zeros((2, 2))
    neighbours = 0
    for one in range(40):
        for other in range(50):
            if share_an_item(first_items[one], second_items[other]):
                total += np.outer(first[:, one], second[:, other])
                neighbours += 1
    expected = total / (1 - neighbours / (40 * 50))
    found = clusters(None, first_items).covariance_with(clusters(None, second_items), first, second)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_bags_of_two_seeds_that_share_something_vary_together(two_seeds: TwoSeeds) -> None:
    of_bags = {}
    outcomes: list[list[Outcomes]] = [[], []]
    for name, items, values in zip(("a", "b"), two_seeds.items, two_seeds.values, strict=True):
        of_bags[name] = clusters(None, items)
        for loss in range(2):
            outcomes[loss].append(Outcomes(values[loss], np.ones(len(items)), name))
    covariance = sampling_noise(outcomes, of_bags).covariance
    assert np.linalg.eigvalsh(covariance.reshape(4, 4)).min() > -1e-12
    variance_of_first = covariance[0, 0, 0, 0]
    between_seeds = covariance[0, 0, 0, 1]
    assert between_seeds > 0.2 * variance_of_first


def test_items_and_groups_of_one_number_are_not_the_same() -> None:
    numbers = np.arange(20)
    by_group = clusters(numbers, None)
    by_item = clusters(None, numbers[:, None])
    residuals = residuals_of(np.random.default_rng(7).normal(size=(2, 20)))
    assert not by_group.covariance_with(by_item, residuals, residuals).any()


def test_seeds_without_common_items_are_independent() -> None:
    rng = np.random.default_rng(8)
    wrong = (rng.random((2, 2, 30)) < 0.3).astype(float)
    outcomes = []
    for first, second in wrong:
        outcomes.append([Outcomes(first, np.ones(30), "a"), Outcomes(second, np.ones(30), "b")])
    # Groups of two bags. The second seed has other groups than the first.
    groups = np.arange(30) // 2
    of_bags = {"a": clusters(groups, None), "b": clusters(groups + 100, None)}
    assert not sampling_noise(outcomes, of_bags).covariance[:, 0, :, 1].any()


def test_seeds_with_the_same_words_seldom_leave_out_the_best() -> None:
    """Every seed tests all words, written by others than those of other seeds.

    If all bags counted as independent, the best loss would be left out in more than 12 % of the
    comparisons; 5 % are promised.
    """
    words = Words(same=True, deviation=8.0)
    found = left_out_by_words(words, losses=4, seeds=5, repetitions=100)
    assert found.independent > 0.12
    assert found.between_seeds <= most_by_chance(100)


@dataclass(frozen=True)
class Differences:
    """Simulated comparisons of two losses: differences of means, and estimated variances."""

    values: Floats
    """The difference of the means in each comparison."""
    with_clusters: Floats
    """The estimated variance of the difference, where bags that share items are neighbours."""
    independent: Floats
    """The estimated variance of the difference, as if all bags were independent."""


def sample_differences(
    rng: np.random.Generator, repetitions: int, bags: int, size: int, pool: int, noise: float
) -> Differences:
    """Return the differences of two equal losses, which have one seed and bags of `size` items.

    In each comparison every item of the pool is hard for a loss by a random amount.
    """
    differences = np.empty(repetitions)
    with_clusters = np.empty(repetitions)
    independent = np.empty(repetitions)
    for repetition in range(repetitions):
        items = sample_items(rng, bags, size, pool)
        hardness = rng.normal(size=(2, pool))
        values = hardness[:, items].sum(axis=2) + noise * rng.normal(size=(2, bags))
        differences[repetition] = values[0].mean() - values[1].mean()
        outcomes = [[Outcomes(of_loss, np.ones(bags), "bags")] for of_loss in values]
        of_bags = {"bags": clusters(None, items)}
        with_clusters[repetition] = variance_of_difference(outcomes, of_bags)
        independent[repetition] = variance_of_difference(outcomes, {})
    return Differences(differences, with_clusters, independent)


def variance_of_difference(
    outcomes: list[list[Outcomes]], of_bags: Mapping[str, Clusters]
) -> float:
    """Return the variance of the difference of two losses with one seed."""
    covariance = sampling_noise(outcomes, of_bags).covariance[:, 0, :, 0]
    weights = np.array([1.0, -1.0])
    return float(weights @ covariance @ weights)


def test_the_mean_estimate_is_the_true_variance_of_a_difference() -> None:
    """Items are in several bags: the formula for independent bags is 4 to 8 times too small."""
    rng = np.random.default_rng(5)
    found = sample_differences(rng, 400, bags=300, size=4, pool=80, noise=3)
    truth = found.values.var(ddof=1)
    # Standard errors of a variance, and of a mean, of 400 normal values.
    error_of_truth = truth * np.sqrt(2 / 400)
    error_of_mean = found.with_clusters.std() / np.sqrt(400)
    mean = found.with_clusters.mean()
    assert mean == pytest.approx(truth, abs=3 * (error_of_truth + error_of_mean))
    assert 4 < truth / found.independent.mean() < 8


FOLDS = 10
TRAINED_TOGETHER = 0.1
"""The correlation of two seeds that share most of their training bags."""
OVERLAP = 1 / 8
"""Test bags for each training bag."""
WORDS = 55
"""All words of the data."""
BAGS = 220
"""The test bags of a seed."""


@dataclass(frozen=True)
class Words:
    """How words, written by several writers, are spread over folds. Each seed tests one fold."""

    same: bool
    """Whether every fold has all words; else each fold has 5 words of its own."""
    deviation: float
    """The standard deviation of how hard a word is for a loss.

    In the same unit, the standard deviation between seeds is 1, and between bags 8.
    """

    def of_fold(self, fold: int) -> NDArray[np.int64]:
        """Return the number of the word of each bag of a fold."""
        if self.same:
            return np.arange(BAGS) % WORDS
        in_fold = WORDS // FOLDS
        return np.arange(BAGS) % in_fold + in_fold * fold


@dataclass(frozen=True)
class LeftOut:
    """How often the first of equal losses is no contender, by three rules for neighbours."""

    independent: float
    """No bags are neighbours: all count as independent."""
    within_seeds: float
    """Bags of one seed with the same word are neighbours."""
    between_seeds: float
    """Bags of two seeds with the same word are neighbours, too."""


def left_out_by_words(words: Words, losses: int, seeds: int, repetitions: int) -> LeftOut:
    """Return how often the first of equal losses is no contender, where bags have these words."""
    rng = np.random.default_rng([losses, seeds, words.same])
    words_of_bags = [words.of_fold(seed) for seed in range(seeds)]
    within = {}
    between = {}
    for seed, of_bags in enumerate(words_of_bags):
        # Each seed gets numbers of its own, so that it shares no word with another seed.
        within[f"{seed}"] = clusters(of_bags + 1000 * seed, None)
        between[f"{seed}"] = clusters(of_bags, None)
    independent = 0
    within_seeds = 0
    between_seeds = 0
    for _ in range(repetitions):
        outcomes = outcomes_on_words(rng, words.deviation, words_of_bags, losses)
        independent += first_is_excluded(outcomes, {})
        within_seeds += first_is_excluded(outcomes, within)
        between_seeds += first_is_excluded(outcomes, between)
    return LeftOut(
        independent / repetitions, within_seeds / repetitions, between_seeds / repetitions
    )


def outcomes_on_words(
    rng: np.random.Generator,
    deviation: float,
    words_of_bags: list[NDArray[np.int64]],
    losses: int,
) -> list[list[Outcomes]]:
    """Return the outcomes of equal losses with each seed, where words are hard for a loss or easy.

    Args:
        rng: gives what words, losses, seeds and bags add to an outcome.
        deviation: the standard deviation of what a word adds.
        words_of_bags: for each seed the number of the word of each bag.
        losses: how many losses there are.
    """
    seeds = len(words_of_bags)
    hardness = deviation * rng.normal(size=(losses, WORDS))
    of_loss = np.sqrt(TRAINED_TOGETHER) * rng.normal(size=losses)
    of_seed = np.sqrt(1 - TRAINED_TOGETHER) * rng.normal(size=(losses, seeds))
    outcomes = []
    for loss in range(losses):
        row = []
        for seed, of_bags in enumerate(words_of_bags):
            # Errors between 0 and 1 would be compared as logits. All means are far below zero, so
            # that they are compared as they are.
            mean = of_loss[loss] + of_seed[loss, seed] - 30
            bags = mean + hardness[loss, of_bags] + 8 * rng.normal(size=BAGS)
            row.append(Outcomes(bags, np.ones(BAGS), f"{seed}"))
        outcomes.append(row)
    return outcomes


def first_is_excluded(outcomes: list[list[Outcomes]], of_bags: Mapping[str, Clusters]) -> bool:
    """Return whether the first loss is no contender.

    `contenders` would say so as well; its bounds on differences take most of its time.
    """
    values = np.array([[of_cell.value for of_cell in row] for row in outcomes])
    lower_is_better = True
    on_scale = put_on_scale(values, lower_is_better, sampling_noise(outcomes, of_bags))
    nothing_searched = search_variances([None] * len(values))
    pairs = compare_all(on_scale, OVERLAP, nothing_searched)
    is_worse = pairs.difference > pairs.widths()
    return bool(is_worse[0].any())


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "words", [Words(True, 3.0), Words(True, 8.0), Words(False, 3.0), Words(False, 8.0)], ids=str
)
def test_words_that_return_in_full(words: Words) -> None:
    """Prints a line of a table: how often the best loss is left out, by the rules of `LeftOut`."""
    columns = []
    for seeds in (3, 5, 10):
        two = left_out_by_words(words, 2, seeds, 300)
        six = left_out_by_words(words, 6, seeds, 300)
        columns.append(f"{100 * two.independent:.1f}/{100 * six.independent:.1f}")
        columns.append(f"{100 * two.within_seeds:.1f}/{100 * six.within_seeds:.1f}")
        columns.append(f"{100 * two.between_seeds:.1f}/{100 * six.between_seeds:.1f}")
    print(f"|{words}|{'|'.join(columns)}|", flush=True)


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("bags", "size", "pool", "noise"),
    [
        pytest.param(300, 4, 80, 3.0, id="bags of 4"),
        pytest.param(1000, 10, 300, 12.0, id="bags of 10"),
    ],
)
def test_intervals_hold_where_items_return_in_full(
    bags: int, size: int, pool: int, noise: float
) -> None:
    """Prints a line of a table: estimates of a variance, and how often intervals hold the truth."""
    rng = np.random.default_rng([bags, size, pool])
    found = sample_differences(rng, 2000, bags, size, pool, noise)
    truth = found.values.var(ddof=1)
    ratio_independent = found.independent.mean() / truth
    ratio_with_clusters = found.with_clusters.mean() / truth
    hold_independent = share_that_holds_zero(found.values, found.independent)
    hold_with_clusters = share_that_holds_zero(found.values, found.with_clusters)
    columns = [
        f"{bags} bags of {size} out of {pool}",
        f"{ratio_independent:.2f}",
        f"{ratio_with_clusters:.2f}",
        f"{100 * hold_independent:.1f}",
        f"{100 * hold_with_clusters:.1f}",
    ]
    print(f"|{'|'.join(columns)}|", flush=True)
    assert 0.9 < ratio_with_clusters < 1.1
    assert hold_with_clusters > 0.92


def share_that_holds_zero(differences: Floats, variances: Floats) -> float:
    """Return how often the 95 % interval of a difference holds 0, the truth for equal losses."""
    return float((np.abs(differences) < 1.96 * np.sqrt(variances)).mean())
