"""The set of contenders holds the best loss as often as it promises, and excludes what is clearly worse."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from milbench.api.outcomes import Outcomes
from milbench.report.statistics.contenders import contenders, dunnett
from milbench.report.statistics.sampling import sampling_noise
from tests._helpers.simulated_losses import SCENES, left_out, left_out_by_items, power

LOSSES, SEEDS = (2, 3, 6, 18), (3, 5, 10, 20)


def limit(share: float, repetitions: int) -> float:
    """Return what a method that errs in this share exceeds once in ten thousand counts."""
    return float(stats.binom.isf(1e-4, repetitions, share)) / repetitions


@pytest.mark.parametrize(
    ("scene", "losses", "seeds"),
    [
        ("normal", 2, 3),
        ("with seed effects", 6, 3),
        ("skewed to large errors", 3, 5),
        ("the best varies 4 times as much", 6, 3),
        ("half of the seeds collapse", 6, 5),
    ],
)
def test_the_best_loss_is_seldom_left_out(scene: str, losses: int, seeds: int) -> None:
    assert left_out(scene, losses, seeds, 300) <= limit(0.07 if seeds == 3 else 0.05, 300)


def test_test_items_that_all_seeds_share_count() -> None:
    assert left_out_by_items(0.009, losses=2, seeds=10, own_items=False, repetitions=150) <= limit(0.05, 150)


def test_three_seeds_suffice_for_a_gross_difference() -> None:
    ours, of_pairs = power(4, losses=6, seeds=3, repetitions=100)
    assert ours > 0.9
    assert of_pairs < 0.5


def test_the_quantile_is_that_of_scipy_for_one_rival_and_of_a_simulation_for_several() -> None:
    assert dunnett(1, 4) == pytest.approx(stats.t.ppf(0.95, 4), rel=0.005)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(200_000, 6))
    statistics = (means[:, 1:].max(axis=1) - means[:, 0]) / np.sqrt(2 * rng.chisquare(8, 200_000) / 8)
    assert dunnett(5, 8) == pytest.approx(np.quantile(statistics, 0.95), rel=0.01)


def test_what_is_missing_takes_no_part() -> None:
    errors = [[0.10, 0.11, 0.10, 0.12], [0.4, np.nan, 0.41, 0.42], [np.nan] * 4, [0.1, 0.11, np.nan, 0.12]]
    assert contenders(errors).tolist() == [True, False, False, True]


def test_one_seed_excludes_no_loss_with_a_value() -> None:
    assert contenders([[0.1], [0.9], [np.nan]]).tolist() == [True, True, False]


def test_larger_is_better_where_the_metric_says_so() -> None:
    rates = [[0.90, 0.91, 0.92], [0.5, 0.52, 0.51], [0.89, 0.91, 0.9]]
    assert contenders(rates, lower_is_better=False).tolist() == [True, False, True]


def test_splits_of_the_same_bags_widen_the_set() -> None:
    errors = [[0.10, 0.11, 0.12, 0.10, 0.09], [0.13, 0.12, 0.14, 0.15, 0.13], [0.3, 0.29, 0.31, 0.3, 0.32]]
    assert contenders(errors).tolist() == [True, False, False]
    assert contenders(errors, overlap=1.0).tolist() == [True, True, False]


def test_equal_seeds_do_not_hide_that_few_items_were_tested() -> None:
    """2 and 6 errors in 40 items, with every seed: by the sign test of 4 discordant items p is 0.06."""
    wrong = np.zeros((2, 40))
    wrong[0, :2] = wrong[1, :6] = 1
    outcomes = [[Outcomes(row, np.ones(40), "same")] * 3 for row in wrong]
    errors = wrong.mean(axis=1, keepdims=True).repeat(3, axis=1)
    assert contenders(errors).tolist() == [True, False]
    assert contenders(errors, noise=sampling_noise(outcomes)).tolist() == [True, True]


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize("scene", SCENES)
def test_every_scene_in_full(scene: str) -> None:
    """Prints a line of the table in docs/statistics.md: in how many of 1,500 draws the best loss is left out."""
    shares = {(m, n): left_out(scene, m, n, 1500) for n, m in product(SEEDS, LOSSES)}
    cells = (" / ".join(f"{100 * shares[m, n]:.1f}" for m in LOSSES) for n in SEEDS)
    print(f"| {scene} | {' | '.join(cells)} |", flush=True)
    assert all(share <= limit(0.07 if n == 3 else 0.05, 1500) for (_, n), share in shares.items())


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize("own_items", [False, True])
@pytest.mark.parametrize("error", [0.009, 0.15])
def test_test_items_in_full(error: float, own_items: bool) -> None:
    shares = {(m, n): left_out_by_items(error, m, n, own_items, 500) for n, m in product((3, 5, 10), (2, 3, 6))}
    cells = (" / ".join(f"{100 * shares[m, n]:.1f}" for m in (2, 3, 6)) for n in (3, 5, 10))
    print(f"| {error:.1%} error, {'own' if own_items else 'shared'} items | {' | '.join(cells)} |", flush=True)
    assert all(share <= limit(0.07 if n == 3 else 0.05, 500) for (_, n), share in shares.items())


@pytest.mark.simulation
@pytest.mark.timeout(0)
@pytest.mark.parametrize("worse", [2, 3, 4])
def test_power_in_full(worse: int) -> None:
    """Prints a line of the second table: how often a worse loss is excluded, by contenders and by all pairs."""
    found = {(m, n): power(worse, m, n, 500) for n, m in product((3, 5, 10), LOSSES)}
    cells = (" / ".join("{:.2f} ({:.2f})".format(*found[m, n]) for m in LOSSES) for n in (3, 5, 10))
    print(f"| {worse} | {' | '.join(cells)} |", flush=True)
    assert all(ours >= of_pairs - 0.02 for ours, of_pairs in found.values())
