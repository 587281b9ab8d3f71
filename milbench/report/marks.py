"""Verdicts by what is stated before anything is computed: pass marks, margins of equivalence and of agreement."""

import math
from collections import Counter

import pandas as pd

from milbench.report.formatting import counted, readable, scaled
from milbench.report.statistics.differences import (
    FEWEST_SEEDS,
    LEVEL,
    Difference,
    is_within,
    student_interval,
)
from milbench.report.study import Study

FEWEST_TO_DIFFER, FEWEST_TO_AGREE = 3, 5  # seeds, from published values
VERDICTS = {
    "better": "better",
    "equivalent": "equivalent",
    "worse": "worse",
    "open": "not settled",
}  # in words


def marks_frame(study: Study) -> pd.DataFrame:
    """Return a row for every mark and loss: test (the mark's name), task, metric, bound, at_most, variant, mean, ...

    distance is that from the bound, negative on the passing side, half that of Student's interval, verdict see
    `passing`. Empty without marks.
    """
    rows = []
    for task in study.tasks:
        for mark in study.info(task).marks:
            for metric, bound, at_most in mark.bounds:
                for variant, values in study.table(task, metric).iterrows():
                    interval = student_interval(values.dropna(), overlap=study.info(task).overlap)
                    rows.append({
                        "test": mark.name, "task": task, "metric": metric, "bound": bound, "at_most": at_most,
                        "variant": variant, "mean": values.mean(), "half": (interval[1] - interval[0]) / 2,
                        "distance": (1 if at_most else -1) * (values.mean() - bound),
                        "verdict": passing(interval, bound, at_most=at_most, complete=bool(values.notna().all())),
                    })  # fmt: skip
    return pd.DataFrame(rows)


def passing(bounds: tuple[float, float], bound: float, *, at_most: bool, complete: bool) -> str:
    """Return "pass" or "fail" where the interval of a mean is on one side of a bound, else "open".

    Nothing passes where a planned seed has no value.
    """
    low, high = sorted((1 if at_most else -1) * (end - bound) for end in bounds)
    return "fail" if low > 0 else "pass" if high <= 0 and complete else "open"


def equivalence_frame(study: Study) -> pd.DataFrame:
    """Return the verdict on the first loss against each other one on each task, where tasks cross parameters.

    first, other, row and column (the values of the first and the second half of these parameters), difference, half (of
    its interval) and verdict. Empty without a margin, and where tasks are not one task with two varied parameters.
    """
    params = {task: study.plan.task_params(study.cell_of(task)) for task in study.tasks}
    varied = [
        key for key in params[study.tasks[0]] if len({str(p.get(key)) for p in params.values()}) > 1
    ]
    half, (first, *others), rows = len(varied) // 2, study.supervision, []
    crossed = (
        half
        and len({(study.cell_of(task).task.name, study.primary(task)) for task in study.tasks}) == 1
    )
    margin = study.margin(study.tasks[0])
    lower = study.metric(study.tasks[0]).lower_is_better
    for task in study.tasks if crossed else ():
        row, column = (
            ", ".join(f"{k}={params[task][k]}" for k in keys)
            for keys in (varied[:half], varied[half:])
        )
        for other in others:
            if margin and {first, other} <= set(study.table(task).index):
                pair = study.compare(task, first, other)
                verdict, width = (
                    equivalence(pair, margin, lower),
                    pair.interval[1] - pair.difference,
                )
                rows.append((first, other, row, column, pair.difference, width, verdict))
    return pd.DataFrame(
        rows, columns=["first", "other", "row", "column", "difference", "half", "verdict"]
    )


def equivalence(pair: Difference, margin: float, lower_is_better: bool = True) -> str:
    """Return what the difference of two losses says about the first.

    They are equivalent where the 90 % interval lies within the margin: two one-sided tests at 5 % (D. J. Schuirmann,
    Journal of Pharmacokinetics and Biopharmaceutics 15, 1987, pp. 657-680). Else the first is better or worse where the
    95 % interval leaves out 0.
    """
    if pair.seeds < FEWEST_SEEDS or not math.isfinite(pair.variance):
        return "open"
    if abs(pair.difference) + pair.half_width(2 * (1 - LEVEL)) < margin:
        return "equivalent"
    if abs(pair.difference) <= pair.half_width():
        return "open"
    return "better" if (pair.difference < 0) == lower_is_better else "worse"


def equivalence_sentences(study: Study) -> list[str]:
    """Return how often the first loss is better than, equivalent to and worse than each other one, a line each."""
    frame, metric, lines = equivalence_frame(study), study.metric(study.tasks[0]), []
    for (first, other), own in frame.groupby(["first", "other"], sort=False):
        counts = Counter(own["verdict"])
        verdicts = ", ".join(
            f"{word} on {counts[key]}" for key, word in VERDICTS.items() if counts[key]
        )
        size = scaled(study.margin(study.tasks[0]), metric)
        unit = "" if not metric.percent else " point" if size == 1 else " points"
        tasks, margin = counted(len(own), "task"), f"{size:g}{unit}"
        one, beside = readable(str(first)), readable(str(other))
        lines.append(
            f"Of {tasks} {one} is {verdicts} against {beside} ({metric.label}, margin {margin})."
        )
    return lines


def agreement(
    interval: tuple[float, float], seeds: int, margin: float | None, lower_is_better: bool = True
) -> str:
    """Return what the interval of ours less a published value says.

    agrees: five seeds at least, and the interval lies within the margin, whether it holds zero or not. better, worse:
    otherwise, three seeds at least, and it does not hold zero. open: everything else.
    """
    low, high = interval
    if margin is not None and is_within(interval, margin) and seeds >= FEWEST_TO_AGREE:
        return "agrees"
    if (low > 0 or high < 0) and seeds >= FEWEST_TO_DIFFER:
        return "better" if (high < 0) == lower_is_better else "worse"
    return "open"
