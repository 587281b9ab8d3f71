"""Whether losses have learnt anything: whether they are better than no skill.

The no-skill line of a metric is what the best answer reaches that is the same for every bag, or
what random scores reach by a metric such as AUROC.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from milbench.contracts.metric_info import describe
from milbench.report.epochs import SELECTED_BY
from milbench.report.item_noise import item_noise
from milbench.report.statistics.contenders import contenders
from milbench.report.statistics.differences import FEWEST_SEEDS, LEVEL
from milbench.report.statistics.pairs import scale_of
from milbench.report.uses import USES
from milbench.report.values import Values, cached

CHANCE = {"auroc": 0.5}
"""Metric -> what random scores reach, for metrics without a value of the best constant answer."""

_SHOWS_NO_LEARNING = "posterior_error"
"""A metric that has a no-skill line, but does not show learning.

Networks learn label sets while they still take most instances for background.
"""


def no_skill_line(values: Values, task: str, metric: str) -> pd.Series[float]:
    """Return what no skill reaches by a metric with each seed; NaN: not known."""
    name = metric
    if name == "own_label_error":
        # own_label_error has other thresholds than label_error. A constant answer has no scores, so
        # that thresholds do not change its value.
        name = "label_error"
    line = values.constant_answer(task, name)
    if metric in CHANCE:
        return line.fillna(CHANCE[metric])
    return line


def main_learning_metric(values: Values, task: str) -> str:
    """Return the metric that shows whether anything was learnt.

    It is the primary metric, or set error if the primary metric has no no-skill line.
    """
    names = [name for name in (values.primary(task), SELECTED_BY) if name != _SHOWS_NO_LEARNING]
    for name in names:
        if values.constant_answer(task, name).notna().any():
            return name
    return names[0]


def other_learning_metrics(values: Values, task: str) -> list[str]:
    """Return the metrics by which learning can be shown, beside `main_learning_metric`.

    For each use it is the first metric that was measured and has a no-skill line.
    """
    measured = values.metrics(task)
    found = []
    for use in USES:
        for name in use.metrics:
            if name in measured and no_skill_line(values, task, name).notna().any():
                found.append(name)
                break
    main = main_learning_metric(values, task)
    return [name for name in found if name not in (main, _SHOWS_NO_LEARNING)]


def has_learnt(values: Values, task: str) -> bool:
    """Return whether any loss has learnt anything, by any use; True if that is not known.

    The main metric is judged with 95 % confidence, and all other metrics together with 95 %.
    """
    by_main_metric = has_learnt_by(values, task, main_learning_metric(values, task))
    return by_main_metric or bool(learnt_by_others(values, task))


@cached
def has_learnt_by(values: Values, task: str, metric: str) -> bool:
    """Return whether any loss has learnt anything by a metric; True if that is not known.

    If the metric cannot show it, the answer is that of `has_learnt`.
    """
    has_line = no_skill_line(values, task, metric).notna().any()
    shows_learning = metric != _SHOWS_NO_LEARNING and has_line
    # `has_learnt` calls this function with the main metric, for which it must not be called again.
    is_main = metric == main_learning_metric(values, task)
    if not shows_learning and not is_main:
        return has_learnt(values, task)
    is_known = _gains(values, task, metric).notna().any(axis=None)
    return not is_known or bool(better_than_no_skill(values, task, metric, LEVEL))


@cached
def learnt_by_others(values: Values, task: str) -> dict[str, list[str]]:
    """Return metric -> losses that are better than no skill, for the metrics of other uses.

    The confidence is 95 % for all these metrics together. A metric needs FEWEST_SEEDS seeds: fewer
    do not show how much losses vary.
    """
    names = other_learning_metrics(values, task)
    # Bonferroni's correction divides the probability of an error among the metrics.
    level = 1 - (1 - LEVEL) / max(len(names), 1)
    found = {}
    for name in names:
        seeds_with_values = int(values.table(task, name).notna().any().sum())
        if seeds_with_values < FEWEST_SEEDS:
            continue
        better = better_than_no_skill(values, task, name, level)
        if better:
            found[name] = better
    return found


def better_than_no_skill(values: Values, task: str, metric: str, level: float) -> list[str]:
    """Return the losses that are better than the no-skill line by more than noise.

    Noise has two sources. For that of seeds, the line is compared with losses as if it were one
    more loss; with one seed or two, a loss has to beat the line with each seed. For that of test
    items, the mean of a loss has to beat the line by more than another sample of test items
    explains, as far as that is known.
    """
    gains = _gains(values, task, metric)
    seeds = int(gains.notna().any().sum())
    if seeds >= FEWEST_SEEDS:
        is_beyond_seeds = _beats_line_by_seeds(values, task, metric, level)
    else:
        is_beyond_seeds = gains.min(axis=1) > 0
    least = _least_gain(values, task, metric, level)[gains.index]
    is_better = is_beyond_seeds & (gains.mean(axis=1) > least)
    return [str(loss) for loss in gains.index[is_better]]


def _gains(values: Values, task: str, metric: str) -> pd.DataFrame:
    """Return by how much losses are better than the no-skill line, by loss and seed.

    Only losses with the least supervision are judged.
    """
    table = values.table(task, metric)
    line = no_skill_line(values, task, metric)
    gains = line - table if describe(metric).lower_is_better else table - line
    least_supervision = values.kinds[0]
    is_judged = [values.supervision[str(loss)] == least_supervision for loss in table.index]
    return gains[is_judged]


def _beats_line_by_seeds(values: Values, task: str, metric: str, level: float) -> pd.Series[bool]:
    """Return which losses are better than the no-skill line by more than the noise of seeds."""
    gains = _gains(values, task, metric)
    line = no_skill_line(values, task, metric).where(gains.notna().any())
    table = values.table(task, metric).loc[gains.index]
    judged = contenders(
        np.vstack([table, line]),
        lower_is_better=describe(metric).lower_is_better,
        overlap=values.info(task).overlap,
        level=level,
        scale=scale_of(describe(metric)),
    )
    beats = pd.Series(False, gains.index)
    # The line is the last of the judged rows. A loss beats the line if the line is worse than the
    # loss by more than the width.
    line_is_worse = judged.pairs.difference[-1] > judged.pairs.widths()[-1]
    for number, row in enumerate(judged.rows[:-1]):
        beats.iloc[row] = bool(line_is_worse[number])
    return beats


def _least_gain(values: Values, task: str, metric: str, level: float) -> pd.Series[float]:
    """Return how much better than the no-skill line the mean of each loss has to be.

    A smaller gain may be due to the sample of test items.
    """
    table = values.table(task, metric)
    noise = item_noise(values, task, metric)
    if noise is None:
        return pd.Series(0.0, table.index)
    # The mean of a loss has the same weight for each of its seeds.
    weights = table.notna().div(table.notna().sum(axis=1), axis=0).to_numpy()
    # The variance of the mean of loss i: the weighted sum of covariances over its seeds s and t.
    variances = np.einsum("isit,is,it->i", noise.covariance, weights, weights)
    # The best constant answer is chosen by training bags. A loss may give another constant answer
    # that happens to suit the test bags better. If the best one is right on a fifth of the bags,
    # about five different answers may be as good.
    share_right = 1 - float(no_skill_line(values, task, metric).mean())
    equal_answers = 1 / max(share_right, 0.01)
    quantile = ndtri(1 - (1 - level) / len(table) / equal_answers)
    # The line varies over test items like a loss, so that their difference has twice the variance.
    return pd.Series(quantile * np.sqrt(2 * variances), table.index)
