"""Judge what a comparison says of a task. This is the one place that decides; other modules put it into words."""

from __future__ import annotations

import math

import pandas as pd

from milbench.contracts.metric_info import describe
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
        metric: without its split; "": the one that losses are ranked by.
    """
    name = metric or study.primary(task)
    cells = study.cells_of(task)
    has_several_kinds = len(study.kinds) > 1
    return Judgement(
        task=task,
        metric=name,
        supervision=study.kinds[0] if has_several_kinds else "",
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
    leader = _leader(summary)
    if not study.has_learnt_by(task, metric):
        return _nothing_learnt(study, task, metric)
    if len(summary) == 1:
        return OneLoss(leader)
    may_be_best = summary["contender"]
    if not may_be_best.any():
        return TooFewSeeds(leader)
    contenders = tuple(map(str, summary.index[may_be_best]))
    worse = tuple(map(str, summary.index[~may_be_best]))
    resolution = study.resolution(task, metric)
    # The rule was fixed in advance: docs/statistics.md, "When a task tells losses apart".
    is_told_apart = 2 * len(contenders) <= len(summary)
    kind = Best if is_told_apart else NotToldApart
    return kind(leader, contenders, worse, resolution)


def _leader(summary: pd.DataFrame) -> Leader:
    """Return the best mean of the losses of a summary, which are those that are judged."""
    return Leader(
        str(summary.index[0]), float(summary["mean"].iloc[0]), int(summary["seeds"].max())
    )


def _judged(study: Study, task: str, metric: str) -> pd.DataFrame:
    """Return what is known by a metric of the losses with the least supervision that have a value."""
    summary = study.summary(task, metric)
    return summary[(summary["supervision"] == study.kinds[0]) & summary["mean"].notna()]


def _nothing_learnt(study: Study, task: str, metric: str) -> NothingLearnt:
    has_line = study.line(task, metric).notna().any()
    name = metric if has_line else study.line_metric(task)
    judged = _judged(study, task, metric)
    # The loss that leads by the metric of the comparison is named, with its value beside the line.
    loss = str(judged.index[0])
    mean = float(study.summary(task, name)["mean"][loss])
    return NothingLearnt(
        metric=name,
        leader=Leader(loss, mean, int(judged["seeds"].max())),
        losses=len(judged),
        no_skill=float(study.line(task, name).mean()),
        by_others=tuple(
            _learnt(study, task, other, losses)
            for other, losses in study.learnt_by_others(task).items()
        ),
    )


def _learnt(study: Study, task: str, metric: str, losses: list[str]) -> Learnt:
    judged = _judged(study, task, metric)
    return Learnt(
        metric=metric,
        losses=len(losses),
        of=len(judged),
        leader=_leader(judged),
        line=float(study.line(task, metric).mean()),
    )


def _better_baseline(study: Study, task: str, metric: str) -> BetterBaseline | None:
    """Return the simple baseline where it has a better mean than the best loss."""
    judged = _judged(study, task, metric)
    if judged.empty:
        return None
    best = float(judged["mean"].iloc[0])
    baseline = float(study.baseline(task, metric).mean())
    if math.isnan(baseline):
        return None
    lower_is_better = describe(metric).lower_is_better
    is_better = baseline < best if lower_is_better else baseline > best
    return BetterBaseline(baseline) if is_better else None
