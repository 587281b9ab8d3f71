"""Whether the first loss of a comparison is better than each other one, worse, or equivalent within a margin."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from milbench.report.formatting import counted, readable, scaled
from milbench.report.statistics.verdicts import equivalence
from milbench.report.study import Study

VERDICTS = {"better": "better", "equivalent": "equivalent", "worse": "worse", "open": "not settled"}
"""The words for verdicts."""


def equivalence_frame(study: Study) -> pd.DataFrame:
    """Return the verdict on the first loss against each other one on each task, where tasks cross parameters.

    Returns:
        The columns first, other, row and column (the values of the first and the second half of the parameters that
        tasks cross), difference and verdict. Empty without a margin for the primary metric, with one loss, and where
        tasks are not one task whose parameters are crossed, at least two.
    """
    params = {task: study.cell_of(task).task_params for task in study.tasks}
    varied = [key for key in params[study.tasks[0]] if len({str(p.get(key)) for p in params.values()}) > 1]
    half, (first, *others), rows = len(varied) // 2, study.supervision, []
    crossed = half and len({(study.cell_of(task).task, study.primary(task)) for task in study.tasks}) == 1
    margin, lower = study.plan.margin.get(study.primary(study.tasks[0])), study.metric(study.tasks[0]).lower_is_better
    for task in study.tasks if crossed else ():
        row, column = (", ".join(f"{k}={params[task][k]}" for k in keys) for keys in (varied[:half], varied[half:]))
        for other in others:
            if margin is not None and {first, other} <= set(study.variants(task)):
                pair = study.compare(task, first, other)
                rows.append((first, other, row, column, pair.difference, equivalence(pair, margin, lower)))
    return pd.DataFrame(rows, columns=["first", "other", "row", "column", "difference", "verdict"])


def equivalence_sentences(study: Study) -> list[str]:
    """Return how often the first loss is better than, equivalent to and worse than each other one, a line each."""
    frame, metric, lines = equivalence_frame(study), study.metric(study.tasks[0]), []
    for (first, other), own in frame.groupby(["first", "other"], sort=False):
        counts = Counter(own["verdict"])
        said = ", ".join(f"{word} on {counts[key]}" for key, word in VERDICTS.items() if counts[key])
        size = scaled(study.plan.margin[study.primary(study.tasks[0])], metric)
        unit = "" if not metric.percent else " point" if size == 1 else " points"
        tasks, margin = counted(len(own), "task"), f"{size:g}{unit}"
        one, beside = readable(str(first)), readable(str(other))
        lines.append(f"Of {tasks} {one} is {said} against {beside} ({metric.label}, margin {margin}).")
    return lines
