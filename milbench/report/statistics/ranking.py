"""Losses over several tasks: mean ranks with intervals, win rates, and scores between no skill and the best.

The interval of a mean rank is a bootstrap over tasks and seeds. Percentiles of so few tasks are too near to one another
by about what the normal distribution is beside Student's t; they are expanded by that (T. C. Hesterberg, "What teachers
should know about the bootstrap", The American Statistician 69, 2015, pp. 371-386).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from milbench.report.statistics.differences import LEVEL
from milbench.report.statistics.sampling import Floats

DRAWS = 4000
Blocks = Sequence[Sequence[Floats]]
"""Of every block of tasks on the same data the values (losses, seeds) on each task, the smaller the better, NaN where a
seed is missing. Blocks count alike, since tasks on the same data are not independent (J. Demsar, Journal of Machine
Learning Research 7, 2006, pp. 1-30)."""


def mean_ranks(blocks: Blocks) -> tuple[Floats, Floats, Floats]:
    """Return the mean rank of each loss over blocks, 1 is the best, and the bounds of its 95 % interval.

    Every draw takes as many blocks, and of each task as many seeds, at random with replacement; losses stay paired. A
    loss that has none of the drawn seeds of a task takes its mean over all.
    """
    means = [[np.nanmean(task, axis=1) for task in block] for block in blocks]
    ranks = np.mean([_ranks(np.round(of_block, 7)).mean(axis=0) for of_block in means], axis=0)
    rng, count = np.random.default_rng(0), len(blocks)
    drawn = np.stack(
        [np.mean([_drawn_ranks(task, rng) for task in block], axis=0) for block in blocks]
    )
    taken = drawn[
        rng.integers(count, size=(DRAWS, count)), rng.integers(DRAWS, size=(DRAWS, count))
    ].mean(axis=1)
    tail = special.ndtr(
        math.sqrt(count / (count - 1)) * special.stdtrit(count - 1, (1 - LEVEL) / 2)
    )
    low, high = np.quantile(taken, [tail, 1 - tail], axis=0)
    return ranks, low, high


def _drawn_ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """Return the ranks of the losses in each draw of the seeds of a task, (draws, losses)."""
    seeds = values.shape[1]
    counts = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS).astype(float)
    known = counts @ np.isfinite(values).T
    sums = counts @ np.nan_to_num(values).T
    means = np.where(known > 0, sums / np.maximum(known, 1), np.nanmean(values, axis=1))
    # Rounded, so that ties are those that a published frame keeps.
    return _ranks(means.round(7))


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value in its row, 1 is the smallest, and equal ones share their mean rank."""
    # It takes a while to import, and few reports rank losses over tasks.
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=1), float)


def win_rates(blocks: Blocks) -> Floats:
    """Return how often each loss is better than another one with the same seed, a tie counted as half, over blocks."""
    return np.asarray(
        np.mean([np.mean([_wins(task) for task in block], axis=0) for block in blocks], axis=0)
    )


def _wins(values: Floats) -> Floats:
    differences = values[:, None] - values  # (losses, others, seeds)
    wins = np.where(np.isnan(differences), np.nan, (1 - np.sign(differences)) / 2)
    wins[np.arange(len(values)), np.arange(len(values))] = np.nan
    return np.asarray(np.nanmean(wins, axis=(1, 2)))


def scores(blocks: Blocks, lines: Sequence[Sequence[float]]) -> Floats:
    """Return where each loss lies between the no-skill line of a task, 0 as what is worse, and its best loss, 1."""
    of_blocks = []
    for block, known in zip(blocks, lines, strict=True):
        gains = [line - np.nanmean(task, axis=1) for task, line in zip(block, known, strict=True)]
        of_blocks.append(
            np.mean([np.clip(gain, 0, None) / max(gain.max(), 1e-12) for gain in gains], axis=0)
        )
    return np.asarray(np.mean(of_blocks, axis=0))
