"""Losses over several tasks: mean ranks with intervals, win rates, and scores between no skill and the best.

The interval of a mean rank is a bootstrap over tasks and seeds. Percentiles of so few tasks are too
near to one another by about what the normal distribution is beside Student's t; they are expanded
by that (T. C. Hesterberg, "What teachers should know about the bootstrap", The American
Statistician 69, 2015, pp. 371-386).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.sampling import Floats

RESAMPLES = 4000
"""How often blocks and seeds are drawn anew for the interval of a mean rank."""

ROUNDED_TO = 7
"""Decimals of a mean: two losses that a published frame shows as equal are a tie."""

_NO_GAIN = 1e-12
"""Where no loss is better than the line, all scores are 0."""

Blocks = Sequence[Sequence[Floats]]
"""Of every block of tasks on the same data the values (losses, seeds) on each task, the smaller the better, NaN where a
seed is missing. Blocks count alike, since tasks on the same data are not independent (J. Demsar,
Journal of Machine
Learning Research 7, 2006, pp. 1-30)."""


def mean_ranks(blocks: Blocks) -> tuple[Floats, Floats, Floats]:
    """Return the mean rank of each loss over blocks, 1 is the best, and the bounds of its 95 % interval.

    Every resample takes as many blocks, and of each task as many seeds, at random with replacement;
    losses stay paired. A loss that has none of these seeds of a task takes its mean over all.
    """
    ranks = np.mean([_ranks_of_block(block) for block in blocks], axis=0)
    rng = np.random.default_rng(0)
    count = len(blocks)
    ranks_of_blocks = []
    for block in blocks:
        ranks_of_tasks = [_resampled_ranks(task, rng) for task in block]
        ranks_of_blocks.append(np.mean(ranks_of_tasks, axis=0))
    # (blocks, resamples of the seeds, losses).
    resampled = np.stack(ranks_of_blocks)
    which_block = rng.integers(count, size=(RESAMPLES, count))
    which_resample = rng.integers(RESAMPLES, size=(RESAMPLES, count))
    taken = resampled[which_block, which_resample].mean(axis=1)

    student = special.stdtrit(count - 1, (1 - LEVEL) / 2)
    tail = special.ndtr(math.sqrt(count / (count - 1)) * student)
    low, high = np.quantile(taken, [tail, 1 - tail], axis=0)
    return ranks, low, high


def _ranks_of_block(block: Sequence[Floats]) -> Floats:
    """Return the mean over the tasks of a block of the rank of each loss, (losses,)."""
    means = [np.nanmean(task, axis=1) for task in block]
    ranks = _ranks(np.round(means, ROUNDED_TO), axis=1)
    return np.asarray(ranks.mean(axis=0))


def _resampled_ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """Return the ranks of the losses with each resample of the seeds of a task, (resamples, losses)."""
    seeds = values.shape[1]
    # How often each resample has each seed, (resamples, seeds).
    times = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES).astype(float)
    known = times @ np.isfinite(values).T
    sums = times @ np.nan_to_num(values).T
    means = np.where(known > 0, sums / np.maximum(known, 1), np.nanmean(values, axis=1))
    return _ranks(means.round(ROUNDED_TO), axis=1)


def _ranks(values: Floats, axis: int) -> Floats:
    """Return the ranks of values along an axis, 1 is the smallest, and equal ones share their mean rank."""
    # It takes a while to import, and few reports rank losses over tasks.
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=axis), float)


def win_rates(blocks: Blocks) -> Floats:
    """Return how often each loss is better than another one with the same seed, a tie counted as half, over blocks."""
    rates_of_blocks = []
    for block in blocks:
        rates_of_tasks = [_wins(task) for task in block]
        rates_of_blocks.append(np.mean(rates_of_tasks, axis=0))
    return np.asarray(np.mean(rates_of_blocks, axis=0))


def _wins(values: Floats) -> Floats:
    """Return how often each loss is better than another one, from values (losses, seeds)."""
    # (losses, others, seeds).
    differences = values[:, None] - values
    wins = (1 - np.sign(differences)) / 2
    everyone = np.arange(len(values))
    wins[everyone, everyone] = np.nan
    return np.asarray(np.nanmean(wins, axis=(1, 2)))


def scores(blocks: Blocks, lines: Sequence[Sequence[float]]) -> Floats:
    """Return where each loss lies between the line of no skill of a task, 0, and the task's best loss, 1.

    What is worse than the line has 0 as well. `lines` has the line of every task of `blocks`.
    """
    scores_of_blocks = []
    for block, lines_of_block in zip(blocks, lines, strict=True):
        scores_of_tasks = []
        for task, line in zip(block, lines_of_block, strict=True):
            gain = line - np.nanmean(task, axis=1)
            best = max(gain.max(), _NO_GAIN)
            scores_of_tasks.append(np.clip(gain, 0, None) / best)
        scores_of_blocks.append(np.mean(scores_of_tasks, axis=0))
    return np.asarray(np.mean(scores_of_blocks, axis=0))
