"""Tables of differences between two losses.

One table has all pairs, the other those that the comparison was made for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pandas as pd

from milbench.report.formatting import NOTHING, interval, number, readable
from milbench.report.statistics.differences import LEVEL, Difference, holm, is_within
from milbench.report.study import Study
from milbench.report.table import Table
from milbench.report.tables import NO, YES

QUESTION = "question"
UNCORRECTED = "95 %, uncorrected"
MARGIN = "within the margin"


def pairs_frame(study: Study, task: str, metric: str = "") -> pd.DataFrame:
    """Return a row for every two losses of a task, with the first less the second.

    The first loss has the better mean. The columns are first, second, difference, low and high (its
    95 % interval, not adjusted for the number of pairs), p, seeds and items: see `Difference`.
    """
    rows = []
    for first, second in combinations(study.summary(task, metric).index, 2):
        pair = study.compare(task, first, second, metric)
        low, high = pair.interval
        rows.append((first, second, pair.difference, low, high, pair.p, pair.seeds, pair.items))
    columns = ["first", "second", "difference", "low", "high", "p", "seeds", "items"]
    return pd.DataFrame(rows, columns=columns)


def contrasts_table(study: Study) -> Table | None:
    """Return the table of the differences that the spec names; None if it names none.

    p values are adjusted for the number of differences.
    """
    contrasts = []
    for contrast in study.plan.contrasts:
        for task in study.tasks:
            if {contrast.first, contrast.second} <= set(study.table(task).index):
                pair = study.compare(task, contrast.first, contrast.second)
                contrasts.append((contrast, task, pair))
    if not contrasts:
        return None
    adjusted = holm([pair.p for _, _, pair in contrasts])
    rows = []
    for (contrast, task, pair), p in zip(contrasts, adjusted, strict=True):
        question = {
            QUESTION: contrast.name,
            "task": readable(task),
            "difference of": f"{readable(contrast.first)} less {readable(contrast.second)}",
        }
        rows.append(question | _answer(study, task, pair, p))
    frame = pd.DataFrame(rows).set_index(QUESTION)
    is_corrected = any(pair.overlap for _, _, pair in contrasts)
    if not is_corrected:
        frame = frame.drop(columns=UNCORRECTED)
    if (frame[MARGIN] == NOTHING).all():
        frame = frame.drop(columns=MARGIN)
    labels = dict.fromkeys(study.metric(task).label for _, task, _ in contrasts)
    note = (
        f"In {' and '.join(labels)}. Intervals stand for themselves; p values are adjusted for all "
        f"{len(rows)} by Holm's method."
    )
    if is_corrected:
        note += " Uncorrected: as if seeds shared no bags; p values are of the corrected intervals."
    shown = [row for row, p in enumerate(adjusted) if p < 1 - LEVEL]
    return Table("What the comparison was made for", frame, note, frozenset(shown))


def _answer(study: Study, task: str, pair: Difference, p: float) -> dict[str, str]:
    """Return column -> text, what is known of a difference."""
    metric = study.metric(task)
    margin = study.margin(task)
    uncorrected = replace(pair, overlap=0.0)
    is_equivalent = NOTHING
    if margin:
        is_equivalent = YES if is_within(pair.interval, margin) else NO
    return {
        "difference": number(pair.difference, 2, metric, signed=True),
        "95 % interval": interval(pair.interval, pair.difference, metric, signed=True),
        UNCORRECTED: interval(uncorrected.interval, pair.difference, metric, signed=True),
        "p (Holm)": _p_text(p),
        "seeds": str(pair.seeds),
        MARGIN: is_equivalent,
    }


def _p_text(p: float) -> str:
    if math.isnan(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.2g}"
