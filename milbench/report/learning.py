"""Whether losses have learnt anything: whether they are better than what is known without any training.

That is the line of no skill: the value of the best answer that is the same for every bag, or
chance.
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
"""What scores that say nothing reach by a metric for which no constant answer is evaluated."""

_SHOWS_NO_LEARNING = "posterior_error"
"""A metric that has a line, but does not show learning: label sets are learnt before most instances leave the
background."""


def no_skill_line(values: Values, task: str, metric: str) -> pd.Series[float]:
    """Return what the best constant answer, or chance, reaches by a metric with each seed; NaN: not known."""
    name = metric
    if name == "own_label_error":
        # A constant answer has no scores. A threshold of a loss's own therefore changes nothing.
        name = "label_error"
    line = values.constant_answer(task, name)
    if metric in CHANCE:
        return line.fillna(CHANCE[metric])
    return line


def main_learning_metric(values: Values, task: str) -> str:
    """Return the metric that shows whether anything was learnt: the primary one, or set error if it has no line."""
    names = [name for name in (values.primary(task), SELECTED_BY) if name != _SHOWS_NO_LEARNING]
    for name in names:
        if values.constant_answer(task, name).notna().any():
            return name
    return names[0]


def other_learning_metrics(values: Values, task: str) -> list[str]:
    """Return the metrics of the uses, beside `main_learning_metric`, by which learning can be shown.

    Of each use that is the first metric that was measured and has a line.
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
    """Return whether any loss has learnt anything, by any use; True where that is not known.

    The main metric is judged at 95 % confidence, and the other uses together at as much.
    """
    by_main_metric = has_learnt_by(values, task, main_learning_metric(values, task))
    return by_main_metric or bool(learnt_by_others(values, task))


@cached
def has_learnt_by(values: Values, task: str, metric: str) -> bool:
    """Return whether a loss has learnt anything by a metric, or by any use, where the metric cannot show it.

    True where nothing is known.
    """
    has_line = no_skill_line(values, task, metric).notna().any()
    shows_learning = metric != _SHOWS_NO_LEARNING and has_line
    # The main metric never asks for the uses: they are judged by it themselves.
    is_main = metric == main_learning_metric(values, task)
    if not shows_learning and not is_main:
        return has_learnt(values, task)
    is_known = _gains(values, task, metric).notna().any(axis=None)
    return not is_known or bool(better_than_no_skill(values, task, metric, LEVEL))


@cached
def learnt_by_others(values: Values, task: str) -> dict[str, list[str]]:
    """Return the metrics of other uses by which losses are better than no skill, and which losses are.

    With 95 % confidence for all these metrics together. With one seed or two nobody knows how much
    losses vary.
    """
    names = other_learning_metrics(values, task)
    # Bonferroni: the probability of an error is shared by the metrics.
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
    """Return the losses that are better than the line of no skill beyond noise.

    The line is judged as one more loss; with one seed or two a loss has to beat it with each. The
    mean of a loss also has to beat it by more than another draw of the test items explains, where
    that is known.
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
    """Return by how much losses with the least supervision are better than the line, by loss and seed."""
    table = values.table(task, metric)
    line = no_skill_line(values, task, metric)
    gains = line - table if describe(metric).lower_is_better else table - line
    least_supervision = values.kinds[0]
    is_judged = [values.supervision[str(loss)] == least_supervision for loss in table.index]
    return gains[is_judged]


def _beats_line_by_seeds(values: Values, task: str, metric: str, level: float) -> pd.Series[bool]:
    """Return which losses are better than the line by more than seeds explain."""
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
    # The line is the last of the rows that are judged. A loss beats it where it is worse by more
    # than the width.
    line_is_worse = judged.pairs.difference[-1] > judged.pairs.widths()[-1]
    for number, row in enumerate(judged.rows[:-1]):
        beats.iloc[row] = bool(line_is_worse[number])
    return beats


def _least_gain(values: Values, task: str, metric: str, level: float) -> pd.Series[float]:
    """Return what the mean of each loss has to gain on the line, as the draw of test items moves it."""
    table = values.table(task, metric)
    noise = item_noise(values, task, metric)
    if noise is None:
        return pd.Series(0.0, table.index)
    # The mean of a loss has the same weight for each of its seeds.
    weights = table.notna().div(table.notna().sum(axis=1), axis=0).to_numpy()
    # Of each loss, the weighted sum of the covariances of its seeds s and t: the variance of its
    # mean.
    variances = np.einsum("isit,is,it->i", noise.covariance, weights, weights)
    # A loss may have hit on another constant answer, which suits the test items better than the one
    # that training bags have shown. If the line is right on a fifth of the bags, about five
    # different answers may be as good.
    share_right = 1 - float(no_skill_line(values, task, metric).mean())
    equal_answers = 1 / max(share_right, 0.01)
    quantile = ndtri(1 - (1 - level) / len(table) / equal_answers)
    # The line varies like a loss. A difference of the two has twice the variance.
    return pd.Series(quantile * np.sqrt(2 * variances), table.index)
