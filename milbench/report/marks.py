"""Which pass marks each loss reaches, and by how much: bounds that the spec states before anything is computed."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from milbench.api.metric_info import describe
from milbench.report.statistics.intervals import student_interval
from milbench.report.statistics.verdicts import passing
from milbench.report.study import Study


def marks_frame(study: Study) -> pd.DataFrame:
    """Return a row for every mark and loss; empty without marks.

    Returns:
        The columns test (the mark's name), task, metric, bound, at_most, variant, mean, distance (from the bound,
        negative on the passing side; NaN without a value) and verdict: "pass" where Student's 95 % interval of the mean
        over seeds is on the passing side and every planned seed has a value; "fail" where it is on the other side;
        "open" for all else.
    """
    rows = []
    for task in study.tasks:
        for mark in study.info(task).marks:
            table = study.table(task, mark.metric)
            for variant, values in table.iterrows():
                rows.append({
                    "test": mark.name, "task": task, "metric": mark.metric, "bound": mark.bound,
                    "at_most": mark.at_most, "variant": variant, "mean": values.mean(),
                    "distance": (1 if mark.at_most else -1) * (values.mean() - mark.bound),
                    "verdict": passing(
                        student_interval(values.dropna(), overlap=study.info(task).overlap), mark.bound,
                        at_most=mark.at_most, complete=bool(values.notna().all()),
                    ),
                })  # fmt: skip
    return pd.DataFrame(rows)


def passed(study: Study) -> Counter[str]:
    """Return how many marks each loss passes, without those that pass none; empty without marks."""
    frame = marks_frame(study)
    return Counter() if frame.empty else Counter(frame.loc[frame["verdict"] == "pass", "variant"])


def bound_in_words(metric: str, bound: float, at_most: bool) -> str:
    """Return the bound of a mark in words, such as at most 5 %."""
    value = f"{bound * 100:g} %" if describe(metric).percent else f"{bound:g}"
    return f"{'at most' if at_most else 'at least'} {value}"
