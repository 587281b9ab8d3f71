"""The covariance of means over bags that share items: against a double loop, closed forms and a simulation."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import Clusters, clusters
from milbench.report.statistics.pairs import compare_all, put_on_scale
from milbench.report.statistics.sampling import SamplingNoise, sampling_noise
from milbench.report.statistics.selection import search_variances

Floats = NDArray[np.float64]


def residuals_of(values: Floats) -> Floats:
    """Return what each bag adds to the deviation of a mean, for values (means, bags)."""
    return np.asarray((values - values.mean(axis=1, keepdims=True)) / values.shape[1])


def drawn_items(rng: np.random.Generator, bags: int, size: int, pool: int) -> NDArray[np.int64]:
    """Return the items of bags of one size, each without repetition, (bags, size)."""
    return np.stack([rng.choice(pool, size, replace=False) for _ in range(bags)])


def summed_by_a_double_loop(
    residuals: Floats, group: NDArray[np.int64], items: NDArray[np.int64]
) -> Floats:
    """Return the sum over neighbours, and the number of pairs of neighbours."""
    bags = len(group)
    total = np.zeros((len(residuals), len(residuals)))
    pairs = 0
    for one in range(bags):
        for other in range(bags):
            common = set(items[one].tolist()) & set(items[other].tolist()) - {-1}
            if one == other or group[one] == group[other] or common:
                total += np.outer(residuals[:, one], residuals[:, other])
                pairs += 1
    return total / (1 - pairs / bags**2)


def values_by_item(rng: np.random.Generator, items: NDArray[np.int64]) -> Floats:
    """Return values of three means that depend so much on items that the sum is positive definite."""
    effects = rng.normal(size=(3, items.max() + 1))
    return np.asarray(np.where(items >= 0, effects[:, items], 0).sum(axis=2))


def test_the_covariance_is_the_sum_over_neighbours() -> None:
    rng = np.random.default_rng(0)
    items = drawn_items(rng, bags=120, size=3, pool=60)
    items[rng.random(items.shape) < 0.3] = -1
    group = np.arange(120) // 2
    residuals = residuals_of(values_by_item(rng, items))
    expected = summed_by_a_double_loop(residuals, group, items)
    assert np.linalg.eigvalsh(expected).min() > 0
    found = clusters(group, items).covariance(residuals)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("has_group", [False, True])
def test_unique_items_give_the_covariance_of_independent_bags(has_group: bool) -> None:
    rng = np.random.default_rng(1)
    wrong = (rng.random((2, 3, 50)) < 0.3).astype(float)
    outcomes = [[Outcomes(of_cell, np.ones(50), "bags") for of_cell in row] for row in wrong]
    unique = clusters(np.arange(50) if has_group else None, np.arange(200).reshape(50, 4))
    found = sampling_noise(outcomes, {"bags": unique}).covariance
    np.testing.assert_array_equal(found, sampling_noise(outcomes).covariance)


def test_equal_groups_give_the_covariance_of_their_means() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(2, 10, 6)) + rng.normal(size=(2, 10, 1))
    found = clusters(np.repeat(np.arange(10), 6), None).covariance(
        residuals_of(values.reshape(2, 60))
    )
    np.testing.assert_allclose(found, np.cov(values.mean(axis=2)) / 10, rtol=1e-12)


def test_the_covariance_has_no_negative_eigenvalue() -> None:
    rng = np.random.default_rng(3)
    items = drawn_items(rng, bags=40, size=3, pool=20)
    hardness = rng.normal(size=(12, 20))
    residuals = residuals_of(hardness[:, items].sum(axis=2) + rng.normal(size=(12, 40)))
    plain = residuals @ (clusters(None, items).neighbours @ residuals.T)
    assert np.diagonal(plain).min() > 0
    assert np.linalg.eigvalsh(plain).min() < -1e-4
    found = clusters(None, items).covariance(residuals)
    assert np.linalg.eigvalsh(found).min() > -1e-12


def test_bags_that_all_share_an_item_are_named() -> None:
    everything_shared = clusters(None, np.zeros((30, 1), int))
    with pytest.raises(ValueError, match="of all pairs of 30 test bags 100% share an item"):
        everything_shared.covariance(np.zeros((2, 30)))


def test_bags_of_few_items_are_named_even_if_some_share_none() -> None:
    """Of 100 bags with 10 of 25 items all pairs but one in a thousand share one."""
    items = drawn_items(np.random.default_rng(0), bags=100, size=10, pool=25)
    residuals = residuals_of(np.random.default_rng(1).normal(size=(1, 100)))
    with pytest.raises(ValueError, match="share an item"):
        clusters(None, items).covariance(residuals)


def test_a_variance_that_comes_out_negative_is_not_known() -> None:
    items = np.array([[0, 1], [0, 2], [1, 2], [0, 1], [2, 3]])
    residuals = residuals_of(np.array([[1.0, 0, 0, 1, 1]]))
    # All pairs but two are neighbours: the fifth bag has nothing in common with the first and the fourth.
    apart = residuals[0, 4] * (residuals[0, 0] + residuals[0, 3])
    assert 0 - 2 * apart < 0
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


def test_bags_of_two_seeds_that_share_something_vary_together() -> None:
    rng = np.random.default_rng(6)
    effects = rng.normal(size=(2, 30))
    items = {"a": drawn_items(rng, 40, 2, 30), "b": drawn_items(rng, 50, 2, 30)}
    of_bags = {name: clusters(None, numbers) for name, numbers in items.items()}
    values = {name: effects[:, numbers].sum(axis=2) for name, numbers in items.items()}
    outcomes = [
        [Outcomes(values[name][loss], np.ones(len(items[name])), name) for name in ("a", "b")]
        for loss in range(2)
    ]
    total = np.zeros((2, 2))
    pairs = 0
    first = residuals_of(values["a"].astype(np.float32).astype(float))
    second = residuals_of(values["b"].astype(np.float32).astype(float))
    for one, other in product(range(40), range(50)):
        if set(items["a"][one].tolist()) & set(items["b"][other].tolist()):
            total += np.outer(first[:, one], second[:, other])
            pairs += 1
    found = of_bags["a"].covariance_with(of_bags["b"], first, second)
    np.testing.assert_allclose(found, total / (1 - pairs / (40 * 50)), rtol=1e-9)
    whole = sampling_noise(outcomes, of_bags).covariance
    assert np.linalg.eigvalsh(whole.reshape(4, 4)).min() > -1e-12
    assert whole[0, 0, 0, 1] > 0.2 * whole[0, 0, 0, 0]


def test_items_and_groups_of_one_number_are_not_the_same() -> None:
    numbers = np.arange(20)
    by_group = clusters(numbers, None)
    by_item = clusters(None, numbers[:, None])
    residuals = residuals_of(np.random.default_rng(7).normal(size=(2, 20)))
    assert not by_group.covariance_with(by_item, residuals, residuals).any()


def test_seeds_without_common_items_are_independent() -> None:
    rng = np.random.default_rng(8)
    wrong = (rng.random((2, 2, 30)) < 0.3).astype(float)
    outcomes = [[Outcomes(row[seed], np.ones(30), f"{seed}") for seed in range(2)] for row in wrong]
    halves = {f"{seed}": clusters(np.arange(30) // 2 + 100 * seed, None) for seed in range(2)}
    assert not sampling_noise(outcomes, halves).covariance[:, 0, :, 1].any()


def test_seeds_with_the_same_words_seldom_leave_out_the_best() -> None:
    """Every seed tests all words, by other writers: counted as independent, it is left out five times as often."""
    words = Words(same=True, deviation=8.0)
    independent, _, together = left_out_by_words(words, losses=4, seeds=5, repetitions=100)
    assert independent > 0.12
    assert together <= stats.binom.isf(1e-4, 100, 0.05) / 100


def test_the_true_variance_of_a_difference_is_met() -> None:
    """Where items return, the formula for independent bags is 4 to 8 times too small."""
    rng = np.random.default_rng(5)
    repetitions, bags, size, pool = 400, 300, 4, 80
    differences = np.empty(repetitions)
    with_clusters = np.empty(repetitions)
    independent = np.empty(repetitions)
    for repetition in range(repetitions):
        items = drawn_items(rng, bags, size, pool)
        hardness = rng.normal(size=(2, pool))
        values = hardness[:, items].sum(axis=2) + 3 * rng.normal(size=(2, bags))
        outcomes = [[Outcomes(of_loss, np.ones(bags), "bags")] for of_loss in values]
        differences[repetition] = values[0].mean() - values[1].mean()
        found = variance_of_difference(outcomes, clusters(None, items))
        with_clusters[repetition], independent[repetition] = found
    truth = differences.var(ddof=1)
    error = truth * np.sqrt(2 / repetitions) + with_clusters.std() / np.sqrt(repetitions)
    assert with_clusters.mean() == pytest.approx(truth, abs=3 * error)
    assert 4 < truth / independent.mean() < 8


def variance_of_difference(
    outcomes: list[list[Outcomes]], of_bags: Clusters
) -> tuple[float, float]:
    """Return the variance of the difference of two losses with one seed, with clusters and without."""
    with_clusters = sampling_noise(outcomes, {"bags": of_bags}).covariance[:, 0, :, 0]
    independent = sampling_noise(outcomes).covariance[:, 0, :, 0]
    weights = np.array([1.0, -1.0])
    return float(weights @ with_clusters @ weights), float(weights @ independent @ weights)


FOLDS = 10
TRAINED_TOGETHER = 0.1
"""The correlation of two seeds that share most of their training bags."""
OVERLAP = 1 / 8
"""Test bags for each training bag."""
WORDS = 55
BAGS = 220


@dataclass(frozen=True)
class Words:
    """Seeds that test folds of words which several writers wrote."""

    same: bool
    """Whether every fold has all words; else each has 5 others."""
    deviation: float
    """The standard deviation of how hard a word is for a loss; it is 1 between seeds, and 8 between bags."""

    def of_fold(self, fold: int) -> NDArray[np.int64]:
        """Return the words of the bags of a fold."""
        if self.same:
            return np.arange(BAGS) % WORDS
        in_fold = WORDS // FOLDS
        return np.arange(BAGS) % in_fold + in_fold * fold


def left_out_by_words(
    words: Words, losses: int, seeds: int, repetitions: int
) -> tuple[float, float, float]:
    """Return how often the first of equal losses is no contender.

    That is with independent bags, with words as groups within each seed, and also between seeds.
    """
    rng = np.random.default_rng([losses, seeds, words.same])
    labels = {f"{seed}": words.of_fold(seed) for seed in range(seeds)}
    between = {seed: clusters(of_bags, None) for seed, of_bags in labels.items()}
    within = {seed: clusters(of_bags + 1000 * int(seed), None) for seed, of_bags in labels.items()}
    counts = np.zeros(3)
    for _ in range(repetitions):
        hardness = words.deviation * rng.normal(size=(losses, WORDS))
        of_loss = np.sqrt(TRAINED_TOGETHER) * rng.normal(size=losses)
        of_seed = np.sqrt(1 - TRAINED_TOGETHER) * rng.normal(size=(losses, seeds))
        outcomes: list[list[Outcomes]] = []
        for loss in range(losses):
            row = []
            for seed, of_bags in labels.items():
                mean = of_loss[loss] + of_seed[loss, int(seed)] - 30
                bags = mean + hardness[loss, of_bags] + 8 * rng.normal(size=BAGS)
                row.append(Outcomes(bags, np.ones(BAGS), seed))
            outcomes.append(row)
        values = np.array([[of_cell.value for of_cell in row] for row in outcomes])
        for number, shared in enumerate((None, within, between)):
            noise = sampling_noise(outcomes, shared)
            counts[number] += first_is_excluded(values, noise)
    independent, in_seeds, everywhere = (counts / repetitions).tolist()
    return independent, in_seeds, everywhere


def first_is_excluded(values: Floats, noise: SamplingNoise) -> bool:
    """Return whether the first loss is no contender, without the bounds, which take most of the time."""
    on_scale = put_on_scale(values, True, noise)
    nothing_searched = search_variances([None] * len(values))
    pairs = compare_all(on_scale, OVERLAP, nothing_searched)
    return bool((pairs.difference > pairs.widths())[0].any())


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "words", [Words(True, 3.0), Words(True, 8.0), Words(False, 3.0), Words(False, 8.0)], ids=str
)
def test_words_that_return_in_full(words: Words) -> None:
    """Prints a line of a table: how often the best loss is left out, with and without words as groups."""
    cells = []
    for seeds in (3, 5, 10):
        found = [left_out_by_words(words, losses, seeds, 300) for losses in (2, 6)]
        by_rule = zip(*found, strict=True)
        cells += ["/".join(f"{100 * share:.1f}" for share in shares) for shares in by_rule]
    print(f"|{words}|{'|'.join(cells)}|", flush=True)


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("bags", "size", "pool", "noise"), [(300, 4, 80, 3.0), (1000, 10, 300, 12.0)]
)
def test_intervals_hold_where_items_return_in_full(
    bags: int, size: int, pool: int, noise: float
) -> None:
    """Prints a line of a table: how far variances are from the truth, and how often intervals hold it."""
    rng = np.random.default_rng([bags, size, pool])
    repetitions = 2000
    differences = np.empty(repetitions)
    estimates = np.empty((repetitions, 2))
    for repetition in range(repetitions):
        items = drawn_items(rng, bags, size, pool)
        hardness = rng.normal(size=(2, pool))
        values = hardness[:, items].sum(axis=2) + noise * rng.normal(size=(2, bags))
        outcomes = [[Outcomes(of_loss, np.ones(bags), "bags")] for of_loss in values]
        differences[repetition] = values[0].mean() - values[1].mean()
        estimates[repetition] = variance_of_difference(outcomes, clusters(None, items))
    with_clusters, independent = estimates.mean(axis=0) / differences.var(ddof=1)
    holds = np.abs(differences[:, None]) < 1.96 * np.sqrt(estimates)
    cells = [f"{share:.2f}" for share in (independent, with_clusters)]
    cells += [f"{100 * share:.1f}" for share in holds.mean(axis=0)[::-1]]
    print(f"|{bags} bags of {size} out of {pool}|{'|'.join(cells)}|", flush=True)
    assert 0.9 < with_clusters < 1.1
    assert holds[:, 0].mean() > 0.92
