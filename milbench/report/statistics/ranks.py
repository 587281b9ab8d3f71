"""Ranks of losses over tasks: Friedman's test and Nemenyi's comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from milbench.report.statistics.means import student_interval

FEWEST_TASKS, FEWEST_LOSSES = 5, 3


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The ranks of m losses on several blocks, which are tasks on different data; 1 is the best.

    Args:
        mean: the mean rank over the blocks, by loss.
        intervals: Student's 95 % interval of each mean rank over the blocks, within 1 and m.
        p: of Friedman's test that all losses rank alike.
        pairs: (m, m), the p value of Nemenyi's test for every two losses, all taken together.
        critical: the difference of mean ranks from which two losses differ at the 5 % level by it.
        blocks: their number.
    """

    mean: pd.Series[float]
    intervals: dict[str, tuple[float, float]]
    p: float
    pairs: pd.DataFrame
    critical: float
    blocks: int


def rank_losses(values: pd.DataFrame, level: float = 0.05) -> Ranks:
    """Rank losses on every block and test whether their ranks differ.

    A block has one value a loss, and blocks are independent: seeds of one task share data and are not blocks, and
    neither are variants of one task (Demsar, Journal of Machine Learning Research 7, 2006, pp. 1-30).

    Args:
        values: a line a block and a column a loss, without gaps; smaller is better.
        level: of the critical difference.

    Raises:
        ImportError: scikit-posthocs, the extra milbench[ranks], is not installed.
    """
    import scikit_posthocs

    blocks, losses = values.shape
    pairs = scikit_posthocs.posthoc_nemenyi_friedman(values.to_numpy(dtype=float))
    labels = list(values.columns)
    unit = np.sqrt(losses * (losses + 1) / (6 * blocks))
    ranks = values.rank(axis=1)
    bounds = {str(loss): student_interval(own.to_numpy()) for loss, own in ranks.items()}
    return Ranks(
        mean=ranks.mean(),
        intervals={loss: (max(1.0, low), min(float(losses), high)) for loss, (low, high) in bounds.items()},
        p=float(stats.friedmanchisquare(*values.to_numpy(dtype=float).T).pvalue),
        pairs=pd.DataFrame(pairs.to_numpy(), index=labels, columns=labels),
        critical=float(stats.studentized_range.isf(level, losses, np.inf) / np.sqrt(2) * unit),
        blocks=blocks,
    )
