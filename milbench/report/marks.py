"""Verdicts by bounds that are stated in advance.

These bounds are pass marks, margins of equivalence of two losses, and margins of agreement with
published values.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from milbench.contracts.metric_info import Metric
from milbench.report.formatting import counted, readable, scaled
from milbench.report.statistics.differences import (
    FEWEST_SEEDS,
    LEVEL,
    Difference,
    is_within,
    student_interval,
)
from milbench.report.study import Study

FEWEST_TO_DIFFER = 3
"""With fewer seeds no loss is said to differ from a published value."""
FEWEST_TO_AGREE = 5
"""With fewer seeds no loss is said to agree with a published value."""

VERDICTS = {
    "better": "better",
    "equivalent": "equivalent",
    "worse": "worse",
    "open": "not settled",
}
"""Verdict on two losses by a margin -> the verdict in words."""

_EQUIVALENCE_COLUMNS = ["first", "other", "row", "column", "difference", "half", "verdict"]


def marks_frame(study: Study) -> pd.DataFrame:
    """Return a row for every bound of a pass mark and every loss; empty without pass marks.

    The columns are test (the name of the mark), task, metric, bound, at_most (whether the bound is
    an upper one), variant, mean, half (the half width of Student's interval of the mean), distance
    (of the mean from the bound, negative on the side that passes) and verdict (see `passing`).
    """
    rows = []
    for task in study.tasks:
        for mark in study.info(task).marks:
            for metric, bound, at_most in mark.bounds:
                rows += _judged(study, mark.name, task, metric, bound, at_most)
    return pd.DataFrame(rows)


def _judged(
    study: Study, test: str, task: str, metric: str, bound: float, at_most: bool
) -> list[dict[str, Any]]:
    """Return a row of `marks_frame` for each loss on a task, by one bound of a metric."""
    rows = []
    for variant, values in study.table(task, metric).iterrows():
        mean = values.mean()
        interval = student_interval(values.dropna(), overlap=study.info(task).overlap)
        low, high = interval
        is_complete = bool(values.notna().all())
        rows.append(
            {
                "test": test,
                "task": task,
                "metric": metric,
                "bound": bound,
                "at_most": at_most,
                "variant": variant,
                "mean": mean,
                "half": (high - low) / 2,
                "distance": mean - bound if at_most else bound - mean,
                "verdict": passing(interval, bound, at_most=at_most, complete=is_complete),
            }
        )
    return rows


def passing(bounds: tuple[float, float], bound: float, *, at_most: bool, complete: bool) -> str:
    """Return "pass" or "fail" if the interval of a mean is on one side of a bound, else "open".

    Args:
        bounds: the ends of the interval.
        bound: the bound of the pass mark.
        at_most: whether the mean passes below the bound, not above it.
        complete: whether all planned seeds have a value. Without it, no loss passes.
    """
    low, high = bounds
    if at_most:
        passes = high <= bound
        fails = low > bound
    else:
        passes = low >= bound
        fails = high < bound
    if fails:
        return "fail"
    return "pass" if passes and complete else "open"


def equivalence_frame(study: Study) -> pd.DataFrame:
    """Return the verdict on the first loss against each other loss on each task, by the margin.

    The columns are first, other, row and column (where a picture shows the task, see
    `_rows_and_columns`), difference, half (the half width of its 95 % interval) and verdict. The
    frame is empty if there is no margin, or if the tasks are not one task with at least two varied
    parameters.
    """
    first_task = study.tasks[0]
    margin = study.margin(first_task)
    lower_is_better = study.metric(first_task).lower_is_better
    first, *others = study.supervision
    rows = []
    if margin:
        for task, (row, column) in _rows_and_columns(study).items():
            losses = study.table(task).index
            for other in others:
                if first not in losses or other not in losses:
                    continue
                pair = study.compare(task, first, other)
                _, high = pair.interval
                half = high - pair.difference
                rows.append(
                    {
                        "first": first,
                        "other": other,
                        "row": row,
                        "column": column,
                        "difference": pair.difference,
                        "half": half,
                        "verdict": equivalence(pair, margin, lower_is_better),
                    }
                )
    return pd.DataFrame(rows, columns=_EQUIVALENCE_COLUMNS)


def _rows_and_columns(study: Study) -> dict[str, tuple[str, str]]:
    """Return task -> the names of its row and its column in a picture.

    The row is named by the values of the first half of the varied parameters, the column by the
    values of the second half. {} if the tasks are not one task with at least two varied parameters,
    judged by one metric.
    """
    names_and_metrics = {
        (study.cell_of(task).task.name, study.primary(task)) for task in study.tasks
    }
    params_by_task = {task: study.plan.task_params(study.cell_of(task)) for task in study.tasks}
    varied = _varied(list(params_by_task.values()))
    in_rows = varied[: len(varied) // 2]
    in_columns = varied[len(varied) // 2 :]
    if len(names_and_metrics) > 1 or not in_rows:
        return {}
    found = {}
    for task, params in params_by_task.items():
        found[task] = (_settings(params, in_rows), _settings(params, in_columns))
    return found


def _varied(params: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the parameters that do not have the same value for all tasks."""
    varied = []
    for key in params[0]:
        values = {str(of_task.get(key)) for of_task in params}
        if len(values) > 1:
            varied.append(key)
    return varied


def _settings(params: Mapping[str, Any], keys: Sequence[str]) -> str:
    return ", ".join(f"{key}={params[key]}" for key in keys)


def equivalence(pair: Difference, margin: float, lower_is_better: bool = True) -> str:
    """Return the verdict on the first of two losses, a key of VERDICTS.

    The losses are equivalent if the 90 % interval of their difference lies within the margin: two
    one-sided tests at 5 % (D. J. Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15,
    1987, pp. 657-680). Otherwise the first is better or worse if the 95 % interval does not hold 0.
    """
    if pair.seeds < FEWEST_SEEDS or not math.isfinite(pair.variance):
        return "open"
    if abs(pair.difference) + pair.half_width(2 * (1 - LEVEL)) < margin:
        return "equivalent"
    if abs(pair.difference) <= pair.half_width():
        return "open"
    is_smaller = pair.difference < 0
    return "better" if is_smaller == lower_is_better else "worse"


def equivalence_sentences(study: Study) -> list[str]:
    """Return on how many tasks the first loss is better than each other one, equivalent or worse.

    There is a line for each other loss, and none without a margin.
    """
    frame = equivalence_frame(study)
    metric = study.metric(study.tasks[0])
    margin = _margin_in_words(study.margin(study.tasks[0]), metric)
    lines = []
    for (first, other), on_tasks in frame.groupby(["first", "other"], sort=False):
        counts = Counter(on_tasks["verdict"])
        found = [f"{word} on {counts[key]}" for key, word in VERDICTS.items() if counts[key]]
        tasks = counted(len(on_tasks), "task")
        lines.append(
            f"Of {tasks} {readable(str(first))} is {', '.join(found)} against "
            f"{readable(str(other))} ({metric.label}, margin {margin})."
        )
    return lines


def _margin_in_words(margin: float, metric: Metric) -> str:
    """Return a margin as text, in points if the metric is a percentage."""
    size = scaled(margin, metric)
    if not metric.percent:
        return f"{size:g}"
    unit = "point" if size == 1 else "points"
    return f"{size:g} {unit}"


def agreement(
    interval: tuple[float, float], seeds: int, margin: float | None, lower_is_better: bool = True
) -> str:
    """Return the verdict on our mean beside a published value.

    `interval` is that of our mean less the published value. The verdict is

    - agrees, if there are at least FEWEST_TO_AGREE seeds and the interval lies within the margin,
      whether it holds zero or not;
    - better or worse, otherwise, if there are at least FEWEST_TO_DIFFER seeds and the interval does
      not hold zero;
    - open in all other cases.
    """
    low, high = interval
    if margin is not None and is_within(interval, margin) and seeds >= FEWEST_TO_AGREE:
        return "agrees"
    is_larger = low > 0
    is_smaller = high < 0
    if seeds < FEWEST_TO_DIFFER or not (is_larger or is_smaller):
        return "open"
    return "better" if is_smaller == lower_is_better else "worse"
