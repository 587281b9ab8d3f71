"""The tables of losses: their means with their ticks, every metric, and every cell."""

from __future__ import annotations

from typing import Any

import pandas as pd

from milbench.contracts.metric_info import BASELINE_NAME, Metric, describe
from milbench.report.formatting import (
    NOTHING,
    at_most,
    counted,
    interval,
    measured,
    number,
    readable,
    significant,
)
from milbench.report.learning import no_skill_line
from milbench.report.study import Study
from milbench.report.table import Table, named_rows
from milbench.report.values import STEP, rows_of, state_text

YES = "✓"
NO = "–"
BEST = "may be the best"
"""The head of the column with YES and NO."""
NO_SKILL = "no skill"
"""The head of the row with the values of the best constant answer."""

COSTS = {
    STEP: ("step (ms)", 1e3),
    "cost/loss_seconds_min": ("loss alone (ms)", 1e3),
    "cost/peak_bytes": ("peak memory (GB)", 1e-9),
    "cost/train_seconds": ("training (min)", 1 / 60),
}
"""Cost -> the head of its column, and the factor from seconds or bytes to the unit of the head."""

MEANS_NOTE = "Mean ± standard deviation over seeds."
BOUND_NOTE = (
    " Worse by at most: for the losses that may be the best, how much worse than the best each can "
    "be, with 95 % confidence for all of them at once."
)
BOUNDS_NOTE = (
    " ✓: the loss may be the best; the number after ≤ is how much worse than the best it can be, "
    "in the unit of the metric."
)
STEPS_NOTE = (
    " Step: the time of a training step as a multiple of the fastest loss's, the geometric mean "
    "over tasks."
)
SAME_SUPERVISION_NOTE = " Losses are compared with those of the same supervision."


def main_table(study: Study) -> Table:
    """Return the table of losses that a report begins with.

    It has the mean of each loss, whether the loss may be the best, by how much it may be worse, its
    cost and its seeds.
    """
    if len(study.tasks) == 1:
        return _table_of_task(study, study.tasks[0])
    return _table_of_tasks(study)


def _table_of_task(study: Study, task: str) -> Table:
    metric = study.metric(task)
    index = pd.Index(study.ranking(), name="loss")
    rows = rows_of(study.summary(task).reindex(index))
    bound = "worse by at most (points)" if metric.percent else "worse by at most"
    # The verdict comes first, so that it is seen on the narrow screen of a telephone.
    columns = {
        BEST: [YES if row.contender else NO for row in rows],
        metric.heading: [measured(row.mean, row.sd, metric) for row in rows],
        "95 % interval": [interval((row.low, row.high), row.mean, metric) for row in rows],
        bound: [at_most(row.worse_by, metric) for row in rows],
        "step (ms)": [significant(1000 * row.step) for row in rows],
        "seeds": [_seeds(row) for row in rows],
    }
    frame = pd.DataFrame(columns, index=index)
    is_known = bool(study.may_be_best)
    if not is_known:
        frame = frame.drop(columns=[BEST, bound])
    frame = with_lines(frame, study, {metric.heading: (task, study.primary(task))})
    marked = [row for row, loss in enumerate(index) if loss in study.may_be_best]
    note = MEANS_NOTE
    if is_known:
        note += BOUND_NOTE
    if len(study.kinds) > 1:
        note += SAME_SUPERVISION_NOTE
    return Table("All losses", named_rows(frame), note, frozenset(marked))


def _table_of_tasks(study: Study) -> Table:
    index = pd.Index(study.ranking(), name="loss")
    columns = {}
    metrics = {}
    for task in study.tasks:
        metric = study.metric(task)
        head = f"{readable(task)}: {metric.heading}"
        rows = rows_of(study.summary(task).reindex(index))
        columns[head] = [ticked(row, metric) + missing_seeds(row) for row in rows]
        metrics[head] = (task, study.primary(task))
    frame = pd.DataFrame(columns, index=index)
    frame["step, × the quickest"] = [significant(ratio) for ratio in _relative_steps(study, index)]
    frame = with_lines(frame, study, metrics)
    note = MEANS_NOTE
    if study.may_be_best:
        note += BOUNDS_NOTE
    note += STEPS_NOTE
    if len(study.kinds) > 1:
        note += SAME_SUPERVISION_NOTE
    return Table("All losses", named_rows(frame), note)


def _relative_steps(study: Study, index: pd.Index[str]) -> pd.Series[float]:
    """Return the time of a step of each loss, as a multiple of that of the quickest loss.

    It is a geometric mean over tasks.
    """
    by_task = {}
    for task in study.tasks:
        steps = study.summary(task)["step"]
        by_task[task] = steps / steps.min()
    ratios = pd.DataFrame(by_task)
    measured_on = ratios.notna().sum(axis=1)
    means = ratios.product(axis=1, min_count=1) ** (1 / measured_on)
    return means.reindex(index)


def _seeds(row: Any) -> str:
    """Return how many seeds of a loss have a value."""
    if row.seeds == row.planned:
        return f"{row.seeds}"
    return f"{row.seeds} of {row.planned}"


def missing_seeds(row: Any) -> str:
    """Return how many seeds a loss has, in brackets, if it lacks some; else ""."""
    if row.seeds < row.planned:
        return f" ({row.seeds:.0f} of {row.planned:.0f} seeds)"
    return ""


def ticked(row: Any, metric: Metric) -> str:
    """Return the mean of a row of `Study.summary` as text.

    If the loss may be the best, a tick follows, and then by how much it may be worse than the best.
    """
    text = measured(row.mean, row.sd, metric)
    was_planned = not pd.isna(row.contender)
    if not was_planned or not row.contender:
        return text
    if row.worse_by > 0:
        return f"{text} {YES} ≤ {at_most(row.worse_by, metric)}"
    return f"{text} {YES}"


def with_lines(
    frame: pd.DataFrame, study: Study, columns: dict[str, tuple[str, str]]
) -> pd.DataFrame:
    """Return a table with further rows for the simple baseline and for no skill, if known.

    `columns`: head -> (task, metric).
    """
    baseline = {}
    no_skill = {}
    for head, (task, name) in columns.items():
        metric = describe(name)
        baseline[head] = _mean_text(study.baseline(task, name), metric)
        no_skill[head] = _mean_text(no_skill_line(study, task, name), metric)
    with_baseline = with_last_row(frame, BASELINE_NAME, baseline)
    return with_last_row(with_baseline, NO_SKILL, no_skill)


def _mean_text(by_seed: pd.Series[float], metric: Metric) -> str:
    """Return the mean of values by seed with its spread; "" if no value is known."""
    if by_seed.isna().all():
        return ""
    return measured(float(by_seed.mean()), float(by_seed.std()), metric)


def with_last_row(frame: pd.DataFrame, label: str, texts: dict[str, str]) -> pd.DataFrame:
    """Return a table with one more row at its end, or the same table if all its texts are "".

    `texts`: head -> text of the row.
    """
    known = {head: text for head, text in texts.items() if text}
    if not known:
        return frame
    row = pd.DataFrame(known, index=pd.Index([label], name=frame.index.name))
    return pd.concat([frame, row.reindex(columns=frame.columns)]).fillna(NOTHING)


def metrics_table(study: Study, task: str) -> Table:
    """Return the mean and standard deviation of every test metric of a task, and the mean costs."""
    order = study.summary(task).index
    asked_for = study.plan.spec.compare_by
    columns = {}
    metrics = {}
    for name in study.metrics(task):
        metric = describe(name)
        ticks = pd.Series("", order)
        if name in asked_for:
            contender = study.summary(task, name)["contender"]
            ticks = contender.map({True: f" {YES}", False: ""})
        values = study.table(task, name).reindex(order)
        means = values.mean(axis=1)
        spreads = values.std(axis=1)
        columns[metric.heading] = [
            measured(means[loss], spreads[loss], metric) + ticks[loss] for loss in order
        ]
        metrics[metric.heading] = (task, name)
    for cost, (label, factor) in COSTS.items():
        means = study.table(task, cost).mean(axis=1).reindex(order)
        if means.notna().any():
            columns[label] = [significant(factor * value) for value in means]
    frame = pd.DataFrame(columns, index=order.rename("loss"))
    frame = with_lines(frame, study, metrics)
    note = MEANS_NOTE
    if asked_for:
        note += " ✓: may be the best by this metric."
    return Table(f"Every metric on {readable(task)}", named_rows(frame), note)


def cells_table(study: Study, task: str) -> Table:
    """Return every cell of a task with its state and its run."""
    metric = study.metric(task)
    values = study.table(task)
    cells = rows_of(study.cells_of(task))
    rows = []
    for cell in cells:
        value = float(values[cell.seed][cell.variant])
        rows.append(
            {
                "loss": cell.variant,
                "seed": str(cell.seed),
                "state": state_text(study, str(cell.status)),
                "reason": cell.reason or NOTHING,
                metric.heading: number(value, 3, metric),
                "cell": cell.cell,
                "MLflow run": cell.run or NOTHING,
            }
        )
    frame = pd.DataFrame(rows).set_index("loss")
    if (frame["reason"] == NOTHING).all():
        frame = frame.drop(columns="reason")
    not_marked = {"done", "not run"}
    marked = [number for number, row in enumerate(rows) if row["state"] not in not_marked]
    note = f"{counted(len(rows), 'cell')}."
    title = f"Every cell on {readable(task)}"
    return Table(title, named_rows(frame), note, frozenset(marked))
