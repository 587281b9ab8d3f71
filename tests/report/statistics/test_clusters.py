"""The covariance of means over bags that share items: against a double loop, closed forms and a simulation."""

import numpy as np
import pytest
from numpy.typing import NDArray

from milbench.contracts.outcomes import Outcomes
from milbench.report.statistics.clusters import Clusters, clusters
from milbench.report.statistics.sampling import sampling_noise

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
    residuals = residuals_of(rng.normal(size=(12, 40)))
    plain = residuals @ (clusters(None, items).neighbours @ residuals.T)
    assert np.linalg.eigvalsh(plain).min() < -1e-4
    found = clusters(None, items).covariance(residuals)
    assert np.linalg.eigvalsh(found).min() > -1e-12


def test_bags_that_all_share_an_item_are_named() -> None:
    everything_shared = clusters(None, np.zeros((30, 1), int))
    with pytest.raises(ValueError, match="every two of 30 test bags"):
        everything_shared.covariance(np.zeros((2, 30)))


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
