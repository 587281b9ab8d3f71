"""Losses over tasks: by hand, by loops over everything, and in simulated populations of tasks."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from milbench.report.statistics.ranking import mean_ranks, scores, win_rates


def test_ranks_and_scores_by_hand_with_tasks_on_the_same_data_as_one() -> None:
    first = np.array([[0.1, 0.3], [0.4, 0.6], [0.9, 0.7]])  # means 0.2, 0.5, 0.8
    second = first[[1, 0, 2]]
    third = np.array([[0.2, np.nan], [0.2, 0.2 + 1e-9], [0.1, 0.1]])  # a tie, but for rounding
    blocks = [[first, second], [third]]
    found, low, high = mean_ranks(blocks)
    np.testing.assert_allclose(found, [(1.5 + 2.5) / 2, (1.5 + 2.5) / 2, (3 + 1) / 2])
    assert (low <= found).all()
    assert (found <= high).all()
    by_hand = [((0.6 + 0.3) / 0.6 / 2 + 0) / 2, ((0.3 + 0.6) / 0.6 / 2 + 0) / 2, (0 + 1) / 2]
    np.testing.assert_allclose(scores(blocks, [[0.8, 0.8], [0.2]]), by_hand, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_win_rates_are_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tasks = [rng.integers(0, 4, size=(4, 3)).astype(float) for _ in range(3)]  # with ties
    wins = np.zeros((3, 4))
    for task, i, j, k in product(range(3), range(4), range(4), range(3)):
        a, b = tasks[task][[i, j], k]
        wins[task, i] += 0 if i == j else (a < b) + (a == b) / 2
    np.testing.assert_allclose(win_rates([[task] for task in tasks]), wins.mean(axis=0) / (3 * 3))


@pytest.mark.parametrize("tasks", [5, 8])
def test_intervals_hold_the_mean_rank_over_all_tasks_of_a_population(tasks: int) -> None:
    """At 95 % fewer than 178 of 200 have a probability below 0.001 (losses of a comparison are not independent)."""
    rng, levels = np.random.default_rng(tasks), np.array([0.0, 0.5, 1.0, 1.5])

    def population(
        count: int,
    ) -> np.ndarray:  # (tasks, losses, seeds): what a loss is worth differs from task to task
        return (levels + rng.normal(size=(count, 4)))[..., None] + 0.3 * rng.normal(
            size=(count, 4, 3)
        )

    truth = stats.rankdata(population(20_000).mean(axis=2), axis=1).mean(axis=0)
    hits = 0
    for _ in range(50):
        _, low, high = mean_ranks([[task] for task in population(tasks)])
        hits += int(((low <= truth) & (truth <= high)).sum())
    assert hits >= 178
