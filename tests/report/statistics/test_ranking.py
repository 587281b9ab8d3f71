"""Mean ranks, scores and win rates of losses over several tasks.

They are compared with values computed by hand or in loops. Intervals of mean ranks are compared
with the mean ranks of a large simulated population of tasks.
"""

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from milbench.report.statistics.ranking import mean_ranks, scores, win_rates

Floats = NDArray[np.float64]

# The errors of three losses (rows) with two seeds (columns) on three tasks. A block has the tasks
# on the same data, and all blocks have the same weight: so the first and second task count as one.
FIRST = np.array([[0.1, 0.3], [0.4, 0.6], [0.9, 0.7]])
"""The means of the losses are 0.2, 0.5 and 0.8."""
SECOND = FIRST[[1, 0, 2]]
"""The first two losses have changed places: the means are 0.5, 0.2 and 0.8."""
THIRD = np.array([[0.2, np.nan], [0.2, 0.2 + 1e-9], [0.1, 0.1]])
"""The means are 0.2, 0.2 and 0.1: the first two losses tie, apart from rounding.

A seed of the first loss is missing, which its mean leaves out.
"""
BLOCKS = [[FIRST, SECOND], [THIRD]]


def test_ranks_by_hand() -> None:
    ranks, _, _ = mean_ranks(BLOCKS)
    # The ranks are 1, 2, 3 on the first task and 2, 1, 3 on the second. On the third task the first
    # two losses share the ranks 2 and 3.
    on_same_data = np.array([1.5, 1.5, 3.0])
    on_other_data = np.array([2.5, 2.5, 1.0])
    np.testing.assert_allclose(ranks, (on_same_data + on_other_data) / 2)


def test_the_interval_of_a_mean_rank_holds_it() -> None:
    ranks, low, high = mean_ranks(BLOCKS)
    assert (low <= ranks).all()
    assert (ranks <= high).all()


def test_scores_by_hand() -> None:
    # A score is the share of the way from the error of no skill to the error of the best loss. On
    # the first two tasks no skill is at 0.8 and the best loss at 0.2, so that they are 0.6 apart.
    # On the third task no skill is at 0.2 and the best loss at 0.1.
    on_first = np.array([0.6, 0.3, 0.0]) / 0.6
    on_second = np.array([0.3, 0.6, 0.0]) / 0.6
    on_third = np.array([0.0, 0.0, 1.0])
    expected = ((on_first + on_second) / 2 + on_third) / 2
    no_skill = [[0.8, 0.8], [0.2]]
    np.testing.assert_allclose(scores(BLOCKS, no_skill), expected, atol=1e-12)


def counted_win_rates(values: Floats) -> Floats:
    """Return how often each loss beats another one with the same seed, by a smaller value.

    A tie is half a win.

    `values` has the shape (losses, seeds).
    """
    losses, seeds = values.shape
    wins = np.zeros(losses)
    for one, other in permutations(range(losses), 2):
        for seed in range(seeds):
            if values[one, seed] < values[other, seed]:
                wins[one] += 1
            elif values[one, seed] == values[other, seed]:
                wins[one] += 0.5
    return np.asarray(wins / (seeds * (losses - 1)))


@pytest.mark.parametrize("seed", range(3))
def test_win_rates_are_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # The values are whole numbers from 0 to 3, so that there are ties.
    tasks = [rng.integers(0, 4, size=(4, 3)).astype(float) for _ in range(3)]
    expected = np.mean([counted_win_rates(task) for task in tasks], axis=0)
    # Here, and below, each task is a block of its own.
    np.testing.assert_allclose(win_rates([[task] for task in tasks]), expected)


def sample_tasks(rng: np.random.Generator, count: int) -> Floats:
    """Return the errors of four losses with three seeds on random tasks, (tasks, losses, seeds).

    Over all tasks the first loss is best and the last is worst, but their order differs from task
    to task. Seeds differ less than tasks do.
    """
    over_all_tasks = np.array([0.0, 0.5, 1.0, 1.5])
    on_each_task = over_all_tasks + rng.normal(size=(count, 4))
    noise_of_seeds = 0.3 * rng.normal(size=(count, 4, 3))
    return np.asarray(on_each_task[..., None] + noise_of_seeds)


@pytest.mark.parametrize("tasks", [5, 8])
def test_intervals_hold_the_mean_rank_over_all_tasks_of_a_population(tasks: int) -> None:
    """There are 200 intervals of 95 %: one for each of four losses in each of 50 comparisons.

    On average 190 of 200 such intervals hold the truth. With other random numbers it would be fewer
    than 178 in one run of 1,000. The bound is that low since the intervals of a comparison are not
    independent.
    """
    rng = np.random.default_rng(tasks)
    # So many tasks give the mean ranks over all tasks almost exactly.
    population = sample_tasks(rng, 20_000).mean(axis=2)
    truth = stats.rankdata(population, axis=1).mean(axis=0)
    hits = 0
    for _ in range(50):
        _, low, high = mean_ranks([[task] for task in sample_tasks(rng, tasks)])
        hits += int(np.count_nonzero((low <= truth) & (truth <= high)))
    assert hits >= 178
