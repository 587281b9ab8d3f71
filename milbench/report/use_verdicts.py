"""Verdicts on a task for each of the five uses: which losses may be the best, if that is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from milbench._utils.words import capital
from milbench.contracts.metric_info import Metric, describe
from milbench.report.formatting import first_few, readable
from milbench.report.judge import judge
from milbench.report.sentences import difference_text
from milbench.report.study import Study
from milbench.report.table import Table, named_rows
from milbench.report.tables import missing_seeds, ticked, with_last_row, with_lines
from milbench.report.uses import USES, Use
from milbench.report.values import cached, rows_of
from milbench.report.verdict import (
    Judgement,
    NothingLearnt,
    NotToldApart,
    OneLoss,
    TooFewSeeds,
)

NOTE = (
    "Mean ± standard deviation over seeds, by the metric that each use is judged by. ✓: may be "
    "the best for this use; ≤: then worse than the best by at most so much, in the unit of the "
    "metric. Each use is judged for itself. A loss that lacks the value of a seed whose training "
    "is done is not judged. The last row says which difference from the best is found in four of "
    "five such comparisons; a smaller one may not show."
)
RESOLUTION = "smallest difference usually found"
"""The name of the last row of the table."""


@dataclass(frozen=True, eq=False)
class UseVerdict:
    """What a comparison says of a task for one use."""

    use: Use
    judgement: Judgement
    summary: pd.DataFrame
    """The result of `Study.summary` for the metric by which the use is judged."""

    @property
    def metric(self) -> Metric:
        """The metric by which the use is judged."""
        return describe(self.judgement.metric)

    @property
    def ticked_summary(self) -> pd.DataFrame:
        """The summary, without ticks if there is a remark: nearly all losses would have a tick."""
        if self.remark:
            return self.summary.assign(contender=None, worse_by=math.nan)
        return self.summary

    @property
    def remark(self) -> str:
        """Why losses are not told apart by this use, in a few words; "" if they are."""
        match self.judgement.finding:
            case NothingLearnt():
                return "not shown to be learnt"
            case OneLoss() if self.judgement.supervision:
                return f"one loss alone has {self.judgement.supervision} supervision"
            case TooFewSeeds():
                return "too few seeds"
            case NotToldApart(resolution=resolution) if math.isfinite(resolution):
                return f"differences below {difference_text(resolution, self.metric)} may not show"
            case NotToldApart():
                return "not told apart"
            case _:
                return ""


def _remark(verdict: UseVerdict) -> str:
    """Return a sentence on why a use has no ticks in the table; "" if it has some."""
    use = capital(verdict.use.name)
    finding = verdict.judgement.finding
    if not isinstance(finding, NotToldApart):
        return f" {use}: {verdict.remark}." if verdict.remark else ""
    if not finding.worse:
        return f" {use}: most losses are not told apart."
    names = first_few([readable(loss) for loss in finding.worse])
    return f" {use}: most losses are not told apart; worse than the best: {names}."


def _remark_on_search(study: Study, verdict: UseVerdict) -> str:
    """Return a sentence on losses that have a tick only because the search counts; "" for none."""
    judgement = verdict.judgement
    worse = study.worse_with_given_settings(judgement.task, judgement.metric)
    if not worse or isinstance(judgement.finding, NothingLearnt):
        return ""
    names = first_few([readable(loss) for loss in worse])
    return (
        f" {capital(verdict.use.name)}, with the chosen settings taken as given: worse than the "
        f"best as well: {names}."
    )


def _text(row: Any, metric: Metric) -> str:
    """Return the mean of a loss, and how many seeds it has if it lacks some."""
    text = ticked(row, metric)
    if row.seeds == 0:
        # Some losses have no such value at all, as max-pooling has no probabilities. Then the text
        # is a dash.
        return text
    return text + missing_seeds(row)


@cached
def use_verdicts(study: Study, task: str) -> list[UseVerdict]:
    """Return the verdict on a task for each use that has a metric; [] for fewer than two uses."""
    found = []
    for use in USES:
        metric = study.metric_of_use(task, use)
        if metric is None:
            continue
        found.append(UseVerdict(use, judge(study, task, metric), study.summary(task, metric)))
    # The verdict on a single use is that of the whole comparison.
    return found if len(found) > 1 else []


def uses_table(study: Study, task: str) -> Table | None:
    """Return the mean of every loss by the metric of each use; None for fewer than two uses."""
    verdicts = use_verdicts(study, task)
    if not verdicts:
        return None
    order = study.summary(task).index.rename("loss")
    columns = {}
    metrics = {}
    resolutions = {}
    for verdict in verdicts:
        head = f"{verdict.use.name}: {verdict.metric.heading}"
        summary = verdict.ticked_summary.reindex(order)
        columns[head] = [_text(row, verdict.metric) for row in rows_of(summary)]
        metrics[head] = (task, verdict.judgement.metric)
        resolution = study.resolution(task, verdict.judgement.metric)
        if math.isfinite(resolution):
            resolutions[head] = difference_text(resolution, verdict.metric)
    frame = with_lines(pd.DataFrame(columns, index=order), study, metrics)
    frame = with_last_row(frame, RESOLUTION, resolutions)
    note = NOTE
    for verdict in verdicts:
        note += _remark(verdict) + _remark_on_search(study, verdict)
    return Table(f"By use on {readable(task)}", named_rows(frame), note)
