"""Losses over several tasks: mean ranks with intervals, win rates, and scores.

A score says where a loss lies between no skill and the best loss.

The interval of a mean rank is a bootstrap over tasks and seeds. With few tasks, percentile
intervals are too short, about as much as normal quantiles are smaller than Student's. The
percentiles are moved outwards to make up for this (T. C. Hesterberg, "What teachers should know
about the bootstrap", The American Statistician 69, 2015, pp. 371-386).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.sampling import Floats

RESAMPLES = 4000
"""The number of bootstrap samples for the interval of a mean rank."""

ROUNDED_TO = 7
"""The decimals of a mean that count, about as many as a published report keeps.

Losses with equal means are a tie.
"""

_NO_GAIN = 1e-12
"""The smallest gain of the best loss by which gains are divided.

It keeps all scores at 0 if no loss is better than no skill.
"""

Blocks = Sequence[Sequence[Floats]]
"""The values of losses in blocks: a block has the tasks on the same data.

Each task has values (losses, seeds), smaller is better, NaN where a seed is missing. Every block
has the same weight, since tasks on the same data are not independent (J. Demsar, Journal of Machine
Learning Research 7, 2006, pp. 1-30).
"""


def mean_ranks(blocks: Blocks) -> tuple[Floats, Floats, Floats]:
    """Return the mean rank of each loss over blocks, and the bounds of its 95 % interval.

    Rank 1 is the best. A bootstrap sample takes as many blocks as there are, and for each task as
    many seeds as there are, at random with replacement. All losses get the same blocks and seeds.
    If a loss has a value with none of the seeds that were taken, its mean over all seeds counts.
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

    # The percentiles are moved outwards, as the docstring of this module says.
    student = special.stdtrit(count - 1, (1 - LEVEL) / 2)
    tail = special.ndtr(math.sqrt(count / (count - 1)) * student)
    low, high = np.quantile(taken, [tail, 1 - tail], axis=0)
    return ranks, low, high


def _ranks_of_block(block: Sequence[Floats]) -> Floats:
    """Return the mean rank of each loss over the tasks of a block, (losses,)."""
    means = [np.nanmean(task, axis=1) for task in block]
    ranks = _ranks(np.round(means, ROUNDED_TO), axis=1)
    return np.asarray(ranks.mean(axis=0))


def _resampled_ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """Return the ranks of losses on a task in each bootstrap sample of seeds, (samples, losses)."""
    seeds = values.shape[1]
    # (samples, seeds), how often each sample has each seed.
    times = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES).astype(float)
    known = times @ np.isfinite(values).T
    sums = times @ np.nan_to_num(values).T
    means = np.where(known > 0, sums / np.maximum(known, 1), np.nanmean(values, axis=1))
    return _ranks(means.round(ROUNDED_TO), axis=1)


def _ranks(values: Floats, axis: int) -> Floats:
    """Return the ranks of values along an axis, from 1 for the smallest; ties have a mean rank."""
    # scipy.stats takes a while to import, and few reports rank losses over tasks.
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=axis), float)


def win_rates(blocks: Blocks) -> Floats:
    """Return the win rate of each loss: how often it is better than another one.

    Two losses are compared with the same seed of the same task, and a tie counts as half a win. The
    rate is a mean over blocks.
    """
    rates_of_blocks = []
    for block in blocks:
        rates_of_tasks = [_wins(task) for task in block]
        rates_of_blocks.append(np.mean(rates_of_tasks, axis=0))
    return np.asarray(np.mean(rates_of_blocks, axis=0))


def _wins(values: Floats) -> Floats:
    """Return how often each loss is better than another one, from values (losses, seeds)."""
    # (losses, other losses, seeds).
    differences = values[:, None] - values
    wins = (1 - np.sign(differences)) / 2
    everyone = np.arange(len(values))
    wins[everyone, everyone] = np.nan
    return np.asarray(np.nanmean(wins, axis=(1, 2)))


def scores(blocks: Blocks, lines: Sequence[Sequence[float]]) -> Floats:
    """Return the score of each loss, a mean over blocks.

    On a task, no skill or worse has the score 0, and the best loss has 1.

    Args:
        blocks: the values of losses on tasks.
        lines: the value of no skill on every task of `blocks`.
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
