"""Judge what a comparison says of a task.

Only this module decides. Other modules put its judgements into words.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from milbench.contracts.metric_info import describe
from milbench.report.learning import (
    has_learnt_by,
    learnt_by_others,
    main_learning_metric,
    no_skill_line,
)
from milbench.report.study import Study
from milbench.report.verdict import (
    Best,
    BetterBaseline,
    Finding,
    Judgement,
    Leader,
    Learnt,
    NoResult,
    NothingLearnt,
    NotToldApart,
    OneLoss,
    TooFewSeeds,
)


def judge(study: Study, task: str, metric: str = "") -> Judgement:
    """Return what a comparison says of a task, about the losses with the least supervision.

    Args:
        study: the comparison.
        task: one of its tasks.
        metric: the metric without its split; "": the one that losses are ranked by.
    """
    name = metric or study.primary(task)
    cells = study.cells_of(task)
    supervision = ""
    if len(study.kinds) > 1:
        supervision = study.kinds[0]
    return Judgement(
        task=task,
        metric=name,
        supervision=supervision,
        finding=_finding(study, task, name),
        done=int((cells["status"] == "done").sum()),
        planned=len(cells),
        baseline=_better_baseline(study, task, name),
    )


def _finding(study: Study, task: str, metric: str) -> Finding:
    summary = _judged(study, task, metric)
    # A loss without some of its values is not judged.
    summary = summary[~summary.index.isin(study.incomplete(task, metric))]
    if summary.empty:
        return NoResult()
    if not has_learnt_by(study, task, metric):
        return _nothing_learnt(study, task, metric)
    leader = _leader(summary)
    if len(summary) == 1:
        return OneLoss(leader)
    may_be_best = summary["contender"]
    if not may_be_best.any():
        return TooFewSeeds(leader)
    contenders = tuple(map(str, summary.index[may_be_best]))
    worse = tuple(map(str, summary.index[~may_be_best]))
    resolution = study.resolution(task, metric)
    # The rule was fixed in advance: docs/statistics.md, "When a task tells losses apart".
    is_told_apart = len(contenders) <= len(summary) / 2
    if is_told_apart:
        return Best(leader, contenders, worse, resolution)
    return NotToldApart(leader, contenders, worse, resolution)


def _judged(study: Study, task: str, metric: str) -> pd.DataFrame:
    """Return the rows of `Study.summary` of losses with the least supervision and a value."""
    summary = study.summary(task, metric)
    has_least_supervision = summary["supervision"] == study.kinds[0]
    return summary[has_least_supervision & summary["mean"].notna()]


def _leader(judged: pd.DataFrame) -> Leader:
    """Return the loss with the best mean: the first row of a summary."""
    return Leader(
        loss=str(judged.index[0]),
        mean=float(judged["mean"].iloc[0]),
        seeds=int(judged["seeds"].max()),
    )


def _nothing_learnt(study: Study, task: str, metric: str) -> NothingLearnt:
    learning_metric = metric
    if no_skill_line(study, task, metric).isna().all():
        # No skill has no value by the metric, so that another metric has to show learning.
        learning_metric = main_learning_metric(study, task)
    judged = _judged(study, task, metric)
    # The leader has the best mean by the metric of the comparison. The value to report is by the
    # learning metric, so that it can be compared with no skill.
    leader = _leader(judged)
    mean = float(study.summary(task, learning_metric)["mean"][leader.loss])
    by_others = [
        _learnt(study, task, other, losses)
        for other, losses in learnt_by_others(study, task).items()
    ]
    return NothingLearnt(
        metric=learning_metric,
        leader=replace(leader, mean=mean),
        losses=len(judged),
        no_skill=float(no_skill_line(study, task, learning_metric).mean()),
        by_others=tuple(by_others),
    )


def _learnt(study: Study, task: str, metric: str, better: list[str]) -> Learnt:
    """Return the finding that losses, `better`, are better than no skill by a metric."""
    judged = _judged(study, task, metric)
    return Learnt(
        metric=metric,
        losses=len(better),
        of=len(judged),
        leader=_leader(judged),
        no_skill=float(no_skill_line(study, task, metric).mean()),
    )


def _better_baseline(study: Study, task: str, metric: str) -> BetterBaseline | None:
    """Return the value of the simple baseline if it is better than the best mean, else None."""
    judged = _judged(study, task, metric)
    if judged.empty:
        return None
    baseline = float(study.baseline(task, metric).mean())
    if math.isnan(baseline):
        return None
    best = _leader(judged).mean
    is_better = baseline > best
    if describe(metric).lower_is_better:
        is_better = baseline < best
    return BetterBaseline(baseline) if is_better else None
