"""Ranks of losses over tasks: Friedman's test and Nemenyi's comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

FEWEST_TASKS, FEWEST_LOSSES = 5, 3


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The ranks of m losses on several tasks; 1 is the best.

    Args:
        mean: the mean rank over the tasks, by loss.
        p: of Friedman's test that all losses rank alike.
        pairs: (m, m), the p value of Nemenyi's test for every two losses, all taken together.
        critical: the difference of mean ranks from which two losses differ at the 5 % level by it.
        tasks: their number.
    """

    mean: pd.Series[float]
    p: float
    pairs: pd.DataFrame
    critical: float
    tasks: int


def rank_losses(values: pd.DataFrame, level: float = 0.05) -> Ranks:
    """Rank losses on every task and test whether their ranks differ.

    The tasks are the independent blocks of the test, with one value a loss, its mean over seeds: seeds of one task
    share their data and are no blocks (Demsar, Journal of Machine Learning Research 7, 2006, pp. 1-30).

    Args:
        values: a line a task and a column a loss, without gaps; smaller is better.
        level: of the critical difference.

    Raises:
        ImportError: scikit-posthocs, the extra milbench[ranks], is not installed.
    """
    import scikit_posthocs

    tasks, losses = values.shape
    pairs = scikit_posthocs.posthoc_nemenyi_friedman(values.to_numpy(dtype=float))
    labels = list(values.columns)
    unit = np.sqrt(losses * (losses + 1) / (6 * tasks))
    return Ranks(
        mean=values.rank(axis=1).mean(),
        p=float(stats.friedmanchisquare(*values.to_numpy(dtype=float).T).pvalue),
        pairs=pd.DataFrame(pairs.to_numpy(), index=labels, columns=labels),
        critical=float(stats.studentized_range.isf(level, losses, np.inf) / np.sqrt(2) * unit),
        tasks=tasks,
    )
